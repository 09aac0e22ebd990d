"""Several asynchronous sources as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def merged(sources: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """Yield the items of all sources as they come; raise the first failure, end with the first that ends.

    A reader that is slow delays the sources: one item of each waits for it.
    """
    queue: asyncio.Queue[T] = asyncio.Queue(1)

    async def pour(source: AsyncGenerator[T, None]) -> None:
        async with aclosing(source) as items:
            async for item in items:
                await queue.put(item)

    pouring = [asyncio.create_task(pour(source)) for source in sources]
    try:
        while True:
            taking = asyncio.create_task(queue.get())
            try:
                done, _ = await asyncio.wait((taking, *pouring), return_when=asyncio.FIRST_COMPLETED)
            finally:
                taking.cancel()
            if taking not in done:
                done.pop().result()
                return
            yield taking.result()
    finally:
        for task in pouring:
            task.cancel()
        await asyncio.gather(*pouring, return_exceptions=True)
