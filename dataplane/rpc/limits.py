"""What servers of ours take from who calls them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, TypeVar

import grpc
import msgspec

from dataplane.config import Strict
from dataplane.rpc.errors import CallError

T = TypeVar("T")

_Bytes = Annotated[int, msgspec.Meta(ge=1024, le=(1 << 31) - 1)]
_Number = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
_Ns = Annotated[int, msgspec.Meta(ge=1_000_000, le=86_400_000_000_000)]


class Limits(Strict, frozen=True):
    """What a server takes of all who call it; what exceeds it is refused with RESOURCE_EXHAUSTED, or waits."""

    request_bytes: _Bytes = 4 << 20
    """The largest request, and the largest message of a stream."""
    answer_bytes: _Bytes = 256 << 20
    """The largest answer."""
    calls: _Number = 4096
    """Calls and streams at a time, of all connections; more are refused."""
    streams: _Number = 256
    """Of them, streams that are followed; more are refused."""
    calls_per_connection: _Number = 1024
    """Those of one connection; more wait at the client."""
    connections: _Number = 1024
    """Connections at a time; more are closed as they come."""
    first_message_ns: _Ns = 10_000_000_000
    """A client that connects, or opens a stream both ways, and says nothing for so long is refused."""
    idle_ns: _Ns = 600_000_000_000
    """A connection without a call is closed after so long; clients come back by themselves."""


async def in_time(requests: AsyncIterator[T], first_ns: int) -> AsyncGenerator[T, None]:
    """Yield what a client says; raise CallError (DEADLINE_EXCEEDED) when it does not begin within `first_ns`."""
    try:
        async with asyncio.timeout(first_ns / 1e9):
            first = await anext(requests, None)
    except TimeoutError:
        late = f"no message within {first_ns / 1e9:g} s of the stream's beginning"
        raise CallError(grpc.StatusCode.DEADLINE_EXCEEDED, late) from None
    if first is None:
        return
    yield first
    async for request in requests:
        yield request
