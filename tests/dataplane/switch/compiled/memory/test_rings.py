"""Bells: a woken waiter wakes again at the next ring, and only then."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from dataplane.native import kernel_library
from dataplane.native.doorbell import Bell, hear, ring

LIBRARY = kernel_library(ring, hear)
RING: Callable[[Bell], None] = LIBRARY.bind(ring)
HEAR: Callable[[Bell], None] = LIBRARY.bind(hear)


@pytest.fixture
def bell() -> Iterator[Bell]:
    made = Bell(fd=os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), waiting=1)
    yield made
    os.close(made.fd)


def rings(bell: Bell) -> int:
    try:
        return os.eventfd_read(bell.fd)
    except BlockingIOError:
        return 0


def test_many_rings_are_one_until_heard(bell: Bell) -> None:
    RING(bell)
    RING(bell)
    assert rings(bell) == 1
    HEAR(bell)
    RING(bell)
    assert rings(bell) == 1


def test_hearing_leaves_nothing_to_read(bell: Bell) -> None:
    RING(bell)
    HEAR(bell)
    assert rings(bell) == 0


def test_ring_heard_before_its_write_wakes_exactly_once_more(bell: Bell) -> None:
    bell.waiting = 0  # the ringer is between its two steps
    HEAR(bell)
    os.eventfd_write(bell.fd, 1)
    HEAR(bell)
    assert rings(bell) == 0
    RING(bell)
    assert rings(bell) == 1
