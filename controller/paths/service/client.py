"""The other end of the path server's service: routes for the daemon, decisions and answers for people."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Annotated, Final

import msgspec

from collectors.errors import FeedError
from collectors.feed import codec as collector_codec
from collectors.values import HopRecord, LinkStatus
from controller.errors import PathError
from controller.intents import FlowSpec, RouteSet
from controller.paths.balancing.values import Rebalance
from controller.paths.deciding.decide import Decision
from controller.paths.records.codec import (
    Explanation,
    History,
    HistoryQuery,
    LinkChange,
    LinkNotes,
    PathServerStatus,
    RecentDecisions,
    RecordQuery,
    pack,
    unpack,
)
from controller.paths.service.server import SERVICE
from controller.paths.settings import ADDRESS
from dataplane.config import Strict
from dataplane.rpc.client import Peer, ServiceClient
from dataplane.topology.values import LinkKey

_PEER: Final = Peer(SERVICE, "path server", PathError)


class RouteClientSettings(Strict, frozen=True):
    """Where the path server is, and how to wait for it."""

    address: str = ADDRESS
    """Its gRPC address: unix:PATH or HOST:PORT."""
    first_wait_ns: Annotated[int, msgspec.Meta(ge=1)] = 100_000_000
    """How long to wait before the first new try; each further wait is twice as long."""
    longest_wait_ns: Annotated[int, msgspec.Meta(ge=1)] = 5_000_000_000
    """Waits grow no longer than this."""
    timeout_ns: Annotated[int, msgspec.Meta(ge=1)] = 5_000_000_000
    """How long a question may stay without an answer."""


class RouteClient(ServiceClient):
    """Talks to a path server and comes back when it does; use it as an async context manager."""

    def __init__(
        self,
        settings: RouteClientSettings,
        *,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(_PEER, settings, timeout_s=settings.timeout_ns / 1e9, rng=rng, sleep=sleep, on_wait=on_wait)

    async def routes(self) -> AsyncIterator[RouteSet]:
        """Yield the full set of routes in force, then each newer one, for ever, over restarts of the path server.

        Raises PathError when the two sides speak different versions.
        """
        async for message in self._stream("Routes", pack(None)):
            yield unpack(message, RouteSet)

    async def current_routes(self) -> RouteSet:
        """Return the full set of routes in force; raise PathError when the path server cannot be reached."""
        return unpack(await self._first("Routes", pack(None)), RouteSet)

    async def decisions(self, recent: int = 20) -> AsyncIterator[Decision]:
        """Yield the last `recent` decisions and then each as it is made; after a restart the last ones come again."""
        async for message in self._stream("Decisions", pack(RecentDecisions(recent))):
            yield unpack(message, Decision)

    async def rebalances(self, recent: int = 20) -> AsyncIterator[Rebalance]:
        """Yield the last `recent` changes of weights and then each as it is made; after a restart the last come again.

        Raises PathError when the two sides speak different versions.
        """
        async for message in self._stream("Rebalances", pack(RecentDecisions(recent))):
            yield unpack(message, Rebalance)

    async def why(self, flow: FlowSpec) -> Explanation:
        """Return why a flow is where it is; raise PathError for a flow not looked after or a server out of reach."""
        return unpack(await self._question("Why", flow), Explanation)

    async def history(self, query: HistoryQuery) -> History:
        """Return the decisions that a query selects, newest first; raise PathError."""
        return unpack(await self._question("History", query), History)

    async def link_changed(self, change: LinkChange) -> None:
        """Tell the path server of a link that went down or came back; raise PathError for one that it does not have."""
        await self._question("LinkChanged", change)

    async def note_links(self, statuses: Mapping[LinkKey, LinkStatus]) -> None:
        """Tell the path server the condition of all links that are watched; raise PathError if it cannot be told."""
        await self._question("NoteLinks", LinkNotes(tuple(statuses.items())))

    async def records(self, query: RecordQuery) -> tuple[HopRecord, ...]:
        """Return the hop records that a query selects, newest first; raise PathError."""
        try:
            return collector_codec.decode_records(await self._question("Records", query))
        except FeedError as error:
            raise self._failed(str(error)) from error

    async def status(self) -> PathServerStatus:
        """Return the path server's counters; raise PathError when it cannot be reached."""
        return unpack(await self._question("Status", None), PathServerStatus)

    async def _question(self, method: str, request: object) -> bytes:
        return await self._call(method, pack(request))
