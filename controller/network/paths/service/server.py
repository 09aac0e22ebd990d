"""The path server's process: the collector's feed in, routes, decisions and answers out.

Service millrace.paths.v1.Paths, as defined in paths.proto. Everything that touches the database runs in a separate
thread, so that a slow disk delays neither the feed nor other answers.
Nothing here authenticates: the address is a unix socket, guarded by its folder's permissions, or loopback.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, Protocol, TypeVar

import grpc

from collectors.errors import FeedError
from collectors.feed import links_pb2, records_pb2
from collectors.feed.records import records_message
from collectors.feed.statuses import statuses_of
from collectors.record_columns import RecordColumns
from collectors.values import FlowMove, LinkStatus, NetworkSignals, Snapshot
from controller.common.errors import (
    DeadPathError,
    LostLeaseError,
    NoSuchPathError,
    PathError,
    StaleDrainsError,
    StorageError,
)
from controller.common.standby.lease import Lease
from controller.common.standby.pair import until_active
from controller.common.tracing import UNTRACED, Traces
from controller.network.intents import FlowSpec, RouteSet
from controller.network.paths.balancing.values import Rebalance
from controller.network.paths.core import RECENT_DECISIONS, PathServerCore
from controller.network.paths.deciding.decide import Decision
from controller.network.paths.deciding.signals import LEAST_GAP_NS, Signals
from controller.network.paths.records.queries import answer, rows_between
from controller.network.paths.records.recorder import Recorder
from controller.network.paths.records.values import Explanation, LinkChange, PathServerStatus
from controller.network.paths.round_result import RoundResult
from controller.network.paths.service import paths_pb2 as pb
from controller.network.paths.service.feed_time import FeedTime
from controller.network.paths.service.feed_watch import FeedWatch
from controller.network.paths.service.messages import (
    DECISION,
    DRAIN_EFFECT,
    DRAIN_LIST,
    EXPLANATION,
    HISTORY,
    REBALANCE,
    STATUS,
    drain_asked,
    flow_asked,
    history_asked,
    link_reported,
    pin_asked,
    records_asked,
    route_set_message,
)
from controller.network.paths.service.move_reports import MoveReports
from controller.network.paths.service.tracing import Round, traced
from controller.network.paths.settings import PathServerSettings
from dataplane.clock import NS_PER_S, Clock
from dataplane.load.monitor import Cause, LoadMonitor
from dataplane.rpc.access.caller import CALLER
from dataplane.rpc.access.permissions import Permission
from dataplane.rpc.access.values import Role
from dataplane.rpc.errors import CallError
from dataplane.rpc.server import RpcServer
from dataplane.rpc.service import Service
from dataplane.topology.values import LinkKey

LOGGER = logging.getLogger("millrace.paths")

MAX_PENDING_BATCHES = 64
"""Batches of records waiting for the database; more are dropped and counted."""
_AGAIN_S: Final = 0.05
_FIRST_ROUND_S: Final = 10.0
"""Without a state of the network for this long, a standby is ready to serve the saved routes."""
_LOOKS: Final = 4
"""Number of silence checks within the time after which a feed counts as silent."""
_PREPARING: Final = 10
"""This part, one over, of a round may be spent on preparing later ones."""
MAX_PENDING_DECISIONS = 1024
"""Decisions waiting for one subscriber; more are dropped and counted."""

_NEEDS: Final = {
    "WatchRoutes": Permission.READ,
    "WatchDecisions": Permission.READ,
    "WatchRebalances": Permission.READ,
    "Explain": Permission.READ,
    "GetHistory": Permission.READ,
    "ReportLink": Permission.CHANGE,
    "Pin": Permission.CHANGE,
    "Release": Permission.CHANGE,
    "Drain": Permission.CHANGE,
    "ForeseeDrain": Permission.READ,
    "GetDrains": Permission.READ,
    "NoteLinks": Permission.CHANGE,
    "GetRecords": Permission.READ,
    "GetStatus": Permission.READ,
}

_RELIEF: Final = "lower max_flows, raise interval, or give the path server a dedicated core"
_SHED: Final = {
    "flows_over_limit": "raise max_flows: these flows follow the base routes",
    "record_batches_dropped": "records arrive faster than the record table takes them: set records",
    "decisions_dropped": "a subscriber of decisions reads too slowly",
    "stale_snapshots": "the collector or this machine is overloaded: look at the collector's status",
}
"""Counters of dropped work, and remedies."""

T = TypeVar("T")


class Feed(Protocol):
    """Source of snapshots and records: `collectors.feed.client.FeedClient`."""

    def snapshots(self, interval_ns: int) -> AsyncGenerator[Snapshot, None]:
        """Yield a snapshot at every interval."""
        ...

    def record_columns(self, reports_per_s: int | None = None) -> AsyncIterator[RecordColumns]:
        """Yield batches of hop records, sampled to about this many reports per second."""
        ...

    def signals(self, queue_frames: float, shortest_gap_ns: int) -> AsyncIterator[NetworkSignals]:
        """Yield signs that the network has changed."""
        ...

    async def snapshot(self) -> Snapshot:
        """Return the state now."""
        ...

    async def note_moves(self, moves: Sequence[FlowMove]) -> None:
        """Report decisions to the collector."""
        ...


class PathServer:
    """Runs a core on a feed and serves it; construct it inside a running event loop."""

    def __init__(
        self,
        core: PathServerCore,
        recorder: Recorder,
        settings: PathServerSettings,
        clock: Clock,
        traces: Traces = UNTRACED,
        *,
        lease: Lease | None = None,
    ) -> None:
        """With a `lease` stand by until it is held; the core's store is a `PairStore` then."""
        self._core, self._recorder, self._settings, self._clock = core, recorder, settings, clock
        self._traces, self._lease = traces, lease
        # One thread only, so that no two calls of the core overlap.
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="paths")
        self._pending: asyncio.Queue[RecordColumns] = asyncio.Queue(MAX_PENDING_BATCHES)
        self._subscribers: set[asyncio.Queue[Decision]] = set()
        self._balance_subscribers: set[asyncio.Queue[Rebalance]] = set()
        self._move_reports = MoveReports()
        self._routes = core.routes
        self._sent: tuple[RouteSet, bytes] | None = None
        self._recent = deque(core.decisions, maxlen=RECENT_DECISIONS)
        self._recent_changes = deque(core.rebalances, maxlen=RECENT_DECISIONS)
        self._routes_changed = asyncio.Condition()
        self._newest: tuple[Snapshot, int, bool] | None = None
        self._signals = Signals(queue_frames=core.settings.idle_frames, interval_ns=settings.interval_ns)
        self._woken = asyncio.Event()
        self._arrived = asyncio.Event()
        self._computed = asyncio.Event()
        self._feed_time = FeedTime()
        self._feed_time_known = asyncio.Event()
        self._last_step_ns: int | None = None
        self._round_ns = 0
        self._feed_watch = FeedWatch(settings.oldest_snapshot_ns, clock.now_ns())
        self.counters: dict[str, int] = dict.fromkeys(
            (
                "records",
                "record_batches_dropped",
                "records_failed",
                "decisions_dropped",
                "stale_snapshots",
                "feed_silences",
                "rounds_woken",
            ),
            0,
        )
        self._monitor = LoadMonitor(LOGGER, loop_advice=_RELIEF, clock=clock)
        self._monitor.watch_counters(lambda: {**self.counters, **core.counters}, _SHED)
        self._monitor.watch(self._long_round)
        self._server = RpcServer(
            settings.listen,
            [self._service()],
            purpose="cannot serve routes",
            error=PathError,
            limits=settings.limits,
            tls=settings.tls,
        )
        self.address = self._server.address

    async def run(self, feed: Feed) -> None:
        """Serve, record and decide until cancelled; raise a permanent failure of the feed."""
        await self._server.start()
        await self._server.report_serving(ready=self._lease is None)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._take_over(), name="take over")
                group.create_task(self._watch(feed), name="watch")
                group.create_task(self._listen_for_silence(), name="watch for feed silence")
                group.create_task(self._look_at_once(feed), name="decide on link changes")
                group.create_task(self._decide(), name="decide")
                group.create_task(self._follow_signals(feed), name="follow signals")
                group.create_task(self._move_reports.run(feed), name="report decisions")
                if self._settings.records.reports_per_s:
                    group.create_task(self._receive(feed), name="receive records")
                    group.create_task(self._record(), name="record")
                group.create_task(self._monitor.run(), name="measure load")
        finally:
            await self._server.stop()
            self._worker.shutdown(wait=True, cancel_futures=True)

    async def step(self, snapshot: Snapshot, taken_ns: int, *, out_of_turn: bool = False) -> None:
        """Decide on a snapshot, taken at a time of our clock, and publish the result; an old one is only counted.

        `out_of_turn`: requested because the network has changed, ahead of its turn.
        """
        now_ns = self._clock.now_ns()
        if self._feed_watch.is_old(taken_ns, now_ns):
            self.counters["stale_snapshots"] += 1
            return
        result = await self._in_worker(partial(self._core.decide, snapshot, now_ns, out_of_turn=out_of_turn))
        self._computed.set()
        self._round_ns = self._clock.now_ns() - now_ns
        self._signals.decided(moved=result is not None)
        self._last_step_ns = now_ns
        await self._publish(result, Round("state", now_ns, taken_ns))

    async def link_changed(self, change: LinkChange) -> None:
        """Take a report of a link that went down or came back, and publish the result."""
        now_ns = self._clock.now_ns()
        result = await self._in_worker(partial(self._core.link_changed, change.link, now_ns, up=change.up))
        await self._publish(result, Round("link", now_ns))

    async def links_noted(self, statuses: Mapping[LinkKey, LinkStatus]) -> None:
        """Take the controller's reports on all links, and publish the resulting routes."""
        now_ns = self._clock.now_ns()
        result = await self._in_worker(partial(self._core.links_noted, statuses, now_ns))
        await self._publish(result, Round("links", now_ns))

    async def _take_over(self) -> None:
        """Become the active path server once the lease is held, and publish the pair's routes under its token."""
        if self._lease is None:
            return
        # A first round compiles and loads for a while: it is over before anybody relies on this one.
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_ROUND_S):
                await self._computed.wait()
        await until_active(self._lease)
        token = self._lease.check()
        while True:
            try:
                result = await self._in_worker(partial(self._core.take_over, token))
                break
            except StorageError as error:
                self._lease.check()
                LOGGER.warning("%s", error)
                await asyncio.sleep(_AGAIN_S)
        self._recent = deque(self._core.decisions, maxlen=RECENT_DECISIONS)
        self._recent_changes = deque(self._core.rebalances, maxlen=RECENT_DECISIONS)
        await self._publish(result, Round("lease", self._clock.now_ns()))
        await self._server.report_serving(ready=True)

    async def _watch(self, feed: Feed) -> None:
        """Keep the newest snapshot only: a round that takes long must not leave a queue of old ones behind."""
        async for snapshot in feed.snapshots(self._settings.interval_ns):
            self._feed_time.observe(snapshot.taken_ns, self._clock.now_ns())
            self._feed_time_known.set()
            self._take(snapshot, out_of_turn=False)

    async def _look_at_once(self, feed: Feed) -> None:
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
        taken_ns = snapshot.taken_ns + self._feed_time.offset_ns
        self._feed_watch.observe(taken_ns)
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
        transition = self._feed_watch.transition(now_ns)
        if transition is None:
            return
        is_silent = self._feed_watch.is_silent(now_ns)
        self.counters["feed_silences"] += is_silent
        LOGGER.log(logging.WARNING if is_silent else logging.INFO, "%s", transition)

    async def _decide(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            if self._newest is not None:
                snapshot, taken_ns, out_of_turn = self._newest
                published = self._routes
                await self.step(snapshot, taken_ns, out_of_turn=out_of_turn)
                if self._routes is published:
                    await self._in_worker(partial(self._core.prepare, self._until_due()))

    def _until_due(self) -> Callable[[], bool]:
        """Return whether to stop work that can wait: a state has arrived, or the work has had its share of a round."""
        until_ns = self._clock.now_ns() + self._settings.interval_ns // _PREPARING
        return lambda: self._arrived.is_set() or self._clock.now_ns() >= until_ns

    async def _receive(self, feed: Feed) -> None:
        async for records in feed.record_columns(self._settings.records.reports_per_s):
            if self._pending.full():
                self.counters["record_batches_dropped"] += 1
            elif len(records):
                self._pending.put_nowait(records)

    async def _follow_signals(self, feed: Feed) -> None:
        async for signals in feed.signals(self._core.settings.idle_frames, LEAST_GAP_NS):
            if self._signals.observe(signals, self._clock.now_ns(), self._core.outgrows):
                self.counters["rounds_woken"] += 1
                self._woken.set()

    async def _record(self) -> None:
        await self._feed_time_known.wait()
        problem = ""
        while True:
            records = await self._pending.get()
            try:
                await self._in_worker(partial(self._recorder.record_columns, records, self._feed_time.offset_ns))
                self.counters["records"] += len(records)
            except PathError as error:
                self.counters["records_failed"] += len(records)
                # A full disk fails every batch: each is counted, but a problem is logged once.
                if str(error) != problem:
                    LOGGER.warning("%s", error)
                problem = str(error)
            else:
                problem = ""

    async def _publish(self, result: RoundResult | None, round_: Round) -> None:
        """Send subscribers a round's result; None means no change."""
        if result is None:
            return
        routes = traced(self._traces, round_, result)
        self._recent.extend(result.moves)
        self._move_reports.add(result.moves)
        self._recent_changes.extend(result.rebalances)
        for decision in result.moves:
            LOGGER.info("%s->%s: %s", decision.flow.src_host, decision.flow.dst_host, decision.reason)
            self._publish_to(self._subscribers, decision)
        for change in result.rebalances:
            LOGGER.info("all to %s at %s: %s", change.destination, change.switch, change.reason)
            self._publish_to(self._balance_subscribers, change)
        async with self._routes_changed:
            self._routes = routes
            self._routes_changed.notify_all()

    def _publish_to(self, subscribers: set[asyncio.Queue[T]], item: T) -> None:
        for queue in subscribers:
            if queue.full():
                self.counters["decisions_dropped"] += 1
            else:
                queue.put_nowait(item)

    async def _in_worker(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, call)

    def _service(self) -> Service:
        return Service(
            pb.DESCRIPTOR.services_by_name["Paths"],
            {
                "WatchRoutes": self._serve_routes,
                "WatchDecisions": self._serve_decisions,
                "WatchRebalances": self._serve_rebalances,
                "Explain": self._serve_explanation,
                "GetHistory": self._serve_history,
                "ReportLink": self._serve_report_link,
                "Pin": self._serve_pin,
                "Release": self._serve_release,
                "Drain": self._serve_drain,
                "ForeseeDrain": self._serve_foresee_drain,
                "GetDrains": self._serve_drains,
                "NoteLinks": self._serve_note_links,
                "GetRecords": self._serve_records,
                "GetStatus": self._serve_status,
            },
            _NEEDS,
        )

    async def _serve_routes(self, request: pb.WatchRoutesRequest) -> AsyncIterator[bytes]:
        """Send the set in force, then always the newest; sets that a slow reader missed are skipped.

        While standing by there is none to send.
        """
        if not request.wait:
            self._refuse_standby()
        sent = None
        while True:
            async with self._routes_changed:
                while self._core.is_following or self._routes is sent:
                    await self._routes_changed.wait()
                sent = self._routes
            yield await self._in_bytes(sent)

    async def _in_bytes(self, routes: RouteSet) -> bytes:
        """Return the bytes of a set, encoded once for all watchers, while no other work waits."""
        if self._sent is None or self._sent[0] is not routes:
            self._sent = routes, await asyncio.to_thread(lambda: route_set_message(routes).SerializeToString())
        return self._sent[1]

    async def _until_deciding(self) -> None:
        """Return once this path server is not, or no longer, standing by."""
        async with self._routes_changed:
            await self._routes_changed.wait_for(lambda: not self._core.is_following)

    async def _serve_decisions(self, request: pb.WatchDecisionsRequest) -> AsyncIterator[pb.Decision]:
        await self._until_deciding()
        async for decision in _follow(self._recent, self._subscribers, request.recent):
            yield DECISION.message(decision)

    async def _serve_rebalances(self, request: pb.WatchRebalancesRequest) -> AsyncIterator[pb.Rebalance]:
        await self._until_deciding()
        async for change in _follow(self._recent_changes, self._balance_subscribers, request.recent):
            yield REBALANCE.message(change)

    async def _serve_explanation(self, request: pb.Flow) -> pb.Explanation:
        flow = flow_asked(request)
        self._refuse_standby()
        return await self._answer(lambda: EXPLANATION.message(self._explain(flow)))

    def _explain(self, flow: FlowSpec) -> Explanation:
        now_ns = self._clock.now_ns()
        return replace(
            self._core.why(flow, now_ns),
            records=rows_between(self._recorder, self._core.network.topology, flow),
            figures_age_ns=self._feed_watch.age_ns(now_ns),
            feed_is_silent=self._feed_watch.is_silent(now_ns),
        )

    async def _serve_report_link(self, request: pb.ReportLinkRequest) -> pb.ReportLinkResponse:
        change = link_reported(request)
        self._refuse_standby()
        try:
            await self.link_changed(change)
        except PathError as error:
            raise CallError(grpc.StatusCode.NOT_FOUND, str(error)) from error
        return pb.ReportLinkResponse()

    async def _serve_pin(self, request: pb.PinRequest) -> pb.PinResponse:
        pin, now_ns = pin_asked(request), self._clock.now_ns()
        self._refuse_standby()
        result = await self._answer(lambda: self._core.pin(pin.flow, pin.switches, now_ns))
        await self._publish(result, Round("pin", now_ns))
        return pb.PinResponse()

    async def _serve_release(self, request: pb.Flow) -> pb.ReleaseResponse:
        flow, now_ns = flow_asked(request), self._clock.now_ns()
        self._refuse_standby()
        await self._publish(await self._answer(lambda: self._core.release(flow, now_ns)), Round("release", now_ns))
        return pb.ReleaseResponse()

    async def _serve_drain(self, request: pb.DrainChange) -> pb.DrainEffect:
        asked, now_ns, caller = drain_asked(request), self._clock.now_ns(), CALLER.get()
        self._refuse_standby()
        # Services act for others: the API server for whoever is signed in at the page.
        is_trusted = caller.role in {Role.ADMIN, Role.SERVICE}
        change = replace(asked, by=asked.by if asked.by and is_trusted else caller.name)
        effect, result = await self._answer(lambda: self._core.drain(change, now_ns))
        if result is not None:
            word, note = "drained" if change.drained else "put back", f": {change.note}" if change.note else ""
            LOGGER.info("%s %s by %s%s", change.element, word, change.by, note)
        await self._publish(result, Round("drain", now_ns))
        return DRAIN_EFFECT.message(effect)

    async def _serve_foresee_drain(self, request: pb.DrainChange) -> pb.DrainEffect:
        change, now_ns = drain_asked(request), self._clock.now_ns()
        self._refuse_standby()
        return DRAIN_EFFECT.message(await self._answer(lambda: self._core.foresee_drain(change, now_ns)))

    async def _serve_drains(self, _: pb.GetDrainsRequest) -> pb.DrainList:
        now_ns = self._clock.now_ns()
        self._refuse_standby()
        return DRAIN_LIST.message(await self._answer(lambda: self._core.drains(now_ns)))

    async def _serve_note_links(self, request: links_pb2.LinkStatuses) -> pb.NoteLinksResponse:
        await self.links_noted(statuses_of(request))
        return pb.NoteLinksResponse()

    async def _serve_history(self, request: pb.GetHistoryRequest) -> pb.History:
        query = history_asked(request)
        return await self._answer(lambda: HISTORY.message(self._core.history(query)))

    async def _serve_records(self, request: pb.GetRecordsRequest) -> records_pb2.HopRecords:
        query, topology = records_asked(request), self._core.network.topology
        return await self._answer(lambda: records_message(answer(self._recorder, topology, query)))

    def status(self) -> PathServerStatus:
        """Return the server's current status."""
        now_ns, core = self._clock.now_ns(), self._core
        counters = {**self.counters, **core.counters}
        return PathServerStatus(
            core.routes.version,
            core.flows,
            len(core.routes.routes),
            self._last_step_ns,
            self._feed_watch.age_ns(now_ns),
            counters,
            core.last_problem,
            self._feed_watch.is_silent(now_ns),
            now_ns,
            {node.name: node.node_id for node in core.network.topology.switches},
            len(core.routes.pins),
            self._monitor.load,
            core.drained,
            None if self._lease is None else self._lease.status(),
        )

    def _long_round(self) -> Cause | None:
        """Return the overload of rounds, if they take longer than their interval."""
        interval_ns = self._settings.interval_ns
        if self._round_ns <= interval_ns:
            return None
        round_s, interval_s = self._round_ns / NS_PER_S, interval_ns / NS_PER_S
        text = f"a round of decisions takes {round_s:.2f} s, longer than the interval of {interval_s:.2f} s"
        return Cause("rounds", text, "lower max_flows, or raise interval")

    async def _serve_status(self, _: pb.GetStatusRequest) -> pb.Status:
        return STATUS.message(self.status())

    async def _answer(self, call: Callable[[], T]) -> T:
        """Return the result of a call in the worker, or end the request with its error."""
        try:
            return await self._in_worker(call)
        except PathError as error:
            raise CallError(_code_of(error), str(error)) from error
        except LostLeaseError as error:
            raise CallError(grpc.StatusCode.UNAVAILABLE, str(error)) from error

    def _refuse_standby(self) -> None:
        """Refuse a call that only the active path server of a pair carries out."""
        if self._lease is None or not (self._core.is_following or self._lease.token is None):
            return
        active = self._lease.status()
        where = f" at {active.active_address}" if active.active_address else ""
        who = f": {active.active_holder}{where} is active" if active.active_holder else ""
        raise CallError(grpc.StatusCode.UNAVAILABLE, f"this path server stands by{who}")


def _code_of(error: PathError) -> grpc.StatusCode:
    if isinstance(error, NoSuchPathError):
        return grpc.StatusCode.INVALID_ARGUMENT
    is_refused = isinstance(error, DeadPathError | StaleDrainsError)
    return grpc.StatusCode.FAILED_PRECONDITION if is_refused else grpc.StatusCode.NOT_FOUND


async def _follow(items: Collection[T], subscribers: set[asyncio.Queue[T]], recent: int) -> AsyncIterator[T]:
    """Yield the last `recent` decisions, then all that follow, until the subscriber is gone."""
    queue: asyncio.Queue[T] = asyncio.Queue(MAX_PENDING_DECISIONS)
    # Copy and subscribe without an await between, so that nothing is missed or repeated.
    recorded = list(items)
    subscribers.add(queue)
    try:
        for item in recorded[max(0, len(recorded) - recent) :]:
            yield item
        while True:
            yield await queue.get()
    finally:
        subscribers.discard(queue)
