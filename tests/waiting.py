"""Waiting for what another thread, another process or the kernel does in its own time."""

from __future__ import annotations

from collections.abc import Callable

from dataplane.local import deadline

DEADLINE_S = 30.0
_POLL_S = 0.002


def wait_until(condition: Callable[[], bool], what: str = "it never comes true") -> None:
    """Return once a condition holds; fail with `what` if it does not in half a minute, or longer on a busy machine."""
    assert deadline.wait_until(condition, DEADLINE_S, f"waiting to fail with {what!r}", poll_s=_POLL_S), what
