"""Waiting for what another thread, another process or the kernel does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_S = 30.0
_POLL_S = 0.002


def wait_until(condition: Callable[[], bool], what: str = "it never comes true") -> None:
    """Return once a condition holds; fail with `what` if it does not in half a minute."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(_POLL_S)
