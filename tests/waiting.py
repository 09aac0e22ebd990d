"""Waiting for what another thread, another process or the kernel does in its own time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from dataplane.local import deadline

T = TypeVar("T")

DEADLINE_S = 30.0
HANG_S = 300.0
"""For waits that cannot be stretched: what takes so long hangs, on a busy machine, too."""
_POLL_S = 0.002


def wait_until(condition: Callable[[], bool], what: str = "it never comes true") -> None:
    """Return once a condition holds; fail with `what` if it does not in half a minute, or longer on a busy machine."""
    assert deadline.wait_until(condition, DEADLINE_S, f"waiting to fail with {what!r}", poll_s=_POLL_S), what


async def finish_within(asked: Awaitable[T], limit_s: float) -> T:
    """Return an answer, as `asyncio.wait_for` does, with a limit that a busy machine stretches."""
    async with deadline.local_timeout(limit_s, "a test"):
        return await asked
