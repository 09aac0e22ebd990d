"""Cables in memory: frames arrive in order; a full ring counts drops; a sleeping receiver is woken."""

from __future__ import annotations

import ctypes
import select
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.errors import PortError
from dataplane.native import kernel_library
from dataplane.nic import memory_pair
from dataplane.nic.ports.kernels import commit, flush, is_readable, receive, release, reserve, wait
from dataplane.nic.ports.kernels.memory import arm
from tests.waiting import HANG_S

SLOTS, SLOT_BYTES = 8, 256
Steps = list[tuple[int, list[bytes], int]]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.lists(st.binary(max_size=SLOT_BYTES + 2), max_size=12), st.integers(0, 12))
    )
)
def test_each_end_gets_what_the_other_sent_while_room_lasts(steps: Steps) -> None:
    ends = memory_pair(slots=SLOTS, slot_bytes=SLOT_BYTES)
    lines: list[list[bytes]] = [[], []]
    drops = {"send_queue_full": 0, "too_long": 0, "send_refused": 0}
    for side, frames, limit in steps:
        taken = 0
        for frame in frames:
            if len(frame) > SLOT_BYTES:
                drops["too_long"] += 1
            elif len(lines[side]) == SLOTS:
                drops["send_queue_full"] += 1
            elif not frame:
                drops["send_refused"] += 1
            else:
                lines[side].append(frame)
                taken += 1
        assert ends[side].send(frames) == taken
        assert ends[1 - side].receive(limit) == lines[side][:limit]
        del lines[side][:limit]
    readings = [end.read_counters() for end in ends]
    counted = {name: sum(reading.drops.get(name, 0) for reading in readings) for name in drops}
    assert counted == drops
    for side, line in enumerate(lines):
        assert ends[1 - side].receive(SLOTS) == line
        assert ends[1 - side].read_counters().rx_frames == ends[side].read_counters().tx_frames
    for end in ends:
        end.close()


def test_borrowed_frames_stay_until_they_are_released() -> None:
    library = kernel_library(receive, release, reserve, commit, flush, is_readable)
    take, give_back = library.bind(receive), library.bind(release)
    a, b = memory_pair(slots=4, slot_bytes=64)
    assert a.send([b"one", b"two", b"three", b"four", b"five"]) == 4
    addresses, lengths = (ctypes.c_uint64 * 4)(), (ctypes.c_uint32 * 4)()
    queue = b.queues[0]
    assert library.bind(is_readable)(queue)
    assert take(queue, addresses, lengths, 2) == 2
    assert a.send([b"six"]) == 0
    assert take(queue, addresses, lengths, 4) == 2
    assert [ctypes.string_at(*span) for span in zip(addresses[:2], lengths[:2], strict=True)] == [b"three", b"four"]
    give_back(queue)
    assert not library.bind(is_readable)(queue)
    assert a.send([b"six"]) == 1
    assert b.receive(4) == [b"six"]
    a.close()
    b.close()


def test_a_reservation_may_be_forgotten_and_a_slot_is_bounded() -> None:
    library = kernel_library(reserve, commit, flush)
    ask, put = library.bind(reserve), library.bind(commit)
    a, b = memory_pair(slots=2, slot_bytes=64)
    queue = a.queues[0]
    reservation = ask(queue, 64)
    assert reservation
    assert ask(queue, 10) == reservation
    assert ask(queue, 65) == 0
    ctypes.memmove(reservation, b"frame", 5)
    assert not put(queue, 65)
    assert put(queue, 5)
    assert b.receive(1) == []
    assert library.bind(flush)(queue) == 1
    assert b.receive(1) == [b"frame"]
    assert a.read_counters().drops == {"too_long": 2}
    a.close()
    b.close()


def test_the_descriptor_wakes_a_receiver_that_has_found_nothing() -> None:
    a, b = memory_pair()
    assert select.select([b], [], [], 0)[0] == []
    a.send([b"one"])
    assert select.select([b], [], [], 0)[0] == [b]
    assert b.receive(8) == [b"one"]
    assert select.select([b], [], [], 0)[0] == []
    a.send([b"two"])
    assert select.select([b], [], [], 0)[0] == [b]
    a.close()
    b.close()


def test_descriptor_stays_readable_for_frames_before_arming() -> None:
    """A consumer that takes only some of them must return for the others."""
    asked_to_be_woken = kernel_library(arm).bind(arm)
    a, b = memory_pair()
    a.send([b"one", b"two", b"three"])
    assert not asked_to_be_woken(b.queues[0])
    assert b.receive(1) == [b"one"]
    assert select.select([b], [], [], 0)[0] == [b]
    assert b.receive(8) == [b"two", b"three"]
    assert select.select([b], [], [], 0)[0] == []
    a.send([b"four"])
    assert select.select([b], [], [], 0)[0] == [b]
    a.close()
    b.close()


def test_wait_sleeps_until_a_frame_comes() -> None:
    sleep = kernel_library(wait).bind(wait)
    a, b = memory_pair()
    queues = (ctypes.c_uint64 * 1)(b.queues[0].address)
    assert sleep(queues, 1, -1, 1_000_000) == 0
    ready: list[int] = []
    waiting = threading.Thread(target=lambda: ready.append(sleep(queues, 1, -1, 10_000_000_000)))
    waiting.start()
    a.send([b"frame"])
    waiting.join(HANG_S)
    assert ready == [1]
    assert sleep(queues, 1, -1, 10_000_000_000) == 1
    assert b.receive(1) == [b"frame"]
    a.close()
    b.close()


def test_wait_looks_at_every_port_that_a_switch_can_have() -> None:
    """None of the 511 port numbers may be missed: its frames would go unnoticed."""
    sleep = kernel_library(wait).bind(wait)
    pairs = [memory_pair(slots=1, slot_bytes=64) for _ in range(511)]
    queues = (ctypes.c_uint64 * len(pairs))(*(b.queues[0].address for _, b in pairs))
    for position in (0, 254, 255, 510):
        assert sleep(queues, len(pairs), -1, 0) == 0
        pairs[position][0].send([b"frame"])
        assert sleep(queues, len(pairs), -1, 10_000_000_000) == 1
        assert pairs[position][1].receive(1) == [b"frame"]
    for pair in pairs:
        for port in pair:
            port.close()


def test_an_end_that_closes_is_down_for_the_other() -> None:
    a, b = memory_pair(("left", "right"))
    assert (a.name, b.name) == ("left", "right")
    a.send([b"last"])
    a.close()
    a.close()
    assert b.receive(1) == [b"last"]
    assert b.send([b"lost"]) == 0
    assert b.is_down
    assert b.read_counters().drops == {"port_down": 1}
    assert a.receive(1) == []
    b.close()


@pytest.mark.parametrize(("slots", "slot_bytes"), [(0, 64), (3, 64), (4, 0)])
def test_impossible_sizes_are_refused(slots: int, slot_bytes: int) -> None:
    with pytest.raises(PortError, match=rf"^ports a and b: {slots} slots of {slot_bytes} bytes are not possible$"):
        memory_pair(slots=slots, slot_bytes=slot_bytes)


def test_a_ring_beyond_memory_is_refused() -> None:
    with pytest.raises(PortError, match=r"^ports a and b: a ring of \d+ MiB is more than an eighth"):
        memory_pair(slots=1 << 40, slot_bytes=1 << 14)
