"""Running a daemon's work until it must stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

LOGGER = logging.getLogger("millrace")

_YOUNG_OBJECTS: Final = 50_000
_OLDER_GENERATIONS: Final = (20, 20)
_SWITCH_S: Final = 0.0005
HANGUP_IGNORED: Final = "SIGHUP has no effect: settings are read at startup"


def stop_on_signals(on_hangup: Callable[[], object] | None = None, stop: asyncio.Event | None = None) -> asyncio.Event:
    """Return an event, `stop` if given, that SIGINT and SIGTERM set; call it inside the running event loop.

    SIGHUP, which would end the process, calls `on_hangup`, or is ignored with a line in the log.
    """
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, on_hangup or ignore_hangup)
    return stop


def ignore_hangup(number: int = 0, frame: FrameType | None = None) -> None:  # noqa: ARG001 - as signal handlers are
    """Log that SIGHUP changes nothing; for an event loop, or as a signal handler."""
    LOGGER.warning(HANGUP_IGNORED)


@contextmanager
def unwinding() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise SystemExit while the block lasts, so that cleanup runs.

    A signal that the program handles or ignores itself stays so, and all do in threads other than the main one.
    """

    def leave(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - the signal module's signature
        raise SystemExit(128 + number)

    taken: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        taken = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def collect_seldom() -> None:
    """Make the garbage collector run seldom, and never on existing objects; for the life of the process.

    A daemon that holds a hundred thousand resources and makes thousands of small values for each decision otherwise
    spends a third of its time scanning the resources, which are in no cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *_OLDER_GENERATIONS)


def ready_promptly(ready: Callable[[str], None]) -> Callable[[str], None]:
    """Return `ready` for a daemon whose event loop must answer while other threads compute.

    From then on garbage is collected seldom, and threads wait for the interpreter a tenth of the usual time at most.
    """

    def begin(where: str) -> None:
        collect_seldom()
        sys.setswitchinterval(_SWITCH_S)
        ready(where)

    return begin


async def run_until(work: Coroutine[object, object, None], stop: asyncio.Event) -> None:
    """Run until `stop` is set or the work fails; then raise its error (the first, of a group)."""
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
    """Run all concurrently until the first ends; raise its error. The others are cancelled."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        done.pop().result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
