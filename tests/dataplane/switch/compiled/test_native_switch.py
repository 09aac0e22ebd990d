"""The native switch over ports in memory: it sends what the Python switch sends, and every frame is accounted for."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dataplane.clock import VirtualClock
from dataplane.errors import SwitchError
from dataplane.nic import NicPort, memory_pair
from dataplane.program.objects import RegisterSpec
from dataplane.program.operations import Assign, Binary, BinaryOp, Constant, FieldRef, RegisterRead, RegisterWrite
from dataplane.switch.compiled.activity import Forwarding
from dataplane.switch.compiled.switch import NativeSwitch
from dataplane.switch.pipeline import DigestMessage
from dataplane.switch.switch import MAX_FRAME_BYTES, Switch
from dataplane.switch.tables import CloneSession, ForwardingState, Replica
from dataplane.switch.traffic import PortSettings
from tests.dataplane.switch.compiled.queued_bench import NOT_PACKETS, own_program, settle, wait_until_between_bursts
from tests.dataplane.switch.compiler.synthetic import program_with
from tests.waiting import wait_until

PORTS = (1, 2, 3, 4)
DIGEST_ORDER = 3  # in stateful.p4
STAMP_BYTES = slice(20, 26)  # of the header `wide`: its field of 48 bits


class Bench:
    """A native switch on cables in memory."""

    def __init__(
        self,
        ports: Sequence[PortSettings],
        *,
        slots: int = 1024,
        forwarding: Forwarding | None = None,
        deflect_session: int | None = None,
    ) -> None:
        pairs = {port.number: memory_pair((f"s{port.number}", f"t{port.number}"), slots=slots) for port in ports}
        self.far: dict[int, NicPort] = {number: far for number, (_, far) in pairs.items()}
        self._near = {number: near for number, (near, _) in pairs.items()}
        self.switch = NativeSwitch(1, ports, self._near, seed=7, deflect_session=deflect_session, forwarding=forwarding)
        self.sent = 0

    def send(self, port: int, frames: Sequence[bytes]) -> None:
        left = list(frames)
        while left:
            taken = self.far[port].send(left)
            del left[:taken]
            self.sent += taken

    def settle(self) -> None:
        """Wait until everything sent was received and has left, or was dropped."""
        settle(self.switch, self.sent)

    def wait_received(self, port: int, frames: int) -> None:
        """Wait until a port has received this many frames, and they are queued, sent or dropped."""
        wait_until_between_bursts(
            self.switch, lambda: self.switch.counters().ports[port].rx_frames == frames, "not received"
        )

    def receive(self) -> dict[int, list[bytes]]:
        return {number: port.receive(100_000) for number, port in self.far.items()}

    def close(self) -> None:
        self.switch.close()
        for port in (*self._near.values(), *self.far.values()):
            port.close()

    def assert_accounted(self) -> None:
        """Check that what came in, and the copies made, were sent, wait, or were dropped under a name."""
        with self.switch.paused():
            counters, copies, in_use = self.switch.counters(), self.switch.copies, self.switch.packets_in_use
        ports = counters.ports.values()
        drops = Counter(counters.drops)
        for port in ports:
            drops.update(port.drops)
        for name in NOT_PACKETS:
            drops.pop(name, None)
        received = sum(port.rx_frames for port in ports)
        sent, queued = sum(port.tx_frames for port in ports), sum(port.queued_frames for port in ports)
        assert received + copies == sent + queued + drops.total(), counters
        assert in_use == queued


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench([PortSettings(number, queue_frames=4096) for number in PORTS])
    made.switch.start()
    yield made
    made.close()


def fill_copies(state: ForwardingState) -> None:
    state.clone_sessions[1] = CloneSession((Replica(3, 1),))
    state.clone_sessions[2] = CloneSession((Replica(3, 1), Replica(4, 2), Replica(1, 3)), packet_length_bytes=30)
    state.clone_sessions[3] = CloneSession((), class_of_service=2)
    state.clone_sessions[4] = CloneSession((Replica(9, 1), Replica(4, 2)), class_of_service=9)
    state.multicast_groups[1] = (Replica(2, 1), Replica(3, 7), Replica(4, 0))
    state.multicast_groups[2] = (Replica(600, 1), Replica(3, 7))


def orders(rng: random.Random, count: int) -> list[bytes]:
    """Return frames for all features of `copies.p4`, in all combinations."""
    return [
        bytes([rng.randrange(11), rng.randrange(6), rng.randrange(6)]) + rng.randbytes(rng.choice((0, 11, 60, 1500)))
        for _ in range(count)
    ]


def reference_outputs(frames: Sequence[bytes]) -> tuple[dict[int, Counter[bytes]], Counter[str]]:
    """Return what the interpreter's switch sends for each frame by itself, and its drops."""
    clock = VirtualClock()
    switch = Switch(1, [PortSettings(number) for number in PORTS], clock)
    switch.commit(own_program("copies"), fill_copies)
    sent: dict[int, Counter[bytes]] = {number: Counter() for number in PORTS}
    for frame in frames:
        clock.advance_to(clock.time_ns + 1_000_000)
        switch.receive(1, [frame])
        for departure in filter(
            lambda departure: departure.data, switch.advance(clock.time_ns)
        ):  # no port sends nothing
            sent[departure.port][without_times(departure.data)] += 1
    counters = switch.counters()
    drops = Counter(counters.drops)
    for port in counters.ports.values():
        drops.update(port.drops)
    return sent, drops


