"""Waiting for what another thread, another process or the kernel does in its own time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TypeVar

from dataplane.local import deadline

T = TypeVar("T")

DEADLINE_S = 30.0
HANG_S = 300.0
"""For waits that cannot be stretched: anything this slow hangs, even on a busy machine."""
_POLL_S = 0.002
_LONGEST_PAUSE_S = 0.25


def comes_true(condition: Callable[[], bool], *, limit_s: float = DEADLINE_S, poll_s: float = _POLL_S) -> bool:
    """Return whether a condition holds within half a minute, or longer on a busy machine."""
    limit = deadline.LocalDeadline(limit_s, "a test waits")
    asked_s = time.monotonic()
    while not condition():
        if limit.has_passed():
            return condition()
        time.sleep(min(_pause_s(poll_s, asked_s), limit.step_s))
        asked_s = time.monotonic()
    return True


def _pause_s(poll_s: float, asked_s: float) -> float:
    """Return how long to wait after a question that began then: four times as long as the answer took.

    Questions that cost time would otherwise take it from what the test waits for.
    """
    return max(poll_s, min(4 * (time.monotonic() - asked_s), _LONGEST_PAUSE_S))


def wait_until(
    condition: Callable[[], bool],
    what: str | Callable[[], object] = "it never comes true",
    *,
    limit_s: float = DEADLINE_S,
    poll_s: float = _POLL_S,
) -> None:
    """Return once a condition holds; fail with `what` otherwise, which may be a function that shows the last state."""
    assert comes_true(condition, limit_s=limit_s, poll_s=poll_s), what() if callable(what) else what


async def until(
    condition: Callable[[], bool] | Callable[[], Awaitable[bool]],
    what: str | Callable[[], object] = "it never comes true",
    *,
    limit_s: float = DEADLINE_S,
    poll_s: float = _POLL_S,
) -> None:
    """Return once a condition, or one that is awaited, holds; fail with `what` as `wait_until` does.

    The event loop runs in between.
    """
    limit = deadline.LocalDeadline(limit_s, "a test waits")
    while True:
        asked_s = time.monotonic()
        holds = condition()
        if await holds if isawaitable(holds) else holds:
            return
        assert not limit.has_passed(), what() if callable(what) else what
        await asyncio.sleep(_pause_s(poll_s, asked_s))


async def finish_within(asked: Awaitable[T], limit_s: float) -> T:
    """Return an answer, as `asyncio.wait_for` does, with a limit that a busy machine stretches."""
    async with deadline.local_timeout(limit_s, "a test"):
        return await asked
