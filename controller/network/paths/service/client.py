"""The path server's client: routes for the daemon, decisions and answers for users."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Annotated, Final

import grpc
import grpc.aio
import msgspec

from collectors.feed import records_pb2
from collectors.feed.records import records_of
from collectors.feed.statuses import statuses_message
from collectors.values import HopRecord, LinkStatus
from controller.common.errors import PathError
from controller.network.intents import FlowSpec, Route, RouteSet
from controller.network.paths.balancing.values import Rebalance
from controller.network.paths.deciding.decide import Decision
from controller.network.paths.records.values import (
    DrainChange,
    DrainEffect,
    DrainList,
    Explanation,
    History,
    HistoryQuery,
    LinkChange,
    PathServerStatus,
    RecordQuery,
)
from controller.network.paths.service import paths_pb2 as pb
from controller.network.paths.service.messages import (
    DECISION,
    DRAIN_CHANGE,
    DRAIN_EFFECT,
    DRAIN_LIST,
    EXPLANATION,
    FLOW,
    HISTORY,
    HISTORY_QUERY,
    LINK_CHANGE,
    PIN,
    REBALANCE,
    RECORD_QUERY,
    STATUS,
    route_set_of,
)
from controller.network.paths.settings import ADDRESS
from dataplane.clock import NS_PER_S
from dataplane.config import Strict
from dataplane.event_loop.merging import merged
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.client import PairClient, Peer, ServiceClient
from dataplane.topology.values import LinkKey

_NEXT: Final = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
"""Codes after which the other path server of a pair is asked."""
_PEER: Final = Peer("millrace.paths.v1.Paths", "path server", PathError)


class RouteClientSettings(Strict, frozen=True):
    """Settings of a path server client: the server's address, and how long to wait for it."""

    address: str = ADDRESS
    """Its gRPC address: unix:PATH, HOST:PORT or plain:HOST:PORT; of a pair both, separated by a comma."""
    tls: TlsSettings | None = None
    """Certificates for HOST:PORT; null: those that the environment names."""
    first_wait_ns: Annotated[int, msgspec.Meta(ge=1)] = 100_000_000
    """Wait before the first retry; each further wait is twice as long."""
    longest_wait_ns: Annotated[int, msgspec.Meta(ge=1)] = 1_000_000_000
    """Waits grow no longer than this."""
    timeout_ns: Annotated[int, msgspec.Meta(ge=1)] = 5_000_000_000
    """Timeout of a request."""


