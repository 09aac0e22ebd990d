"""How a driver thread finds out that frames are there, and what that costs and delays."""

from __future__ import annotations

from enum import IntEnum


class Mode(IntEnum):
    """What a driver thread does while its queues are empty."""

    WAITING = 0
    """Sleep until the device has something: an interrupt for each burst."""
    POLLING = 1
    """Poll without a pause: one core, no interrupts."""
    HYBRID = 2
    """Sleep until the first frame after silence, then look at intervals, and sleep again after a quiet time."""
