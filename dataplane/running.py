"""Running a daemon's work until it is to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set; call it inside the running event loop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


async def run_until(work: Coroutine[object, object, None], stop: asyncio.Event) -> None:
    """Run until `stop` is set or the work fails, whose error is then raised (the first, of a group)."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
    error = None if working.cancelled() else working.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is not None:
        raise error


async def until_first_ends(*works: Coroutine[object, object, None]) -> None:
    """Do all of this at the same time until the first of it ends; raise what it raised. The others are cancelled."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        done.pop().result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
