"""The path server: rounds on a collector's feed, and the answers of service millrace.paths.v1.Paths (paths.proto).

Everything that touches the database runs in a separate thread, so that a slow disk delays neither the feed nor other
answers. Nothing here authenticates: the address is a unix socket, guarded by its folder's permissions, or loopback.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final, Protocol, TypeVar

import grpc

from collectors.feed import links_pb2, records_pb2
from collectors.feed.records import records_message
from collectors.feed.statuses import statuses_of
from controller.common.errors import (
    DeadPathError,
    LostLeaseError,
    NoSuchPathError,
    PathError,
    StaleDrainsError,
)
from controller.common.standby.lease import Lease
from controller.common.tracing import UNTRACED, Traces
from controller.network.intents import FlowSpec
from controller.network.paths.core import PathServerCore
from controller.network.paths.records.queries import answer, rows_between
from controller.network.paths.records.recorder import Recorder
from controller.network.paths.records.values import Explanation, PathServerStatus
from controller.network.paths.service import paths_pb2 as pb
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
)
from controller.network.paths.service.publication import Publication
from controller.network.paths.service.recording import RecordFeed, Recording
from controller.network.paths.service.rounds import Rounds, SnapshotFeed
from controller.network.paths.settings import PathServerSettings
from dataplane.clock import NS_PER_S, Clock
from dataplane.load.monitor import Cause, LoadMonitor
from dataplane.rpc.access.caller import CALLER
from dataplane.rpc.access.permissions import Permission
from dataplane.rpc.access.values import Role
from dataplane.rpc.errors import CallError
from dataplane.rpc.server import RpcServer
from dataplane.rpc.service import Service

LOGGER = logging.getLogger("millrace.paths")

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


class Feed(SnapshotFeed, RecordFeed, Protocol):
    """Source of snapshots and records: `collectors.feed.client.FeedClient`."""


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
        self._lease = lease
        # One thread only, so that no two calls of the core overlap.
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="paths")
        self._publication = Publication(core)
        self._rounds = Rounds(core, self._worker, self._publication, settings, clock=clock, traces=traces)
        self._recording = Recording(recorder, self._worker)
        self._monitor = LoadMonitor(LOGGER, loop_advice=_RELIEF, clock=clock)
        self._monitor.watch_counters(self._counters, _SHED)
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
                self._rounds.start(feed, group)
                if reports_per_s := self._settings.records.reports_per_s:
                    group.create_task(self._recording.receive(feed, reports_per_s), name="receive records")
                    group.create_task(self._record(), name="record")
                group.create_task(self._monitor.run(), name="measure load")
        finally:
            await self._server.stop()
            self._worker.shutdown(wait=True, cancel_futures=True)

    async def _take_over(self) -> None:
        if self._lease is not None:
            await self._rounds.take_over(self._lease)
            await self._server.report_serving(ready=True)

    async def _record(self) -> None:
        await self._rounds.feed_time_known.wait()
        await self._recording.record(self._rounds.feed_time)

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
        if not request.wait:
            self._refuse_standby()
        async for routes in self._publication.encoded_routes():
            yield routes

    async def _serve_decisions(self, request: pb.WatchDecisionsRequest) -> AsyncIterator[pb.Decision]:
        async for decision in self._publication.decisions(request.recent):
            yield DECISION.message(decision)

    async def _serve_rebalances(self, request: pb.WatchRebalancesRequest) -> AsyncIterator[pb.Rebalance]:
        async for change in self._publication.rebalances(request.recent):
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
            figures_age_ns=self._rounds.feed_watch.age_ns(now_ns),
            feed_is_silent=self._rounds.feed_watch.is_silent(now_ns),
        )

    async def _serve_report_link(self, request: pb.ReportLinkRequest) -> pb.ReportLinkResponse:
        change = link_reported(request)
        self._refuse_standby()
        try:
            await self._rounds.link_changed(change)
        except PathError as error:
            raise CallError(grpc.StatusCode.NOT_FOUND, str(error)) from error
        return pb.ReportLinkResponse()

    async def _serve_pin(self, request: pb.PinRequest) -> pb.PinResponse:
        pin = pin_asked(request)
        self._refuse_standby()
        await self._answered(self._rounds.pin(pin.flow, pin.switches))
        return pb.PinResponse()

    async def _serve_release(self, request: pb.Flow) -> pb.ReleaseResponse:
        flow = flow_asked(request)
        self._refuse_standby()
        await self._answered(self._rounds.release(flow))
        return pb.ReleaseResponse()

    async def _serve_drain(self, request: pb.DrainChange) -> pb.DrainEffect:
        asked, caller = drain_asked(request), CALLER.get()
        self._refuse_standby()
        # Services act for others: the API server for whoever is signed in at the page.
        is_trusted = caller.role in {Role.ADMIN, Role.SERVICE}
        change = replace(asked, by=asked.by if asked.by and is_trusted else caller.name)
        return DRAIN_EFFECT.message(await self._answered(self._rounds.drain(change)))

    async def _serve_foresee_drain(self, request: pb.DrainChange) -> pb.DrainEffect:
        change, now_ns = drain_asked(request), self._clock.now_ns()
        self._refuse_standby()
        return DRAIN_EFFECT.message(await self._answer(lambda: self._core.foresee_drain(change, now_ns)))

    async def _serve_drains(self, _: pb.GetDrainsRequest) -> pb.DrainList:
        now_ns = self._clock.now_ns()
        self._refuse_standby()
        return DRAIN_LIST.message(await self._answer(lambda: self._core.drains(now_ns)))

    async def _serve_note_links(self, request: links_pb2.LinkStatuses) -> pb.NoteLinksResponse:
        await self._rounds.links_noted(statuses_of(request))
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
        return PathServerStatus(
            core.routes.version,
            core.flows,
            len(core.routes.routes),
            self._rounds.last_step_ns,
            self._rounds.feed_watch.age_ns(now_ns),
            self._counters(),
            core.last_problem,
            self._rounds.feed_watch.is_silent(now_ns),
            now_ns,
            {node.name: node.node_id for node in core.network.topology.switches},
            len(core.routes.pins),
            self._monitor.load,
            core.drained,
            None if self._lease is None else self._lease.status(),
        )

    def _counters(self) -> dict[str, int]:
        ours = self._rounds, self._publication, self._recording, self._core
        return {name: count for part in ours for name, count in part.counters.items()}

    def _long_round(self) -> Cause | None:
        """Return the overload of rounds, if they take longer than their interval."""
        interval_ns = self._settings.interval_ns
        if self._rounds.round_ns <= interval_ns:
            return None
        round_s, interval_s = self._rounds.round_ns / NS_PER_S, interval_ns / NS_PER_S
        text = f"a round of decisions takes {round_s:.2f} s, longer than the interval of {interval_s:.2f} s"
        return Cause("rounds", text, "lower max_flows, or raise interval")

    async def _serve_status(self, _: pb.GetStatusRequest) -> pb.Status:
        return STATUS.message(self.status())

    async def _answer(self, call: Callable[[], T]) -> T:
        """Return the result of a call in the worker, or end the request with its error."""
        return await self._answered(self._rounds.in_worker(call))

    async def _answered(self, work: Awaitable[T]) -> T:
        """Return the result of a request's work, or end the request with its error."""
        try:
            return await work
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
