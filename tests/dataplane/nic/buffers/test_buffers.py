"""Buffers: the smallest that holds a frame, else several; no byte is written outside of them, none is freed twice."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest

from dataplane.errors import PortError
from dataplane.native import kernel_library
from dataplane.nic.buffers.buffer_pools import HEAD_BYTES, BufferReading, default_sizes, stride_bytes
from dataplane.nic.buffers.kernels.software_queues import acquire, give_back, give_back_all
from dataplane.nic.buffers.packets import _HEAD
from dataplane.nic.manager.packet_manager import PacketManager
from dataplane.nic.structures import Buffer, Stamp, Verdict
from tests.dataplane.nic.bursts import Driver, free_addresses, kernels

LONGEST = 300


def manager_of(longest_frame: int = 1514, memory_bytes: int | None = None) -> PacketManager:
    return PacketManager(1, name="test", longest_frame=longest_frame, memory_bytes=memory_bytes)


@pytest.mark.parametrize(
    ("length", "sizes"),
    [(0, [64]), (1, [64]), (64, [64]), (65, [256]), (256, [256]), (257, [256, 64]), (900, [256] * 3 + [256])],
)
def test_frame_takes_the_smallest_fitting_buffer_or_several(length: int, sizes: list[int]) -> None:
    manager = manager_of()
    consumer = manager.add_consumer("c", buffers={256: 4, 64: 4})
    assert Driver(manager).give(bytes(length)) == [True]
    (packet,) = consumer.receive(2)
    taken = {size: 4 - free for size, free in free_by_size(consumer.read().queues[0].buffers).items()}
    assert taken == {size: sizes.count(size) for size in (64, 256)}
    assert sum(map(len, packet.segments)) == len(packet) == length
    manager.close()


def free_by_size(buffers: tuple[BufferReading, ...]) -> dict[int, int]:
    return {buffer.size_bytes: buffer.free for buffer in buffers}


def test_buffer_sizes_stand_in_for_each_other_when_exhausted() -> None:
    manager = manager_of()
    consumer = manager.add_consumer("c", buffers={64: 3, 256: 1})
    driver = Driver(manager)
    assert driver.give(b"a" * 200, b"b" * 150) == [True, True]
    assert [len(packet.segments) for packet in consumer.receive(4)] == [1, 3]
    assert driver.give(b"c" * 60) == [True]
    assert [len(packet.segments) for packet in consumer.receive(4)] == [1]
    manager.close()


def test_no_byte_is_written_outside_of_a_buffer() -> None:
    manager = manager_of()
    consumer = manager.add_consumer("c", buffers={64: 4, 100: 4})
    driver, canary = Driver(manager), 0xA5
    struct = consumer.queues[0].memory[0]
    buffers = [Buffer.from_address(address) for address in free_addresses(struct)]
    ends = [buffer.address + stride_bytes(buffer.capacity) for buffer in buffers]
    for length in [*range(LONGEST), 656]:
        for buffer, end in zip(buffers, ends, strict=True):
            ctypes.memset(buffer.data, canary, end - buffer.data)
        frame = bytes(index & 127 for index in range(length))
        assert driver.give(frame) == [True]
        (packet,) = consumer.receive(1)
        assert bytes(packet) == frame
        packet.release()
        written = 0
        for buffer, end in zip(buffers, ends, strict=True):
            content = ctypes.string_at(buffer.data, end - buffer.data)
            assert content[buffer.capacity :] == bytes([canary]) * (len(content) - buffer.capacity)
            written += sum(byte != canary for byte in content)
        assert written == length
    assert driver.give(bytes(657)) == [False]
    manager.close()


def test_no_byte_beyond_the_frame_length_is_read_or_written() -> None:
    page = mmap.PAGESIZE
    guarded = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(guarded))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + page), ctypes.c_size_t(page), 0) == 0
    manager = manager_of()
    consumer = manager.add_consumer("c", buffers={64: 8, 256: 8})
    for length in range(LONGEST):
        ctypes.memset(start, 0, page)
        frame = (ctypes.c_ubyte * length).from_address(start + page - length) if length else b""
        ctypes.memset(start + page - length, length & 255, length)
        assert give_raw(Driver(manager), frame, length)
        row = np.ctypeslib.as_array((ctypes.c_ubyte * max(length, 1)).from_address(start + page - max(length, 1)))
        ctypes.memset(start, 0, page)
        lengths = np.zeros(1, np.uint32)
        assert consumer.receive_into(row.reshape(1, -1), lengths) == 1
        assert lengths[0] == length
        assert bytes(row[:length]) == bytes([length & 255]) * length
        assert ctypes.string_at(start, page - max(length, 1)) == bytes(page - max(length, 1))
    libc.mprotect(ctypes.c_void_p(start + page), ctypes.c_size_t(page), mmap.PROT_READ | mmap.PROT_WRITE)
    manager.close()


def give_raw(driver: Driver, frame: object, length: int) -> bool:
    with driver.burst():
        return kernels().distribute(driver.thread, Verdict(), frame, length, Stamp())


def test_the_buffer_used_last_is_used_next() -> None:
    manager = manager_of()
    consumer = manager.add_consumer("c", buffers={64: 100})
    places = set()
    for _ in range(20):
        Driver(manager).give(b"x")
        (packet,) = consumer.receive(1)
        places.add(packet._address)
        packet.release()
    assert len(places) == 1
    manager.close()


def test_what_is_not_lent_is_refused_and_counted() -> None:
    manager = manager_of()
    consumer, other = (manager.add_consumer(name, buffers={64: 8}) for name in ("c", "d"))
    driver = Driver(manager)
    driver.give(b"x" * 100, b"y")
    bound = kernel_library(acquire, give_back, give_back_all)
    take, back, back_all = bound.bind(acquire), bound.bind(give_back), bound.bind(give_back_all)
    queue, packets = consumer.queues[0], (ctypes.c_uint64 * 4)()
    assert take(queue, packets, 1) == 1
    second = Buffer.from_address(packets[0]).next
    waiting = queue.packets[0].slots[1]
    before = sorted(free_addresses(queue.memory[0]))
    for wrong in (0, 64, second, waiting, free_addresses(queue.memory[0])[0]):
        assert not back(queue, wrong)
    assert not back(other.queues[0], packets[0])
    assert sorted(free_addresses(queue.memory[0])) == before
    assert back(queue, packets[0])
    assert not back(queue, packets[0])
    assert take(queue, packets, 4) == 1
    packets[1] = packets[0]
    assert back_all(queue, packets, 2) == 1
    assert consumer.read().queues[0].refused_releases == 7
    assert other.read().queues[0].refused_releases == 1
    assert len(set(free_addresses(queue.memory[0]))) == 8
    manager.close()


@pytest.mark.parametrize("longest", [60, 256, 1514, 2048, 9018, 65_549])
def test_default_sizes_hold_the_longest_frame_and_add_up(longest: int) -> None:
    sizes = default_sizes(1000, longest)
    assert sum(sizes.values()) == 1000
    assert max(sizes) >= longest
    assert default_sizes(1, longest)
    manager = manager_of(longest_frame=longest)
    consumer = manager.add_consumer("c", buffers=8)
    assert Driver(manager).give(bytes(longest)) == [True]
    assert len(consumer.receive(1)[0]) == longest
    manager.close()


@pytest.mark.parametrize("sizes", [{}, {0: 5}, {64: 0}, {1: 1, 2: 1, 3: 1, 4: 1, 5: 1}, {1 << 40: 1}, {64: -1}])
def test_sizes_that_are_not_possible_are_refused(sizes: dict[int, int]) -> None:
    manager = manager_of()
    with pytest.raises(PortError, match=r"^consumer c: "):
        manager.add_consumer("c", buffers=sizes)
    with pytest.raises(PortError, match=r"^producer p: "):
        manager.add_producer("p", buffers=sizes)
    assert manager.read().memory_bytes == 0
    manager.close()


def test_memory_beyond_the_limit_is_refused_and_freed_is_reused() -> None:
    manager = manager_of(memory_bytes=1 << 20)
    first = manager.add_consumer("first", buffers={1024: 600})
    with pytest.raises(
        PortError, match=r"^consumer second: 0\.7 MiB of buffers do not fit: 0\.3 MiB of 1\.0 MiB are left$"
    ):
        manager.add_consumer("second", buffers={1024: 600})
    with pytest.raises(PortError, match=r"^producer third: "):
        manager.add_producer("third", buffers={1024: 600})
    first.close()
    manager.collect()
    assert manager.read().memory_bytes == 0
    manager.add_consumer("second", buffers={1024: 600})
    manager.close()


def test_python_reads_the_head_of_a_buffer_as_it_is_laid_out() -> None:
    assert _HEAD.size == ctypes.sizeof(Buffer) <= HEAD_BYTES