class RouteClient(PairClient):
    """Client of a path server, which reconnects; use it as an async context manager."""

    def __init__(
        self,
        settings: RouteClientSettings,
        *,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_wait: Callable[[str], None] | None = None,
        on_answer: Callable[[str], None] | None = None,
    ) -> None:
        timeout_s = settings.timeout_ns / NS_PER_S
        super().__init__(
            _PEER, settings, timeout_s=timeout_s, rng=rng, sleep=sleep, on_wait=on_wait, on_answer=on_answer
        )
        addresses = settings.address.split(",")
        self._pair: list[RouteClient] = []
        if len(addresses) > 1:
            self._pair = [
                RouteClient(
                    msgspec.structs.replace(settings, address=address.strip()),
                    rng=rng,
                    sleep=sleep,
                    on_wait=on_wait,
                    on_answer=on_answer,
                )
                for address in addresses
            ]
        self._last = 0
        self._token = 0
        self.stale_sets = 0
        """Sets of routes refused because they are of a path server that is no longer active."""

    async def routes(self) -> AsyncGenerator[RouteSet, None]:
        """Yield the full set of routes in force, then each newer one, endlessly, across restarts of the path server.

        Of several path servers all are followed. A set with a lower fencing token than an earlier one is refused.
        Raises PathError when the two sides speak different versions.
        """
        async with aclosing(self._all_routes()) as sets:
            async for routes in sets:
                if routes.token < self._token:
                    self.stale_sets += 1
                    continue
                self._token = routes.token
                yield routes

    async def _all_routes(self) -> AsyncGenerator[RouteSet, None]:
        of_each = [client._own_routes(wait=True) for client in self._pair]  # noqa: SLF001 - its own
        async with aclosing(merged(of_each) if of_each else self._own_routes(wait=False)) as sets:
            async for routes in sets:
                yield routes

    async def _own_routes(self, *, wait: bool) -> AsyncGenerator[RouteSet, None]:
        async for message in self._follow("WatchRoutes", pb.WatchRoutesRequest(wait=wait), pb.RouteSet):
            with self._decoding():
                routes = route_set_of(message)
            yield routes

    async def _call(self, method: str, request: bytes) -> bytes:
        if self._pair:
            return await self._of_active(method, request, ServiceClient._call)  # noqa: SLF001 - its own
        return await super()._call(method, request)

    async def _first(self, method: str, request: bytes) -> bytes:
        if self._pair:
            return await self._of_active(method, request, ServiceClient._first)  # noqa: SLF001 - its own
        return await super()._first(method, request)

    async def _stream(self, method: str, request: bytes) -> AsyncGenerator[bytes, None]:
        streams = [client._stream(method, request) for client in self._pair]  # noqa: SLF001 - its own
        async with aclosing(merged(streams) if streams else super()._stream(method, request)) as messages:
            async for message in messages:
                yield message

    async def _of_active(
        self, method: str, request: bytes, ask: Callable[[ServiceClient, str, bytes], Awaitable[bytes]]
    ) -> bytes:
        """Return the answer of the path server that answered last, or else of the next that carries out the call."""
        problem: PathError | None = None
        for _ in self._pair:
            try:
                return await ask(self._pair[self._last], method, request)
            except PathError as error:
                cause = error.__cause__
                if not isinstance(cause, grpc.aio.AioRpcError) or cause.code() not in _NEXT:
                    raise
                problem = problem or error
                self._last = (self._last + 1) % len(self._pair)
        assert problem is not None, "a pair has members"
        raise problem

    async def current_routes(self) -> RouteSet:
        """Return the full set of routes in force; raise PathError when the path server cannot be reached."""
        message = await self._ask_first("WatchRoutes", pb.WatchRoutesRequest(), pb.RouteSet)
        with self._decoding():
            return route_set_of(message)

    async def decisions(self, recent: int = 20) -> AsyncIterator[Decision]:
        """Yield the last `recent` decisions and then each as it is made; after a restart the last ones are repeated."""
        request = pb.WatchDecisionsRequest(recent=recent)
        async for message in self._follow("WatchDecisions", request, pb.Decision):
            with self._decoding():
                decision = DECISION.value(message)
            yield decision

    async def rebalances(self, recent: int = 20) -> AsyncIterator[Rebalance]:
        """Yield the last `recent` changes of weights, then each as it is made; after a restart the last are repeated.

        Raises PathError when the two sides speak different versions.
        """
        request = pb.WatchRebalancesRequest(recent=recent)
        async for message in self._follow("WatchRebalances", request, pb.Rebalance):
            with self._decoding():
                change = REBALANCE.value(message)
            yield change

    async def why(self, flow: FlowSpec) -> Explanation:
        """Explain a flow's path; raise PathError for an unmanaged flow or an unreachable server."""
        with self._decoding():
            return EXPLANATION.value(await self._ask("Explain", self._request(FLOW, flow), pb.Explanation))

    async def history(self, query: HistoryQuery) -> History:
        """Return the decisions that a query selects, newest first; raise PathError."""
        with self._decoding():
            return HISTORY.value(await self._ask("GetHistory", self._request(HISTORY_QUERY, query), pb.History))

    async def link_changed(self, change: LinkChange) -> None:
        """Report a link that went down or came back; raise PathError for an unknown one."""
        await self._ask("ReportLink", self._request(LINK_CHANGE, change), pb.ReportLinkResponse)

    async def pin(self, flow: FlowSpec, path: tuple[str, ...]) -> None:
        """Pin a flow to a path until it is released; raise PathError for an impossible flow or path."""
        await self._ask("Pin", self._request(PIN, Route(flow, path)), pb.PinResponse)

    async def release(self, flow: FlowSpec) -> None:
        """Return a pinned flow to the path server; raise PathError for one that is not pinned."""
        await self._ask("Release", self._request(FLOW, flow), pb.ReleaseResponse)

    async def drain(self, change: DrainChange) -> DrainEffect:
        """Drain an element or put it back; raise PathError for an impossible change."""
        return await self._drain("Drain", change)

    async def foresee_drain(self, change: DrainChange) -> DrainEffect:
        """Return what `drain` would do now; raise PathError for an impossible change."""
        return await self._drain("ForeseeDrain", change)

    async def _drain(self, method: str, change: DrainChange) -> DrainEffect:
        with self._decoding():
            return DRAIN_EFFECT.value(await self._ask(method, self._request(DRAIN_CHANGE, change), pb.DrainEffect))

    async def drains(self) -> DrainList:
        """Return the drained elements and the flows that stay on them; raise PathError."""
        with self._decoding():
            return DRAIN_LIST.value(await self._ask("GetDrains", pb.GetDrainsRequest(), pb.DrainList))

    async def note_links(self, statuses: Mapping[LinkKey, LinkStatus]) -> None:
        """Report the condition of all watched links to the path server; raise PathError if that fails.

        Of several each is told, and those that stand by may be away.
        """
        if not self._pair:
            await self._ask("NoteLinks", statuses_message(statuses), pb.NoteLinksResponse)
            return
        answers = await asyncio.gather(*(one.note_links(statuses) for one in self._pair), return_exceptions=True)
        problems = [answer for answer in answers if answer is not None]
        faults = [problem for problem in problems if not isinstance(problem, PathError)]
        if faults or len(problems) == len(self._pair):
            raise (faults or problems)[0]

    async def records(self, query: RecordQuery) -> tuple[HopRecord, ...]:
        """Return the hop records that a query selects, newest first; raise PathError."""
        with self._decoding():
            return records_of(await self._ask("GetRecords", self._request(RECORD_QUERY, query), records_pb2.HopRecords))

    async def status(self) -> PathServerStatus:
        """Return the path server's counters, of a pair the active one's; raise PathError when it cannot be reached."""
        if self._pair:
            answers = await asyncio.gather(*(one.status() for one in self._pair), return_exceptions=True)
            roles = [answer for answer in answers if isinstance(answer, PathServerStatus)]
            active = [role for role in roles if role.standby is None or role.standby.is_active]
            if roles:
                return (active or roles)[0]
            raise next(answer for answer in answers if isinstance(answer, BaseException))
        with self._decoding():
            return STATUS.value(await self._ask("GetStatus", pb.GetStatusRequest(), pb.Status))
