"""The other end of the path server's service: routes for the daemon, decisions and answers for people."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Annotated, Final, TypeVar

import grpc
import grpc.aio
import msgspec

from collectors import codec as collector_codec
from collectors.errors import FeedError
from collectors.values import HopRecord
from controller.backoff import Backoff
from controller.errors import PathError
from controller.intents import FlowSpec, RouteSet
from controller.paths.codec import (
    Explanation,
    History,
    HistoryQuery,
    LinkChange,
    PathServerStatus,
    RecentDecisions,
    RecordQuery,
    pack,
    unpack,
)
from controller.paths.decide import Decision
from controller.paths.server import SERVICE
from controller.paths.settings import ADDRESS
from dataplane.config import Strict
from dataplane.rpc.addresses import client_options, malformed
from dataplane.rpc.call_errors import reason_of

_PERMANENT: Final = frozenset({grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED})
"""Codes that no waiting mends."""

T = TypeVar("T")


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


class RouteClient:
    """Talks to a path server and comes back when it does; use it as an async context manager."""

    def __init__(
        self,
        settings: RouteClientSettings,
        *,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        self._settings, self._sleep, self._on_wait = settings, sleep, on_wait
        self._rng = rng or random.Random()
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> RouteClient:
        problem = malformed(self._settings.address)
        if problem is not None:
            raise PathError(f"path server at {self._settings.address!r}: {problem}")
        options = client_options(self._settings.longest_wait_ns)
        self._channel = grpc.aio.insecure_channel(self._settings.address, options=options)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._channel is not None:
            await self._channel.close(grace=None)
            self._channel = None

    async def routes(self) -> AsyncIterator[RouteSet]:
        """Yield the full set of routes in force, then each newer one, for ever, over restarts of the path server.

        Raises PathError when the two sides speak different versions.
        """
        async for message in self._stream("Routes", None):
            yield unpack(message, RouteSet)

    async def current_routes(self) -> RouteSet:
        """Return the full set of routes in force; raise PathError when the path server cannot be reached."""
        call = self._open().unary_stream(f"/{SERVICE}/Routes", None, None)
        try:
            stream = call(pack(None), timeout=self._settings.timeout_ns / 1e9)
            async for message in stream:
                stream.cancel()
                return unpack(message, RouteSet)
        except grpc.aio.AioRpcError as error:
            raise PathError(f"path server at {self._settings.address}: {reason_of(error)}") from error
        raise PathError(f"path server at {self._settings.address}: it ended the stream without an answer")

    async def decisions(self, recent: int = 20) -> AsyncIterator[Decision]:
        """Yield the last `recent` decisions and then each as it is made; after a restart the last ones come again."""
        async for message in self._stream("Decisions", RecentDecisions(recent)):
            yield unpack(message, Decision)

    async def why(self, flow: FlowSpec) -> Explanation:
        """Return why a flow is where it is; raise PathError for a flow not looked after or a server out of reach."""
        return unpack(await self._ask("Why", flow), Explanation)

    async def history(self, query: HistoryQuery) -> History:
        """Return the decisions that a query selects, newest first; raise PathError."""
        return unpack(await self._ask("History", query), History)

    async def link_changed(self, change: LinkChange) -> None:
        """Tell the path server of a link that went down or came back; raise PathError for one that it does not have."""
        await self._ask("LinkChanged", change)

    async def records(self, query: RecordQuery) -> tuple[HopRecord, ...]:
        """Return the hop records that a query selects, newest first; raise PathError."""
        try:
            return collector_codec.decode_records(await self._ask("Records", query))
        except FeedError as error:
            raise PathError(f"path server at {self._settings.address}: {error}") from error

    async def status(self) -> PathServerStatus:
        """Return the path server's counters; raise PathError when it cannot be reached."""
        return unpack(await self._ask("Status", None), PathServerStatus)

    async def _ask(self, method: str, request: object) -> bytes:
        call = self._open().unary_unary(f"/{SERVICE}/{method}", None, None)
        try:
            message: bytes = await call(pack(request), timeout=self._settings.timeout_ns / 1e9)
        except grpc.aio.AioRpcError as error:
            raise PathError(f"path server at {self._settings.address}: {reason_of(error)}") from error
        return message

    async def _stream(self, method: str, request: object) -> AsyncIterator[bytes]:
        """Yield a method's messages over as many calls as it takes."""
        backoff = Backoff(self._settings.first_wait_ns, self._settings.longest_wait_ns, self._rng)
        while True:
            reason = "the path server ended the stream"
            try:
                async for message in self._open().unary_stream(f"/{SERVICE}/{method}", None, None)(pack(request)):
                    backoff.reset()
                    yield message
            except grpc.aio.AioRpcError as error:
                reason = reason_of(error)
                if error.code() in _PERMANENT:
                    raise PathError(f"path server at {self._settings.address}: {reason}") from error
            seconds = backoff.next_s()
            if self._on_wait is not None:
                self._on_wait(f"waiting {seconds:.1f} s for the path server at {self._settings.address}: {reason}")
            await self._sleep(seconds)

    def _open(self) -> grpc.aio.Channel:
        if self._channel is None:
            raise PathError("the client is used outside its `async with`")
        return self._channel
