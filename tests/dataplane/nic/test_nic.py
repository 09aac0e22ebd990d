"""A Nic in memory: frames take each possible way, turn by turn, and the counters add up."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dataplane.errors import PortError
from dataplane.native import array_at, atomic_add, kernel, kernel_library, load_acquire, u32, u64
from dataplane.nic import (
    Call,
    Drop,
    FlowRule,
    Mode,
    Nic,
    NicPort,
    NicSettings,
    NicStatistics,
    PortKind,
    RingSettings,
    ToConsumers,
    memory_pair,
    open_nic,
)
from dataplane.nic.driver.driver import Driver
from tests.waiting import HANG_S, wait_until

MS = 1_000_000
STEPPED = NicSettings(threads=0)
PATIENCE_S = 10.0
ROOT = Path(__file__).parents[3]


@kernel
def count_call(context: u64, frame: u64, length: u32, verdict: u64) -> None:
    """Count a frame at the context."""
    array_at(u64, context)[0] += 1


@kernel
def hang_while_asked(context: u64, frame: u64, length: u32, verdict: u64) -> None:
    """Do not return before the context is 0."""
    while load_acquire(array_at(u64, context)[0]) != 0:
        atomic_add(array_at(u64, context)[1], 1)


def udp(port: int, payload: bytes = bytes(18)) -> bytes:
    head = bytes.fromhex("020000000002 020000000001 0800 4500002e 0000 0000 40 11 0000 0a000001 0a000002")
    return head + (1000).to_bytes(2, "big") + port.to_bytes(2, "big") + bytes.fromhex("001a 0000") + payload


@pytest.fixture
def ends() -> Iterator[tuple[NicPort, NicPort]]:
    a, b = memory_pair(("near", "far"))
    with a, b:
        yield a, b


def assert_adds_up(statistics: NicStatistics) -> None:
    dropped = sum(statistics.dropped.values())
    assert statistics.received == statistics.handed_out + statistics.called + dropped
    assert statistics.received == sum(queue.received for queue in statistics.queues)
    assert statistics.received_bytes == sum(queue.received_bytes for queue in statistics.queues)
    assert statistics.handed_out == statistics.manager.handed_out


def has_received(nic: Nic, count: int) -> Callable[[], bool]:
    return lambda: nic.read_statistics().received == count


def test_every_way_of_a_frame_is_counted(ends: tuple[NicPort, NicPort]) -> None:
    near, far = ends
    box = (ctypes.c_uint64 * 1)()
    library = kernel_library(count_call)
    with open_nic(near, STEPPED) as nic:
        reports = nic.add_consumer("reports", buffers={128: 4}, queue_packets=100)
        nic.classifier.insert(FlowRule("reports", {"udp.dst": 1}, ToConsumers("reports"), mark=7))
        nic.classifier.insert(FlowRule("nobody", {"udp.dst": 2}, ToConsumers("nobody")))
        nic.classifier.insert(FlowRule("drop", {"udp.dst": 3}, Drop()))
        call = Call(library.call_address(count_call), ctypes.addressof(box))
        nic.classifier.insert(FlowRule("call", {"udp.dst": 4}, call))
        far.send([udp(1)] * 6 + [udp(2)] * 5 + [udp(3)] * 4 + [udp(4)] * 3 + [udp(9)] * 2)
        while nic.step(1 * MS):
            pass
        packets = reports.receive(10)
        assert [bytes(packet) for packet in packets] == [udp(1)] * 4
        assert {packet.mark for packet in packets} == {7}
        assert {packet.time_ns for packet in packets} == {1 * MS}
        assert box[0] == 3
        statistics = nic.read_statistics()
    assert (statistics.received, statistics.received_bytes) == (20, 20 * 60)
    assert (statistics.handed_out, statistics.called) == (4, 3)
    assert statistics.dropped == {"rule": 6, "closing": 0, "no_consumer": 5, "reserve_spent": 2, "queue_full": 0}
    assert_adds_up(statistics)
    assert (statistics.polls, statistics.empty_polls) == (3, 1)


def test_counters_survive_leaving_consumers_and_closing(ends: tuple[NicPort, NicPort]) -> None:
    near, far = ends
    nic = open_nic(near, STEPPED)
    consumer = nic.add_consumer("reports", queue_packets=2)
    nic.classifier.set_default(ToConsumers("reports"))
    far.send([udp(1)] * 5)
    nic.step(1)
    consumer.close()
    far.send([udp(1)] * 5)
    nic.step(2)
    assert_adds_up(nic.read_statistics())
    dropped = {"rule": 0, "closing": 0, "no_consumer": 5, "reserve_spent": 0, "queue_full": 3}
    assert nic.read_statistics().dropped == dropped
    nic.close()
    nic.close()
    assert_adds_up(nic.read_statistics())
    assert nic.read_statistics().dropped["queue_full"] == 3


def test_nothing_is_stamped_unless_asked(ends: tuple[NicPort, NicPort]) -> None:
    near, far = ends
    with open_nic(near, NicSettings(threads=0, rings=RingSettings(stamps="none"))) as nic:
        consumer = nic.add_consumer("all")
        nic.classifier.set_default(ToConsumers("all"))
        far.send([udp(1)])
        nic.step(5)
        (packet,) = consumer.receive(1)
        assert (packet.time_ns, packet.hardware_time_ns) == (None, None)


def test_a_stepped_nic_does_the_same_each_time() -> None:
    def run() -> NicStatistics:
        near, far = memory_pair()
        with far, open_nic(near, STEPPED) as nic:
            consumer = nic.add_consumer("all", buffers={64: 16})
            nic.classifier.set_default(ToConsumers("all"))
            for turn in range(50):
                far.send([udp(1)] * (turn % 7))
                nic.step(turn * MS)
                if turn % 3 == 0:
                    consumer.receive(20)
            return nic.read_statistics()

    assert run() == run()


def test_packets_of_producers_leave_in_the_next_turn(ends: tuple[NicPort, NicPort]) -> None:
    near, far = ends
    with open_nic(near, STEPPED) as nic:
        producer = nic.add_producer("worker-1")
        position = producer.send(udp(1))
        assert position is not None
        assert nic.send([udp(2), udp(3)]) == 2
        assert not producer.sent(position)
        assert nic.step(1) == 3
        assert producer.sent(position)
        assert sorted(far.receive(10)) == [udp(1), udp(2), udp(3)]
        assert nic.read_statistics().sent == 3


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.name)
def test_what_the_device_has_no_room_for_stays_in_line(mode: Mode) -> None:
    near, far = memory_pair(("near", "far"), slots=4)
    with far, open_nic(near, NicSettings(mode=mode, quiet_us=0)) as nic:
        assert nic.send([udp(number) for number in range(20)]) == 20
        got: list[bytes] = []

        def has_come() -> bool:
            assert nic.read_statistics().sent <= len(got) + 8
            got.extend(far.receive(4))
            return len(got) == 20

        wait_until(has_come)
        assert got == [udp(number) for number in range(20)]
        assert nic.read_statistics().sent == 20
        assert sum(nic.read_statistics().not_sent.values()) == 0


def test_a_python_function_gets_frames_of_its_rule(ends: tuple[NicPort, NicPort]) -> None:
    near, far = ends
    got: list[bytes] = []
    with open_nic(near) as nic:
        nic.classifier.set_default(Call(lambda frame, verdict: got.append(frame)))
        far.send([udp(1), udp(2)])
        wait_until(lambda: nic.read_statistics().called == 2)
    assert got == [udp(1), udp(2)]


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.name)
def test_threads_deliver_and_end_in_every_mode(ends: tuple[NicPort, NicPort], mode: Mode) -> None:
    near, far = ends
    with open_nic(near, NicSettings(mode=mode, cpus=(0,))) as nic:
        (number,) = nic.thread_ids
        assert number != threading.get_native_id()
        consumer = nic.add_consumer("all")
        nic.classifier.set_default(ToConsumers("all"))
        received = 0
        for sent in range(100, 600, 100):
            far.send([udp(1)] * 100)
            while received < sent:
                packets = consumer.receive(64, PATIENCE_S)
                assert packets
                received += len(packets)
        assert received == 500 == nic.read_statistics().handed_out
        position = nic.add_producer("one").send(udp(2))
        assert position is not None
        began = time.monotonic()
    assert time.monotonic() - began < PATIENCE_S / 2
    assert nic.read_statistics().cpu_seconds > 0
    assert_adds_up(nic.read_statistics())


def test_a_waiting_thread_is_woken_by_producers_alone(ends: tuple[NicPort, NicPort]) -> None:
    near, far = ends
    with open_nic(near, NicSettings(quiet_us=0)) as nic:
        producer = nic.add_producer("worker")
        for number in range(3):
            position = producer.send(udp(number))
            assert position is not None
            assert producer.wait_sent(position, PATIENCE_S)
        statistics = nic.read_statistics()
        assert (statistics.sent, statistics.interrupts) == (3, 0)
        assert statistics.polls <= 20
        assert far.receive(10) == [udp(0), udp(1), udp(2)]


def test_after_silence_one_interrupt_then_polls(ends: tuple[NicPort, NicPort]) -> None:
    near, far = ends
    with open_nic(near, NicSettings(quiet_us=1_000_000)) as nic:
        nic.classifier.set_default(Drop())
        wait_until(lambda: nic.read_statistics().threads[0].is_waiting)
        for count in range(1, 20):
            far.send([udp(1)] * 10)
            wait_until(has_received(nic, 10 * count))
        statistics = nic.read_statistics()
        assert statistics.interrupts == 1
        assert statistics.pauses > 20


def test_a_function_that_hangs_is_named_and_nothing_is_freed(ends: tuple[NicPort, NicPort]) -> None:
    near, far = ends
    box = (ctypes.c_uint64 * 2)(1, 0)
    library = kernel_library(hang_while_asked)
    nic = open_nic(near)
    nic.classifier.set_default(Call(library.call_address(hang_while_asked), ctypes.addressof(box)))
    far.send([udp(1)])
    wait_until(lambda: box[1] > 0)
    driver: Driver = nic._driver
    with pytest.raises(PortError, match=r"interface near: nic-near-0 does not end: a function"):
        driver.close(timeout_s=0.05)
    assert not near.is_down
    box[0] = 0
    nic.close()
    assert nic.read_statistics().called == 1


def test_a_function_of_a_rule_cannot_close_its_own_thread(ends: tuple[NicPort, NicPort]) -> None:
    near, far = ends
    refusals: list[str] = []

    def close(frame: bytes, verdict: object) -> None:
        try:
            nic.close()
        except PortError as error:
            refusals.append(str(error))

    nic = open_nic(near)
    nic.classifier.set_default(Call(close))
    far.send([udp(1)])
    wait_until(lambda: len(refusals) == 1)
    assert refusals[0].startswith("interface near: nic-near-0 does not end")
    nic.close()
    assert nic.read_statistics().called == 1


def test_a_device_that_wakes_nobody_is_polled(ends: tuple[NicPort, NicPort]) -> None:
    near, far = ends
    near.queues[0].fd = -1
    with pytest.raises(PortError, match="interface near: a MEMORY device raises no wake-up"):
        open_nic(near, NicSettings(mode=Mode.WAITING))
    with memory_pair(("near", "far"))[0] as other, far:
        other.queues[0].fd = -1
        with open_nic(other, NicSettings(quiet_us=0)) as nic:
            wait_until(lambda: nic.read_statistics().polls > 10)
            assert nic.read_statistics().wakeups == 0


def test_a_nic_that_nobody_holds_ends_its_threads(ends: tuple[NicPort, NicPort]) -> None:
    nic = open_nic(ends[0])
    thread = nic._driver.threads[0]
    del nic
    gc.collect()
    assert thread.join(PATIENCE_S)


def test_a_program_that_ends_without_closing_ends() -> None:
    program = """
