"""What servers of ours take from who calls them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final, TypeVar

import grpc

from dataplane.rpc.errors import CallError

T = TypeVar("T")

FIRST_MESSAGE_S: Final = 10.0
"""How long a client may leave a stream that it has opened without its first message."""


async def in_time(requests: AsyncIterator[T], first_s: float) -> AsyncGenerator[T, None]:
    """Yield what a client says; raise CallError (DEADLINE_EXCEEDED) when it does not begin within `first_s`."""
    try:
        async with asyncio.timeout(first_s):
            first = await anext(requests, None)
    except TimeoutError:
        late = f"no message within {first_s:g} s of the stream's beginning"
        raise CallError(grpc.StatusCode.DEADLINE_EXCEEDED, late) from None
    if first is None:
        return
    yield first
    async for request in requests:
        yield request