def without_times(frame: bytes) -> bytes:
    """Blank fields that depend on concurrent packets: queue depth, waiting time, passage."""
    return frame[:8] + bytes(4) + frame[12:]


def test_it_sends_what_the_python_switch_sends(bench: Bench) -> None:
    frames = orders(random.Random(1), 1_000)
    bench.switch.commit(own_program("copies"), fill_copies)
    outputs: dict[int, Counter[bytes]] = {number: Counter() for number in PORTS}
    for start in range(0, len(frames), 50):
        bench.send(1, frames[start : start + 50])
        bench.settle()
        for number, received in bench.receive().items():
            outputs[number].update(map(without_times, received))
    expected, drops = reference_outputs(frames)
    for number in PORTS:
        assert outputs[number] == expected[number]
    counters = bench.switch.counters()
    ours = Counter(counters.drops)
    for port in counters.ports.values():
        ours.update(port.drops)
    assert ours == drops
    bench.assert_accounted()


@pytest.mark.parametrize(("threads", "deflect_session"), [(1, None), (2, None), (1, 2), (2, 1)])
def test_every_frame_is_accounted_for_at_any_pause(threads: int, deflect_session: int | None) -> None:
    settings = [
        PortSettings(1),
        PortSettings(2, 200_000_000, 16, 3_000),
        PortSettings(3, None, 8),
        PortSettings(4, 10**9),
    ]
    bench = Bench(settings, forwarding=Forwarding(threads=threads), deflect_session=deflect_session)
    rng = random.Random(threads)
    with bench.switch:
        bench.switch.commit(own_program("copies"), fill_copies)
        for _ in range(60):
            bench.send(rng.choice(PORTS), orders(rng, rng.randrange(200)))
            bench.assert_accounted()
            bench.receive()
        bench.settle()
        bench.assert_accounted()
    assert not any(port.queued_frames for port in bench.switch.counters().ports.values())
    bench.close()


def test_without_a_program_frames_are_counted_and_forgotten(bench: Bench) -> None:
    bench.send(1, [bytes(60)] * 5)
    bench.switch.packet_out(bytes(60))
    bench.wait_received(1, 5)
    bench.wait_received(255, 1)
    assert bench.switch.counters().ports[1].drops == {"no_program": 5}
    assert bench.switch.program is None
    bench.switch.commit(own_program("copies"), fill_copies)
    bench.send(1, [bytes(60)] * 5)
    wait_until(lambda: bench.switch.counters().ports[2].tx_frames == 5, "not sent")


def test_program_replacement_drops_the_queues_and_keeps_counts() -> None:
    bench = Bench([PortSettings(1), PortSettings(2, rate_bps=1_000, queue_frames=32)])
    with bench.switch as switch:
        switch.commit(own_program("copies"), fill_copies)
        bench.send(1, [bytes(60)] * 10 + [b"\x04" + bytes(59)] * 3)
        wait_until(lambda: switch.counters().drops.get("ingress_drop") == 3, "not processed")
        switch.commit(own_program("copies"), fill_copies)
        assert switch.counters().ports[2].drops == {"program_replaced": 9}
        assert switch.counters().drops["ingress_drop"] == 3
        bench.assert_accounted()
        assert switch.in_flight == 1  # on the wire since before
    assert switch.counters().ports[2].queued_frames == 0
    bench.close()


