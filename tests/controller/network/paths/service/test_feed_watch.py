"""A feed that falls silent, on the path server's clock: reported once, shown in all answers, no decisions."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from collectors.values import Snapshot
from controller.network.paths.core import PathServerCore
from controller.network.paths.service.feed_watch import FeedWatch
from controller.network.paths.service.publication import Publication
from controller.network.paths.service.rounds import Rounds
from controller.network.paths.settings import DecideSettings, ManagedFlow, PathServerSettings
from dataplane.clock import VirtualClock
from dataplane.topology.values import Topology
from tests.controller.network.paths.service.test_server import AD, MS, Bench, congested, play, running, topology

__all__ = ["topology"]


def test_silence_and_its_end_are_reported_once_each() -> None:
    watch = FeedWatch(1000 * MS, now_ns=0)
    assert watch.transition(1000 * MS) is None
    assert watch.age_ns(1000 * MS) is None
    watch.observe(1000 * MS)
    assert (watch.transition(2000 * MS), watch.age_ns(2000 * MS), watch.is_silent(2000 * MS)) == (
        None,
        1000 * MS,
        False,
    )
    assert watch.transition(2200 * MS) == (
        "the collector's feed is silent: its newest state is 1.2 s old; decisions are suspended until it recovers"
    )
    assert watch.transition(9000 * MS) is None
    assert (watch.age_ns(9000 * MS), watch.is_silent(9000 * MS)) == (8000 * MS, True)
    watch.observe(900 * MS)  # late arrival
    assert watch.transition(9000 * MS) is None
    watch.observe(13_000 * MS)
    assert watch.transition(13_000 * MS) == "the collector's feed recovered after 12.0 s; decisions resume"
    assert watch.transition(13_500 * MS) is None


def test_a_feed_that_never_spoke_is_silent_too() -> None:
    watch = FeedWatch(1000 * MS, now_ns=500 * MS)
    assert watch.transition(1600 * MS) == (
        "the collector's feed is silent: no state received; decisions are suspended until it recovers"
    )


@pytest.mark.parametrize(("interval_ms", "limit_ms"), [(100, 1000), (333, 1000), (500, 1500), (5000, 15_000)])
def test_patience_grows_with_the_interval(interval_ms: int, limit_ms: int) -> None:
    assert PathServerSettings(topology="", interval_ns=interval_ms * MS).oldest_snapshot_ns == limit_ms * MS
    assert PathServerSettings(topology="", max_snapshot_age_ns=7).oldest_snapshot_ns == 7


def test_answers_tell_the_age_of_figures_and_feed_silence(topology: Topology, tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(topology, tmp_path) as bench:
            bench.clock.advance_to(5000 * MS)
            bench.feed.waiting.put_nowait(Snapshot(5000 * MS, {}, {}, {}))
            await bench.until_status(lambda status: status.last_step_ns is not None)
            assert await _ages(bench) == (0, False, 0, False)
            bench.clock.advance_to(17_000 * MS)
            assert await _ages(bench) == (12_000 * MS, True, 12_000 * MS, True)
            bench.feed.waiting.put_nowait(Snapshot(16_900 * MS, {}, {}, {}))
            await bench.until_status(lambda status: not status.feed_is_silent)
            assert await _ages(bench) == (100 * MS, False, 100 * MS, False)

    play(scene())


async def _ages(bench: Bench) -> tuple[int | None, bool, int | None, bool]:
    status, told = await bench.client.status(), await bench.client.why(AD)
    return status.snapshot_age_ns, status.feed_is_silent, told.figures_age_ns, told.feed_is_silent


def test_stale_snapshots_after_a_hang_decide_nothing(topology: Topology, tmp_path: Path) -> None:
    """The path server itself may hang: snapshots that queued meanwhile are stale when it continues."""

    async def scene() -> None:
        async with running(topology, tmp_path) as bench:
            routes = bench.client.routes()
            assert (await anext(routes)).version == 0
            bench.feed.waiting.put_nowait(Snapshot(0, {}, {}, {}))
            await bench.until_status(lambda status: status.last_step_ns is not None)
            bench.clock.advance_to(12_000 * MS)
            bench.feed.waiting.put_nowait(replace(congested(topology), taken_ns=100 * MS))
            await bench.until_status(lambda status: status.counters["stale_snapshots"] > 0)
            assert (await bench.client.status()).version == 0
            bench.feed.waiting.put_nowait(replace(congested(topology), taken_ns=12_000 * MS))
            assert (await anext(routes)).version == 1
            await routes.aclose()

    play(scene())


def test_the_log_has_silence_once(topology: Topology, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        settings, clock = PathServerSettings(topology="", feed=""), VirtualClock(0)
        core = PathServerCore(topology, DecideSettings(), flows=(ManagedFlow(src="ha", dst="hd"),))
        with ThreadPoolExecutor(1) as worker:
            rounds = Rounds(core, worker, Publication(core), settings, clock=clock)
            for second in range(5):
                clock.advance_to(1000 * second * MS)
                rounds.log_silence()
        assert rounds.counters["feed_silences"] == 1

    with caplog.at_level(logging.WARNING, "millrace.paths"):
        play(scene())
    assert caplog.text.count("feed is silent") == 1