from dataplane.nic import Mode, NicSettings, ToConsumers, memory_pair, open_nic
near, far = memory_pair()
nic = open_nic(near, NicSettings(mode=Mode.POLLING))
consumer = nic.add_consumer("all")
nic.classifier.set_default(ToConsumers("all"))
far.send([bytes(60)] * 100)
print(len(consumer.receive(5, 10.0)) > 0)
"""
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_statistics_add_up_while_the_thread_runs(ends: tuple[NicPort, NicPort]) -> None:
    near, far = ends
    with open_nic(near, NicSettings(mode=Mode.POLLING)) as nic:
        nic.classifier.insert(FlowRule("drop", {"udp.dst": 3}, Drop()))
        nic.classifier.set_default(ToConsumers("nobody"))
        sent = 0
        while sent < 20_000:
            sent += far.send([udp(1), udp(2), udp(3)] * 20)
            (thread,) = nic.read_statistics().threads
            assert thread.received == thread.not_handed_out + thread.dropped_by_rule
            assert thread.received_bytes == thread.received * 60
        wait_until(lambda: nic.read_statistics().received == sent)
        assert_adds_up(nic.read_statistics())


def test_a_nic_with_threads_is_not_stepped(ends: tuple[NicPort, NicPort]) -> None:
    with open_nic(ends[0]) as nic, pytest.raises(PortError, match="interface near: its own threads"):
        nic.step(1)


@pytest.mark.parametrize("act", [lambda nic: nic.send([b"x" * 60]), lambda nic: nic.add_consumer("late")])
def test_a_closed_nic_takes_nothing_more(ends: tuple[NicPort, NicPort], act: Callable[[Nic], object]) -> None:
    nic = open_nic(ends[0])
    nic.close()
    with pytest.raises(PortError, match="closed"):
        act(nic)


def test_a_processor_that_is_not_there_is_named(ends: tuple[NicPort, NicPort]) -> None:
    with pytest.raises(PortError, match=r"^interface near: nic-near-0 cannot run on processor 900: "):
        open_nic(ends[0], NicSettings(cpus=(900,)))


def test_a_port_that_cannot_be_had_is_one_line() -> None:
    with pytest.raises(PortError, match=r"^interface nothing0: no such device in this network namespace$"):
        open_nic("nothing0", NicSettings(PortKind.PACKET_V2))
