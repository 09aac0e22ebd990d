"""Lets coroutines call netlink code: pyroute2 runs its own event loop, and loops cannot be nested."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def run_off_loop(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that runs on a new thread if the caller's thread runs an event loop."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if not _is_in_a_loop():
            return function(*args, **kwargs)
        return on_a_thread(lambda: function(*args, **kwargs))

    return call


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def on_a_thread(function: Callable[[], T], name: str = "off-loop") -> T:
    """Run on a new thread, in the caller's namespaces, and return or raise the result."""
    results: list[T] = []
    errors: list[BaseException] = []

    def capture() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again on the caller's thread
            errors.append(error)

    thread = threading.Thread(target=capture, name=name)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