def test_what_a_full_queue_refuses_leaves_by_another_port() -> None:
    bench = Bench(
        [PortSettings(1), PortSettings(2, rate_bps=10_000, queue_frames=4), PortSettings(3)], deflect_session=1
    )
    with bench.switch as switch:
        switch.commit(own_program("copies"), fill_copies)
        bench.send(1, [bytes(60)] * 12)
        bench.wait_received(1, 12)
        refused = switch.counters().ports[2].drops["queue_full"]
        assert refused in (7, 8), "one may have left before the last came"
        wait_until(lambda: switch.counters().ports[3].tx_frames == refused, "not deflected")
        assert switch.copies == refused
        bench.assert_accounted()
    bench.close()


def test_a_rate_and_a_cable_hold_frames_back() -> None:
    bench = Bench([PortSettings(1), PortSettings(2, rate_bps=8_000_000, delay_ns=50_000_000)])
    with bench.switch as switch:
        switch.commit(own_program("copies"), fill_copies)
        begun = time.monotonic()
        bench.send(1, [bytes(976 - 12)] * 10)  # 12 bytes more leave: 1,000 on the wire with gap, 1 ms each
        bench.settle()
        assert time.monotonic() - begun >= 0.060
        assert len(bench.receive()[2]) == 10
    bench.close()


def test_packets_go_to_the_controller_and_come_from_it(bench: Bench) -> None:
    frames: list[bytes] = []
    bench.switch.commit(own_program("copies"), lambda state: state.clone_sessions.update({1: to_controller()}))
    bench.send(1, [bytes([1, 0, 1]) + bytes(57)])
    wait_until(lambda: bench.switch.counters().ports[255].drops == {"no_packet_in_receiver": 1}, "not dropped")
    bench.switch.on_packet_in(frames.append)
    for _ in range(20):
        bench.send(1, [bytes([1, 0, 1]) + bytes(57)])
    wait_until(lambda: len(frames) == 20, "no packets in")
    assert len(frames[0]) == 60 + 12
    bench.switch.packet_out(bytes(60))
    wait_until(lambda: bench.switch.counters().ports[2].tx_frames == 22, "not sent")
    assert bench.switch.counters().ports[255].rx_frames == 1
    bench.assert_accounted()


def to_controller() -> CloneSession:
    return CloneSession((Replica(255, 1),))


def test_a_frame_that_is_too_long_is_dropped_as_oversize(bench: Bench) -> None:
    bench.switch.commit(own_program("copies"), fill_copies)
    bench.send(1, [bytes(MAX_FRAME_BYTES), bytes(MAX_FRAME_BYTES + 1)])
    bench.settle()
    assert bench.switch.counters().ports[1].drops == {"oversize": 1}
    assert [len(frame) for frame in bench.receive()[2]] == [MAX_FRAME_BYTES + 12]


def test_a_port_that_is_down_neither_sends_nor_receives(bench: Bench) -> None:
    changes: list[tuple[int, bool]] = []
    bench.switch.commit(own_program("copies"), fill_copies)
    bench.switch.set_port_status(2, False)
    bench.switch.on_port_status(lambda port, up: changes.append((port, up)))
    bench.send(1, [bytes(60)] * 2)
    bench.send(2, [bytes(60)] * 3)
    bench.settle()
    assert bench.switch.counters().ports[2].drops == {"port_down": 5}
    bench.switch.set_port_status(2, True)
    bench.send(1, [bytes(60)])
    bench.settle()
    assert bench.switch.counters().ports[2].tx_frames == 1
    assert changes == [(2, False), (2, True)]
    bench.assert_accounted()
    with pytest.raises(SwitchError, match="has no port 77"):
        bench.switch.set_port_status(77, True)


def test_a_pause_nests_and_holds_frames_back(bench: Bench) -> None:
    bench.switch.commit(own_program("copies"), fill_copies)
    with bench.switch.paused(), bench.switch.paused():
        bench.send(1, [bytes(60)])
        time.sleep(0.02)
        assert bench.switch.counters().ports[1].rx_frames == 0
    bench.settle()
    assert bench.switch.counters().ports[2].tx_frames == 1


def test_entries_may_change_while_frames_are_forwarded(bench: Bench) -> None:
    """A group is either old or new: no frame goes astray or is lost uncounted."""
    state = bench.switch.commit(own_program("copies"), fill_copies)
    stopping = threading.Event()

    def write() -> None:
        for number in itertools.count():
            if stopping.is_set():
                return
            with state.lock:
                state.multicast_groups[1 + number % 3] = tuple(Replica(2 + copy, copy) for copy in range(number % 4))
                state.clone_sessions[1] = CloneSession((Replica(3, number % 9),) * (number % 3))

    writer = threading.Thread(target=write)
    writer.start()
    rng = random.Random(3)
    for _ in range(100):
        bench.send(1, orders(rng, 100))
        bench.receive()
    stopping.set()
    writer.join()
    bench.settle()
    bench.assert_accounted()


