"""One poll over many queues: frames, events, time, and devices that fail without waking it over and over."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator

import pytest

from dataplane.native import kernel_library
from dataplane.nic import NicPort, PortKind, memory_pair
from dataplane.nic.driver.opening import DEVICE_KINDS
from dataplane.nic.ports.kernels import wait
from tests.dataplane.nic.conftest import Cable, receive
from tests.waiting import wait_until

FRAME = bytes.fromhex("020000000002 020000000001 88b5") + bytes(46)
LONG_NS = 20_000_000_000


@pytest.fixture
def event() -> Iterator[int]:
    descriptor = os.eventfd(0, os.EFD_NONBLOCK)
    yield descriptor
    os.close(descriptor)


def sleep(ports: list[NicPort], timeout_ns: int, event: int = -1) -> int:
    queues = [queue.address for port in ports for queue in port.queues]
    return kernel_library(wait).bind(wait)((ctypes.c_uint64 * len(queues))(*queues), len(queues), event, timeout_ns)


def test_an_event_wakes_as_well_as_a_frame(event: int) -> None:
    a, b = memory_pair()
    with a, b:
        assert sleep([a, b], 1000, event) == 0
        os.eventfd_write(event, 1)
        assert sleep([a, b], LONG_NS, event) == 1
        assert os.eventfd_read(event) == 1
        assert sleep([a, b], 1000, event) == 0
        a.send([FRAME])
        assert sleep([a, b], LONG_NS, event) == 1


@pytest.mark.root
@pytest.mark.parametrize("kind", DEVICE_KINDS, ids=lambda kind: kind.name)
def test_a_device_wakes_when_frames_come(cable: Cable, kind: PortKind) -> None:
    with cable.open("here", kind) as here, cable.open("there", kind) as there:
        assert sleep([here, there], 1_000_000) == 0
        there.send([FRAME])
        assert sleep([there, here], LONG_NS) == 1
        assert receive(here, 1) == [FRAME]
        assert sleep([here, there], 1_000_000) == 0


@pytest.mark.root
@pytest.mark.parametrize("command", ["set", "del"])
@pytest.mark.parametrize("kind", DEVICE_KINDS, ids=lambda kind: kind.name)
def test_a_device_that_fails_wakes_at_most_a_few_times(cable: Cable, kind: PortKind, command: str) -> None:
    with cable.open("here", kind) as here:
        cable.change("here", command, **({"state": "down"} if command == "set" else {}))
        wait_until(lambda: sleep([here], 1_000_000) == 0 == sleep([here], 1_000_000))
        assert here.is_down
        began = time.monotonic()
        assert sleep([here], 50_000_000) == 0
        assert time.monotonic() - began > 0.04
