"""Events from a collector: steps, history, subscriptions over the feed; rules set at run time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from collectors.collector import Collector
from collectors.counters import Count
from collectors.errors import FeedError
from collectors.events.rules import Rule, RuleSettings
from collectors.events.service import EventService
from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.server import FeedServer, FeedSettings
from collectors.process import CollectorProcessSettings, reload_of
from collectors.values import Event, Phase
from dataplane.clock import VirtualClock
from dataplane.daemon import Lifecycle
from dataplane.errors import ConfigError
from tests.collectors.reports import MICRO, Reporter, build_topology, long_way
from tests.waiting import finish_within

MS = 1_000_000
SLOW = Rule(name="slow", figure="delay_mean_ns", above=50_000.0)


class Bench:
    """A collector whose link s2->s3 is slow or not."""

    def __init__(self, *rules: Rule, keep_events: int = 10) -> None:
        self.clock = VirtualClock()
        self.collector = Collector(build_topology(), self.clock)
        self.reporter = Reporter()
        self.service = EventService(self.collector, RuleSettings(rules=rules, keep_events=keep_events))

    def step(self, queued_ns: int) -> tuple[Event, ...]:
        """Receive a report after the link's last samples are forgotten, and evaluate."""
        self.clock.advance_to(self.clock.now_ns() + 1000 * MS)
        self.collector.receive(self.reporter.stacked(long_way(self.clock.now_ns(), queued_ns=queued_ns)))
        return self.service.step()


@pytest.fixture
def address() -> Iterator[str]:
    with TemporaryDirectory(prefix="events") as folder:
        yield f"unix:{Path(folder) / 'socket'}"


def test_a_queue_raises_an_event_and_its_end_clears_it() -> None:
    bench = Bench(SLOW)
    heard: list[tuple[Event, ...]] = []
    stop = bench.service.subscribe(heard.append)
    events = [event for queued in (0, 100 * MICRO, 100 * MICRO, 0) for event in bench.step(queued)]
    assert [(str(event.subject), event.phase) for event in events] == [
        ("s2->s3", Phase.RAISED),
        ("s2->s3", Phase.CLEARED),
    ]
    assert heard == [(event,) for event in events]
    assert bench.collector.counters[Count.EVENTS] == 2
    stop()
    bench.step(100 * MICRO)
    assert len(heard) == 2


def test_kept_events_are_bounded_and_open_ones_known() -> None:
    bench = Bench(SLOW, keep_events=3)
    for queued in (MS, 0, MS, 0, MS):
        bench.step(queued)
    assert [event.phase for event in bench.service.kept] == [Phase.RAISED, Phase.CLEARED, Phase.RAISED]
    assert bench.service.open_events() == bench.service.kept[-1:]


def test_events_and_rules_travel_over_the_feed(address: str) -> None:
    async def scenario() -> None:
        bench = Bench()
        server = FeedServer(bench.collector, FeedSettings(address=address), bench.service)
        await server.start()
        async with FeedClient(FeedClientSettings(address=address)) as client:
            assert await client.rules() == ()
            await client.set_rules([SLOW])
            assert await client.rules() == bench.service.rules == (SLOW,)
            early = client.events()
            assert await anext(early) == ()
            raised = bench.step(MS)
            assert await anext(early) == raised
            later = client.events(since_ns=0)
            assert await anext(later) == raised
            await client.set_rules([])
            (cleared,) = await anext(later)
            assert (cleared.rule, cleared.phase) == ("slow", Phase.CLEARED)
        await server.stop()

    asyncio.run(finish_within(scenario(), 20))


def test_invalid_rules_are_refused_and_change_nothing(address: str) -> None:
    async def scenario() -> None:
        bench = Bench(SLOW)
        server = FeedServer(bench.collector, FeedSettings(address=address), bench.service)
        await server.start()
        async with FeedClient(FeedClientSettings(address=address)) as client:
            with pytest.raises(FeedError, match="two rules are named 'slow'"):
                await client.set_rules([SLOW, SLOW])
            assert await client.rules() == (SLOW,)
        await server.stop()

    asyncio.run(finish_within(scenario(), 20))


def test_reload_applies_new_rules_and_bad_ones_change_nothing() -> None:
    async def scenario() -> None:
        bench, messages = Bench(), asyncio.Queue[str]()
        started = CollectorProcessSettings(topology="t")
        answers = iter([CollectorProcessSettings(topology="u", events=RuleSettings(rules=(SLOW,))), None])

        def read() -> CollectorProcessSettings:
            answer = next(answers)
            if answer is None:
                raise ConfigError("rules: nonsense", file="collector.yaml")
            return answer

        lifecycle = Lifecycle("collector", started, read, asyncio.Event(), messages.put_nowait)
        lifecycle.reload(reload_of(bench.service, messages.put_nowait))
        lifecycle.hang_up()
        assert await messages.get() == "1 rule in force"
        assert await messages.get() == "restart required for: topology"
        lifecycle.hang_up()
        assert await messages.get() == "keeping the previous rules: collector.yaml: rules: nonsense"
        assert bench.service.rules == (SLOW,)
        await lifecycle.close()

    asyncio.run(finish_within(scenario(), 20))
