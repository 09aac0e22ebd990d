"""Time stamps of received frames: every kind of queue, and none where none are wanted."""

from __future__ import annotations

import socket
import time

import numpy as np
import pytest

from dataplane.native import kernel_library, pointer_to
from dataplane.nic import NicPort, PortKind, memory_pair, open_socket_port
from dataplane.nic.driver.opening import DEVICE_KINDS
from dataplane.nic.layouts import TP_HARDWARE_STAMP, TP_USER, PacketV2Header
from dataplane.nic.ports.kernels import receive as receive_frames
from dataplane.nic.ports.queue import PacketQueue
from dataplane.nic.structures import StampKind
from tests.dataplane.nic.conftest import Cable, receive
from tests.waiting import wait_until

FRAME = bytes.fromhex("020000000002 020000000001 88b5") + bytes(46)
ROOM = 256
PAUSE_NS = 2_000_000


class Stamps:
    """Buffers that a port's first queue writes times to."""

    def __init__(self, port: NicPort) -> None:
        self.times_ns = np.zeros(ROOM, np.uint64)
        self.kinds = np.zeros(ROOM, np.uint8)
        port.queues[0].stamps = pointer_to(self.times_ns)
        port.queues[0].stamp_kinds = pointer_to(self.kinds)


def wait_for_clock(time_ns: int) -> None:
    wait_until(lambda: time.time_ns() > time_ns)


@pytest.mark.root
@pytest.mark.parametrize("kind", DEVICE_KINDS, ids=lambda kind: kind.name)
def test_frames_of_a_device_have_the_time_they_came(cable: Cable, kind: PortKind) -> None:
    with cable.open("here") as here, cable.open("there", kind) as there:
        stamps = Stamps(there)
        before_ns = time.time_ns()
        here.send([FRAME] * 3)
        assert len(receive(there, 3)) == 3
        after_ns = time.time_ns()
    # `receive` polls several times, and each result begins at index 0.
    assert set(stamps.kinds.tolist()) == {StampKind.SOFTWARE, StampKind.NONE}
    assert all(before_ns <= stamp <= after_ns for stamp in stamps.times_ns[stamps.kinds > 0].tolist())


@pytest.mark.root
def test_kernel_stamps_arrival_rather_than_reading(cable: Cable) -> None:
    with cable.open("here") as here, cable.open("there") as there:
        stamps = Stamps(there)
        for _ in range(2):
            before_ns = time.time_ns()
            here.send([FRAME])
            wait_for_clock(time.time_ns() + PAUSE_NS)
        assert len(receive(there, 2)) == 2
    assert stamps.kinds.tolist()[:3] == [StampKind.SOFTWARE, StampKind.SOFTWARE, StampKind.NONE]
    assert stamps.times_ns[1] - stamps.times_ns[0] >= PAUSE_NS
    # The second one was read long after its arrival.
    assert before_ns <= stamps.times_ns[1] <= time.time_ns() - PAUSE_NS


@pytest.mark.parametrize(
    ("status", "kind"), [(TP_USER, StampKind.SOFTWARE), (TP_USER | TP_HARDWARE_STAMP, StampKind.HARDWARE)]
)
def test_a_ring_tells_whose_clock_it_was(status: int, kind: StampKind) -> None:
    # A slot as the kernel fills it, since this needs a device with a clock of its own.
    slot_bytes = 256
    memory = np.zeros(slot_bytes, np.uint8)
    header = PacketV2Header.from_address(memory.ctypes.data)
    header.status, header.length, header.captured, header.mac = status, 60, 60, 80
    header.seconds, header.nanoseconds = 1_700_000_000, 123_456_789
    queue = PacketQueue(kind=PortKind.PACKET_V2, shortest_frame=14)
    times_ns, kinds = np.zeros(1, np.uint64), np.zeros(1, np.uint8)
    queue.stamps, queue.stamp_kinds = pointer_to(times_ns), pointer_to(kinds)
    queue.rx[0].start, queue.rx[0].end = memory.ctypes.data, memory.ctypes.data + slot_bytes
    queue.rx[0].slot_bytes, queue.rx[0].slots, queue.rx[0].block_slots = slot_bytes, 1, 1
    queue.rx_cursor[0].slot, queue.rx_cursor[0].left = memory.ctypes.data, 1
    addresses, lengths = np.zeros(1, np.uint64), np.zeros(1, np.uint32)
    assert kernel_library(receive_frames).bind(receive_frames)(queue, addresses, lengths, 1) == 1
    assert (times_ns[0], kinds[0]) == (1_700_000_000_123_456_789, kind)


def test_frames_in_memory_have_the_time_of_their_burst() -> None:
    a, b = memory_pair()
    with a, b:
        stamps = Stamps(b)
        before_ns = time.time_ns()
        a.send([FRAME] * 2)
        assert len(b.receive(8)) == 2
        assert before_ns <= stamps.times_ns[0] == stamps.times_ns[1] <= time.time_ns()
        assert stamps.kinds.tolist()[:3] == [StampKind.SOFTWARE, StampKind.SOFTWARE, StampKind.NONE]


def test_virtual_time_takes_the_place_of_the_clock() -> None:
    a, b = memory_pair()
    with a, b:
        stamps = Stamps(b)
        b.queues[0].virtual_ns = 1_234
        a.send([FRAME])
        b.receive(1)
        assert stamps.times_ns[0] == 1_234


def test_messages_have_the_time_they_were_taken() -> None:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with open_socket_port(near, "near") as a, open_socket_port(far, "far") as b:
        stamps = Stamps(b)
        before_ns = time.time_ns()
        a.send([FRAME])
        assert b.receive(8) == [FRAME]
        assert before_ns <= stamps.times_ns[0] <= time.time_ns()


def test_without_a_place_to_write_to_nothing_is_written() -> None:
    a, b = memory_pair()
    with a, b:
        a.send([FRAME])
        assert b.receive(1) == [FRAME]
        assert b.queues[0].stamps.address == 0
