"""Ways for a driver thread to learn of new frames, with their costs and delays."""

from __future__ import annotations

from enum import IntEnum


class Mode(IntEnum):
    """Behaviour of a driver thread while its queues are empty."""

    WAITING = 0
    """Sleep until the device has something: an interrupt for each burst."""
    POLLING = 1
    """Poll without a pause: one core, no interrupts."""
    HYBRID = 2
    """Sleep until the first frame after silence, then poll at intervals, and sleep again after a quiet period."""