def test_digests_reach_their_receiver(bench: Bench) -> None:
    program = own_program("stateful")
    got: list[DigestMessage] = []
    bench.switch.on_digests(got.extend)
    bench.switch.commit(program)
    name = next(iter(program.digests.values())).spec.name
    for index in range(3):
        bench.send(1, [bytes([DIGEST_ORDER, index]) + bytes(58)])
    wait_until(lambda: len(got) == 3, "no digests")
    assert {message.digest for message in got} == {name}


def test_a_receiver_that_fails_is_called_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    digests: list[DigestMessage] = []
    frames: list[bytes] = []

    def take_digests(messages: Sequence[DigestMessage]) -> None:
        digests.extend(messages)
        if len(digests) == 1:
            raise ValueError("the first digest is one too many")

    def take_frame(frame: bytes) -> None:
        frames.append(frame)
        if len(frames) == 1:
            raise ValueError("the first frame is one too many")

    bench.switch.on_digests(take_digests)
    bench.switch.on_packet_in(take_frame)
    bench.switch.commit(own_program("stateful"))
    for number in (1, 2, 3):
        bench.send(1, [bytes([DIGEST_ORDER, number]) + bytes(58)])
        wait_until(lambda number=number: len(digests) == number, "no digests")  # type: ignore[misc]
    bench.switch.commit(own_program("copies"), lambda state: state.clone_sessions.update({1: to_controller()}))
    for number in (1, 2, 3):
        bench.send(1, [bytes([1, 0, 1]) + bytes(57)])
        wait_until(lambda number=number: len(frames) == number, "no packets in")  # type: ignore[misc]
    wait_until(lambda: bench.switch.counters().drops.get("receiver_failed") == 2, "not counted")
    assert caplog.text.count("a receiver of switch 1 failed") == 2


def test_deparser_runs_once_if_the_device_slot_is_too_short() -> None:
    """The deparser counts each frame once, and the device drops the one that is too long."""
    cell = FieldRef("own", "u13")
    primitives = (
        RegisterRead(cell, "r", Constant(0)),
        Assign(cell, Binary(BinaryOp.ADD, cell, Constant(1))),
        RegisterWrite("r", Constant(0), cell),
    )
    onwards = Assign(FieldRef("standard_metadata", "egress_spec"), Constant(2))
    registers: dict[str, Any] = {"registers": {"r": RegisterSpec("r", 1, 64)}}
    program = program_with([[onwards]], **registers, digest="de9a45e0")
    program = replace(program, deparser=replace(program.deparser, primitives=primitives))
    near, far = memory_pair(("s1", "t1"))
    short, end = memory_pair(("s2", "t2"), slot_bytes=64)
    with NativeSwitch(1, [PortSettings(1), PortSettings(2)], {1: near, 2: short}) as switch:
        state = switch.commit(program)
        far.send([bytes(200), bytes(40)])
        wait_until(lambda: switch.counters().ports[2].tx_frames == 2, "not sent")
        assert list(state.registers["r"]) == [2]
        assert [len(frame) for frame in end.receive(10)] == [40]
        assert list(short.read_counters().drops.values()) == [1]
    for port in (near, far, short, end):
        port.close()


def test_no_frame_is_stamped_with_a_time_before_it_was_sent() -> None:
    """A frame that arrives while the switch handles another port has its own time, not that of the turn."""
    arrival = FieldRef("standard_metadata", "ingress_global_timestamp")
    onwards = Assign(FieldRef("standard_metadata", "egress_spec"), Constant(3))
    aliases = {"intrinsic_metadata.ingress_global_timestamp": arrival}
    program = program_with([[Assign(FieldRef("wide", "u12"), arrival), onwards]], aliases=aliases, digest="57a3b0ed")
    bench = Bench([PortSettings(number, queue_frames=4096) for number in PORTS], slots=4096)
    with bench.switch:
        bench.switch.commit(program)
        for pause_us in range(0, 200, 4):
            for port in (1, 2, 3):
                bench.send(port, [bytes(1500)] * 1000)
            deadline_ns = time.monotonic_ns() + pause_us * 1_000
            while time.monotonic_ns() < deadline_ns:
                pass
            sent_us = time.monotonic_ns() // 1_000
            bench.send(4, [bytes(199) + b"4"])
            bench.settle()
            (stamped,) = (frame for frame in bench.receive()[3] if frame.endswith(b"4"))
            assert int.from_bytes(stamped[STAMP_BYTES], "big") >= sent_us
    bench.close()
