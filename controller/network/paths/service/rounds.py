"""Rounds of decisions: the collector's feed and requests in, the core's results out, one call of the core at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, TypeVar

from collectors.errors import FeedError
from collectors.feed.states.feed_time import FeedTime
from collectors.values import LinkStatus, NetworkSignals, Snapshot
from controller.common.errors import StorageError
from controller.common.standby.lease import Lease
from controller.common.standby.pair import until_active
from controller.common.tracing import UNTRACED, Traces
from controller.network.intents import FlowSpec
from controller.network.paths.core import PathServerCore
from controller.network.paths.deciding.graph import Path
from controller.network.paths.deciding.signals import LEAST_GAP_NS, Signals
from controller.network.paths.records.values import DrainChange, DrainEffect, LinkChange
from controller.network.paths.round_result import RoundResult
from controller.network.paths.service.feed_watch import FeedWatch
from controller.network.paths.service.move_reports import MoveReports, MoveTaker
from controller.network.paths.service.publication import Publication
from controller.network.paths.service.tracing import Round, traced
from controller.network.paths.settings import PathServerSettings
from dataplane.clock import Clock
from dataplane.topology.values import LinkKey

LOGGER: Final = logging.getLogger("millrace.paths")
_AGAIN_S: Final = 0.05
_FIRST_ROUND_S: Final = 10.0
"""Without a state of the network for this long, a standby is ready to serve the saved routes."""
_LOOKS: Final = 4
"""Number of silence checks within the time after which a feed counts as silent."""
_PREPARING: Final = 10
"""This part, one over, of a round may be spent on preparing later ones."""

T = TypeVar("T")


class SnapshotFeed(MoveTaker, Protocol):
    """Source of snapshots: `collectors.feed.client.FeedClient`."""

    def snapshots(self, interval_ns: int) -> AsyncGenerator[Snapshot, None]:
        """Yield a snapshot at every interval."""
        ...

    def signals(self, queue_frames: float, shortest_gap_ns: int) -> AsyncIterator[NetworkSignals]:
        """Yield signs that the network has changed."""
        ...

    async def snapshot(self) -> Snapshot:
        """Return the state now."""
        ...


class Rounds:
    """Steps a core by the newest snapshot, carries out requests between steps, and publishes the results.

    All calls of the core are made in `worker`, which has one thread, so that no two overlap.
    """

    def __init__(
        self,
        core: PathServerCore,
        worker: Executor,
        publication: Publication,
        settings: PathServerSettings,
        *,
        clock: Clock,
        traces: Traces = UNTRACED,
    ) -> None:
        self._core, self._worker, self._publication = core, worker, publication
        self._settings, self._clock, self._traces = settings, clock, traces
        self._move_reports = MoveReports()
        self._newest: tuple[Snapshot, int, bool] | None = None
        self._signals = Signals(queue_frames=core.settings.idle_frames, interval_ns=settings.interval_ns)
        self._woken = asyncio.Event()
        self._arrived = asyncio.Event()
        self._computed = asyncio.Event()
        self.feed_time = FeedTime()
        self.feed_time_known = asyncio.Event()
        self.feed_watch = FeedWatch(settings.oldest_snapshot_ns, clock.now_ns())
        self.last_step_ns: int | None = None
        self.round_ns = 0
        self.counters = dict.fromkeys(("stale_snapshots", "feed_silences", "rounds_woken"), 0)

    def start(self, feed: SnapshotFeed, group: asyncio.TaskGroup) -> None:
        """Follow a feed in tasks of a group; they raise a permanent failure of the feed."""
        group.create_task(self._watch(feed), name="watch")
        group.create_task(self._listen_for_silence(), name="watch for feed silence")
        group.create_task(self._look_at_once(feed), name="decide on link changes")
        group.create_task(self._decide(), name="decide")
        group.create_task(self._follow_signals(feed), name="follow signals")
        group.create_task(self._move_reports.run(feed), name="report decisions")

    async def step(self, snapshot: Snapshot, taken_ns: int, *, out_of_turn: bool = False) -> None:
        """Decide on a snapshot, taken at a time of our clock, and publish the result; an old one is only counted.

        `out_of_turn`: requested because the network has changed, ahead of its turn.
        """
        now_ns = self._clock.now_ns()
        if self.feed_watch.is_old(taken_ns, now_ns):
            self.counters["stale_snapshots"] += 1
            return
        result = await self.in_worker(partial(self._core.decide, snapshot, now_ns, out_of_turn=out_of_turn))
        self._computed.set()
        self.round_ns = self._clock.now_ns() - now_ns
        self._signals.decided(moved=result is not None)
        self.last_step_ns = now_ns
        await self._publish(result, Round("state", now_ns, taken_ns))

    async def link_changed(self, change: LinkChange) -> None:
        """Take a report of a link that went down or came back, and publish the result."""
        now_ns = self._clock.now_ns()
        result = await self.in_worker(partial(self._core.link_changed, change.link, now_ns, up=change.up))
        await self._publish(result, Round("link", now_ns))

    async def links_noted(self, statuses: Mapping[LinkKey, LinkStatus]) -> None:
        """Take the controller's reports on all links, and publish the resulting routes."""
        now_ns = self._clock.now_ns()
        result = await self.in_worker(partial(self._core.links_noted, statuses, now_ns))
        await self._publish(result, Round("links", now_ns))

    async def pin(self, flow: FlowSpec, path: Path) -> None:
        """Pin a flow, and publish the resulting routes; raise the core's errors."""
        now_ns = self._clock.now_ns()
        await self._publish(await self.in_worker(lambda: self._core.pin(flow, path, now_ns)), Round("pin", now_ns))

    async def release(self, flow: FlowSpec) -> None:
        """Release a pinned flow, and publish the resulting routes; raise the core's errors."""
        now_ns = self._clock.now_ns()
        await self._publish(await self.in_worker(lambda: self._core.release(flow, now_ns)), Round("release", now_ns))

    async def drain(self, change: DrainChange) -> DrainEffect:
        """Drain an element or put it back, and publish the resulting routes; raise the core's errors."""
        now_ns = self._clock.now_ns()
        effect, result = await self.in_worker(lambda: self._core.drain(change, now_ns))
        if result is not None:
            word, note = "drained" if change.drained else "put back", f": {change.note}" if change.note else ""
            LOGGER.info("%s %s by %s%s", change.element, word, change.by, note)
        await self._publish(result, Round("drain", now_ns))
        return effect

    async def take_over(self, lease: Lease) -> None:
        """Become the active path server once the lease is held, and publish the pair's routes under its token."""
        # A first round compiles and loads for a while: it is over before anybody relies on this one.
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_ROUND_S):
                await self._computed.wait()
        await until_active(lease)
        token = lease.check()
        while True:
            try:
                result = await self.in_worker(partial(self._core.take_over, token))
                break
            except StorageError as error:
                lease.check()
                LOGGER.warning("%s", error)
                await asyncio.sleep(_AGAIN_S)
        self._publication.begin_anew()
        await self._publish(result, Round("lease", self._clock.now_ns()))

    async def _watch(self, feed: SnapshotFeed) -> None:
        """Keep the newest snapshot only: a round that takes long must not leave a queue of old ones behind."""
        async for snapshot in feed.snapshots(self._settings.interval_ns):
            self.feed_time.observe(snapshot.taken_ns, self._clock.now_ns())
            self.feed_time_known.set()
            self._take(snapshot, out_of_turn=False)

    async def _look_at_once(self, feed: SnapshotFeed) -> None:
        """Request a snapshot out of turn whenever there are signs that the network has changed."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                snapshot = await feed.snapshot()
            except FeedError:
                # The stream of snapshots waits for a collector that is away, and says so.
                continue
            self._take(snapshot, out_of_turn=True)

    def _take(self, snapshot: Snapshot, *, out_of_turn: bool) -> None:
        taken_ns = snapshot.taken_ns + self.feed_time.offset_ns
        self.feed_watch.observe(taken_ns)
        self.log_silence()
        self._newest = snapshot, taken_ns, out_of_turn
        self._arrived.set()

    async def _listen_for_silence(self) -> None:
        while True:
            await asyncio.sleep(self._settings.oldest_snapshot_ns / _LOOKS / 1e9)
            self.log_silence()

    def log_silence(self) -> None:
        """Log, once each, when the feed falls silent and when it recovers."""
        now_ns = self._clock.now_ns()
        transition = self.feed_watch.transition(now_ns)
        if transition is None:
            return
        is_silent = self.feed_watch.is_silent(now_ns)
        self.counters["feed_silences"] += is_silent
        LOGGER.log(logging.WARNING if is_silent else logging.INFO, "%s", transition)

    async def _decide(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            if self._newest is not None:
                snapshot, taken_ns, out_of_turn = self._newest
                published = self._publication.routes
                await self.step(snapshot, taken_ns, out_of_turn=out_of_turn)
                if self._publication.routes is published:
                    await self.in_worker(partial(self._core.prepare, self._until_due()))

    def _until_due(self) -> Callable[[], bool]:
        """Return whether to stop work that can wait: a state has arrived, or the work has had its share of a round."""
        until_ns = self._clock.now_ns() + self._settings.interval_ns // _PREPARING
        return lambda: self._arrived.is_set() or self._clock.now_ns() >= until_ns

    async def _follow_signals(self, feed: SnapshotFeed) -> None:
        async for signals in feed.signals(self._core.settings.idle_frames, LEAST_GAP_NS):
            if self._signals.observe(signals, self._clock.now_ns(), self._core.outgrows):
                self.counters["rounds_woken"] += 1
                self._woken.set()

    async def _publish(self, result: RoundResult | None, round_: Round) -> None:
        """Publish a round's result; None means no change."""
        if result is None:
            return
        routes = traced(self._traces, round_, result)
        self._move_reports.add(result.moves)
        await self._publication.publish(result, routes)

    async def in_worker(self, call: Callable[[], T]) -> T:
        """Return the result of a call that uses the core, between two others."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, call)
