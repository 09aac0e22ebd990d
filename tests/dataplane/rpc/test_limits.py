"""What a client may take of a server of ours, at each bound: one line beyond it, and the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from dataplane.rpc.errors import CallError
from dataplane.rpc.limits import in_time


async def said(*messages: str) -> AsyncIterator[str]:
    for message in messages:
        yield message


async def nothing() -> AsyncIterator[str]:
    await asyncio.Event().wait()
    yield ""


def test_who_does_not_begin_is_not_waited_for() -> None:
    async def all_of(messages: AsyncIterator[str]) -> list[str]:
        return [one async for one in in_time(messages, 0.05)]

    assert asyncio.run(all_of(said("a", "b"))) == ["a", "b"]
    assert asyncio.run(all_of(said())) == []
    with pytest.raises(CallError, match=r"^no message within 0\.05 s of the stream's beginning$") as caught:
        asyncio.run(all_of(nothing()))
    assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
