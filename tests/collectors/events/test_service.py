"""Events from a collector: steps, history, subscriptions over the feed; rules set at run time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from collectors.collector import Collector
from collectors.counters import Count
from collectors.errors import CollectorError, FeedError
from collectors.events.rules import Rule, RuleSettings
from collectors.events.service import REJOIN_NS, EventService
from collectors.events.store import EventStore
from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.server import FeedServer, FeedSettings
from collectors.process import CollectorProcessSettings, reload_of
from collectors.values import Event, EventNote, Phase
from dataplane.clock import VirtualClock
from dataplane.daemon import Lifecycle
from dataplane.errors import ConfigError
from tests.collectors.reports import MICRO, Reporter, build_topology, long_way
from tests.waiting import finish_within

MS = 1_000_000
SLOW = Rule(name="slow", figure="delay_mean_ns", above=50_000.0)
SLOWER = Rule(name="slow", figure="delay_mean_ns", above=70_000.0)
BUSY = Rule(name="busy", figure="utilisation", above=0.9)
NOTE = EventNote("ada", "a new cable is on its way", 5)


class Bench:
    """A collector whose link s2->s3 is slow or not."""

    def __init__(self, *rules: Rule, keep_events: int = 10, store: EventStore | None = None) -> None:
        self.clock = VirtualClock()
        self.collector = Collector(build_topology(), self.clock)
        self.reporter = Reporter()
        settings = RuleSettings(rules=rules, keep_events=keep_events)
        self.service = EventService(self.collector, settings, store=store, wall_ns=lambda: 5)

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


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "events.sqlite")


@contextmanager
def bench_on(file: str, *rules: Rule) -> Iterator[Bench]:
    """A collector whose notes and rules are in a file, until it ends."""
    store = EventStore(file)
    try:
        yield Bench(*rules, store=store)
    finally:
        store.close()


def test_note_stays_with_its_event_until_it_is_cleared() -> None:
    bench = Bench(SLOW)
    heard: list[Event] = []
    bench.service.subscribe_notes(heard.append)
    with pytest.raises(CollectorError, match="rule 'slow' has no open event on s2->s3"):
        bench.service.acknowledge("slow", "s2->s3", NOTE)
    bench.step(MS)
    noted = bench.service.acknowledge("slow", "s2->s3", NOTE)
    assert noted.note == NOTE
    assert bench.service.open_events() == (noted,)
    assert bench.service.since(0) == (noted,)
    bench.service.acknowledge("slow", "s2->s3", None)
    assert [event.note for event in (*heard, *bench.service.open_events())] == [NOTE, None, None]
    bench.service.acknowledge("slow", "s2->s3", NOTE)
    (cleared,) = bench.step(0)
    assert (cleared.phase, cleared.note) == (Phase.CLEARED, NOTE)
    (again,) = bench.step(MS)
    assert (again.phase, again.note) == (Phase.RAISED, None)


def test_long_open_events_come_first_to_a_subscriber() -> None:
    bench = Bench(SLOW, keep_events=1)
    (raised,) = bench.step(MS)
    assert bench.service.since(raised.time_ns + 1) == (raised,)


def test_note_survives_a_restart_of_the_collector(file: str) -> None:
    with bench_on(file, SLOW) as bench:
        bench.step(MS)
        bench.service.acknowledge("slow", "s2->s3", NOTE)
    with bench_on(file, SLOW) as bench:
        assert [event.note for event in bench.step(MS)] == [NOTE]
        bench.step(0)
    with bench_on(file, SLOW) as bench:
        assert [event.note for event in bench.step(MS)] == [None]


def test_old_note_is_not_given_to_a_later_event(file: str) -> None:
    with bench_on(file, SLOW) as bench:
        bench.step(MS)
        bench.service.acknowledge("slow", "s2->s3", NOTE)
    with bench_on(file, SLOW) as bench:
        bench.step(0)
        bench.clock.advance_to(bench.clock.now_ns() + REJOIN_NS)
        bench.step(0)
        assert [event.note for event in bench.step(MS)] == [None]
    with bench_on(file, SLOW) as bench:
        assert [event.note for event in bench.step(MS)] == [None]


def test_changed_rules_survive_a_restart_and_a_reload(file: str) -> None:
    with bench_on(file, SLOW, BUSY) as bench:
        bench.service.replace([SLOWER], "ada")
    with bench_on(file, SLOW, BUSY) as bench:
        assert bench.service.rules == (SLOWER,)
        changes = {change.name: (change.rule, change.by) for change in bench.service.state.changes}
        assert changes == {"slow": (SLOWER, "ada"), "busy": (None, "ada")}
        bench.service.reload((SLOW, BUSY))
        assert bench.service.rules == (SLOWER,)
        # The settings' rule has changed since: of the two changes of it, this is the later one.
        bench.service.reload((Rule(name="slow", figure="delay_mean_ns", above=60_000.0), BUSY))
        assert [rule.above for rule in bench.service.rules] == [60_000.0]
    with bench_on(file, Rule(name="slow", figure="delay_mean_ns", above=60_000.0)) as bench:
        assert [rule.above for rule in bench.service.rules] == [60_000.0]
        assert bench.service.state.changes == ()


def test_notes_and_versions_of_rules_over_the_feed(address: str) -> None:
    async def scenario() -> None:
        bench = Bench(SLOW)
        bench.step(MS)
        server = FeedServer(bench.collector, FeedSettings(address=address), bench.service)
        await server.start()
        async with FeedClient(FeedClientSettings(address=address)) as client:
            watched = client.events(since_ns=0)
            assert [event.note for event in await anext(watched)] == [None]
            noted = await client.acknowledge("slow", "s2->s3", "on it", by="ada")
            assert noted.note is not None
            assert (noted.note.by, noted.note.text) == ("ada", "on it")
            assert await anext(watched) == (noted,)
            with pytest.raises(FeedError, match=r"rule 'slow' has no open event on s1->s2$"):
                await client.acknowledge("slow", "s1->s2", "", by="ada")
            before = await client.rule_state()
            after = await client.set_rules([SLOWER], by="ada", version=before.version)
            assert after == bench.service.state
            assert [(change.settings_rule, change.by) for change in after.changes] == [(SLOW, "ada")]
            with pytest.raises(FeedError, match="somebody else has changed the rules meanwhile"):
                await client.set_rules([], by="bob", version=before.version)
            assert await client.rules() == (SLOWER,)
        await server.stop()

    asyncio.run(finish_within(scenario(), 20))
