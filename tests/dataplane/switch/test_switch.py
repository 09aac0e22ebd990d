"""The switch as a whole with a small scripted pipeline: accounting, time, CPU port, program swap, two threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.clock import VirtualClock
from dataplane.errors import SwitchError
from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.program.objects import ActionCall
from dataplane.switch.pipeline import Dequeued, DigestMessage, EgressResult, Frame, Output, Placement
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.switch import MAX_FRAME_BYTES, Departure, PortSettings, Switch
from dataplane.switch.tables import ForwardingState, TableEntry

CPU = 255
BUILD = Path(__file__).parents[3] / "p4" / "build"


class EmptyProgram:
    """A program without objects: the scripted pipeline reads none."""

    def __init__(self) -> None:
        self.tables: dict[str, object] = {}
        self.actions: dict[str, object] = {}
        self.profiles: dict[str, object] = {}
        self.counters: dict[str, object] = {}
        self.registers: dict[str, object] = {}
        self.meters: dict[str, object] = {}
        self.value_sets: dict[str, object] = {}


class ScriptedPipeline:
    """Frames say what happens to them.

    Byte 0 is the output port, byte 1 the priority, byte 2: 0 forward, 1 ingress drop, 2 ingress clone to the CPU port,
    3 egress drop, 4 egress clone to port 1, 5 grow by ten bytes, 6 clone for ever.
    """

    def __init__(self) -> None:
        self.drops: dict[str, int] = {}
        self.parser_errors: dict[str, int] = {}
        self.clones = 0
        self.seen: list[Dequeued] = []
        self.ingress_us: list[int] = []
        self.sessions: dict[int, int] = {}

    def take_digests(self) -> list[DigestMessage]:
        return []

    def ingress(self, frames: Sequence[Frame], now_us: int) -> list[Placement]:
        placements = []
        for frame in frames:
            self.ingress_us.append(now_us)
            if len(frame.data) < 3:
                self.drops["parser_error"] = self.drops.get("parser_error", 0) + 1
                continue
            port, priority, action = frame.data[:3]
            if action == 1:
                self.drops["ingress_drop"] = self.drops.get("ingress_drop", 0) + 1
                continue
            if action == 2:
                self.clones += 1
                placements.append(Placement(bytes((CPU, 0, 0)) + frame.data[3:], CPU, 0, len(frame.data)))
            placements.append(Placement(frame.data, port, priority, len(frame.data)))
        return placements

    def deflect(self, refused: Placement, session: int) -> list[Placement]:
        if session not in self.sessions:
            return []
        return [Placement(refused.packet, self.sessions[session], 0, refused.length_bytes)]

    def egress(self, packets: Sequence[Dequeued], now_us: int) -> EgressResult:
        result = EgressResult()
        for packet in packets:
            self.seen.append(packet)
            data = cast(bytes, packet.packet)
            if data[2] == 3:
                self.drops["egress_drop"] = self.drops.get("egress_drop", 0) + 1
                continue
            if data[2] in {4, 6}:
                self.clones += 1
                copy = bytes((1, 0, 0 if data[2] == 4 else 6)) + data[3:]
                result.placements.append(Placement(copy, 3 if data[2] == 6 else 1, 0, len(copy)))
            if data[2] == 5:
                data += bytes(10)
            result.outputs.append(Output(packet.port, data))
        return result


PROGRAM = cast(Program, EmptyProgram())
PORTS = (PortSettings(1, 1_000_000_000, 4), PortSettings(2, 10_000_000, 3), PortSettings(3, None, 5))


class Bench:
    """A switch with its clock and the pipelines that were made for it."""

    def __init__(self, *, commit: bool = True, deflect_session: int | None = None) -> None:
        self.clock = VirtualClock()
        self.pipelines: list[ScriptedPipeline] = []
        self.packets_in: list[bytes] = []
        self.switch = Switch(7, PORTS, self.clock, deflect_session=deflect_session, pipeline_factory=self.make)
        self.switch.on_packet_in(self.packets_in.append)
        if commit:
            self.switch.commit(PROGRAM)

    def make(self, program: Program, state: ForwardingState, rng: SplitMix) -> ScriptedPipeline:
        self.pipelines.append(ScriptedPipeline())
        return self.pipelines[-1]

    @property
    def pipeline(self) -> ScriptedPipeline:
        return self.pipelines[-1]

    def advance(self, time_ns: int) -> list[Departure]:
        self.clock.advance_to(time_ns)
        return self.switch.advance(time_ns)

    def dropped(self) -> int:
        counters = self.switch.counters()
        return sum(counters.drops.values()) + sum(sum(port.drops.values()) for port in counters.ports.values())


def frame(port: int, priority: int = 0, action: int = 0, length: int = 101) -> bytes:
    return bytes((port, priority, action)).ljust(length, b"\xaa")


def test_a_frame_crosses_with_the_time_of_its_serialisation() -> None:
    bench = Bench()
    bench.clock.advance_to(5_500)
    bench.switch.receive(2, [frame(1)])
    assert bench.switch.next_event_ns() == 5_500
    assert bench.switch.advance(5_500) == [Departure(1, frame(1), 6_500)]
    assert bench.switch.next_event_ns() is None
    assert bench.pipeline.ingress_us == [5]


def test_the_length_after_egress_occupies_the_port() -> None:
    bench = Bench()
    bench.switch.receive(2, [frame(1, action=5)])
    assert bench.advance(0) == [Departure(1, frame(1, action=5) + bytes(10), 1_080)]


def test_queue_readings_reach_egress() -> None:
    bench = Bench()
    bench.switch.receive(1, [frame(2)] * 3)
    bench.advance(10**9)
    assert [(p.enq_qdepth, p.deq_timedelta_us, p.deq_qdepth) for p in bench.pipeline.seen] == [
        (0, 0, 2),
        (1, 100, 1),
        (2, 200, 0),
    ]


def test_what_a_full_queue_refuses_is_deflected_with_its_reading() -> None:
    bench = Bench(deflect_session=9)
    bench.pipeline.sessions[9] = 3
    bench.switch.receive(1, [frame(2)] * 5)
    departures = bench.advance(10**9)
    assert [departure.port for departure in departures] == [2, 3, 3, 2, 2]
    assert [(p.port, p.enq_qdepth, p.deq_qdepth) for p in bench.pipeline.seen[:3]] == [(2, 0, 2), (3, 3, 1), (3, 3, 0)]
    assert bench.switch.counters().ports[2].drops == {"queue_full": 2}


def test_what_is_refused_twice_is_gone() -> None:
    bench = Bench(deflect_session=9)
    bench.pipeline.sessions[9] = 2
    bench.switch.receive(1, [frame(2)] * 5)
    assert len(bench.advance(10**9)) == 3
    assert bench.switch.counters().ports[2].drops == {"queue_full": 4}


@pytest.mark.parametrize(("session", "sessions"), [(None, {9: 3}), (9, {})], ids=["not-asked-for", "no-session"])
def test_without_a_session_what_is_refused_is_gone(session: int | None, sessions: dict[int, int]) -> None:
    bench = Bench(deflect_session=session)
    bench.pipeline.sessions |= sessions
    bench.switch.receive(1, [frame(2)] * 5)
    assert [departure.port for departure in bench.advance(10**9)] == [2, 2, 2]


@pytest.mark.parametrize("session", [0, -1, 1 << 15])
def test_a_session_that_cannot_be_is_refused(session: int) -> None:
    with pytest.raises(SwitchError, match=f"clone session {session}: sessions go from 1 to 32767"):
        Bench(deflect_session=session)


def test_frames_that_come_late_find_the_queue_as_it_is_by_then() -> None:
    bench = Bench()
    bench.switch.receive(1, [frame(2)] * 3)
    bench.clock.advance_to(150_000)
    bench.switch.receive(1, [frame(2)])
    departures = bench.advance(10**9)
    assert [d.departs_ns for d in departures] == [100_000, 200_000, 300_000, 400_000]
    assert [p.enq_qdepth for p in bench.pipeline.seen] == [0, 1, 2, 1]


def test_packet_in_and_packet_out() -> None:
    bench = Bench()
    woken: list[bool] = []
    bench.switch.on_wakeup(lambda: woken.append(True))
    bench.switch.packet_out(frame(3, action=2))
    assert woken == [True]
    assert [d.port for d in bench.advance(0)] == [3]
    assert bench.packets_in == [frame(CPU)]
    ports = bench.switch.counters().ports
    assert (ports[CPU].rx_frames, ports[CPU].rx_bytes, ports[CPU].tx_frames) == (1, 101, 1)


def test_without_a_receiver_a_packet_in_is_dropped_under_a_name() -> None:
    bench = Bench()
    bench.switch = Switch(7, PORTS, bench.clock, pipeline_factory=bench.make)
    bench.switch.commit(PROGRAM)
    bench.switch.receive(1, [frame(CPU)])
    bench.advance(0)
    port = bench.switch.counters().ports[CPU]
    assert (port.tx_frames, port.drops) == (0, {"no_packet_in_receiver": 1})


def test_before_a_program_everything_is_dropped_and_counted() -> None:
    bench = Bench(commit=False)
    bench.switch.receive(1, [frame(2), b""])
    assert (bench.advance(5), bench.switch.program, bench.switch.state) == ([], None, None)
    assert bench.switch.counters().ports[1].drops == {"no_program": 2}


def test_oversize_frames_are_dropped_and_counted() -> None:
    bench = Bench()
    bench.switch.receive(1, [frame(3, length=MAX_FRAME_BYTES + 1), frame(3, length=MAX_FRAME_BYTES)])
    assert [len(d.data) for d in bench.advance(0)] == [MAX_FRAME_BYTES]
    port = bench.switch.counters().ports[1]
    assert (port.rx_frames, port.rx_bytes, port.drops) == (2, 2 * MAX_FRAME_BYTES + 1, {"oversize": 1})


def test_new_program_resets_queues_and_state_but_keeps_counters() -> None:
    bench = Bench()
    bench.switch.receive(1, [frame(2), frame(2), frame(2, action=1)])
    bench.advance(0)
    old = bench.switch.state
    assert bench.switch.commit(PROGRAM) is bench.switch.state is not old
    assert bench.advance(10**9) == []
    counters = bench.switch.counters()
    assert counters.ports[2].drops == {"program_replaced": 1}
    assert counters.drops == {"ingress_drop": 1}
    assert counters.ports[2].tx_frames == 1
    assert len(bench.pipelines) == 2


def test_a_program_that_cannot_be_executed_changes_nothing() -> None:
    bench = Bench()
    bench.switch.receive(1, [frame(2), frame(2)])
    old = bench.switch.state

    def refuse(program: Program, state: ForwardingState, rng: SplitMix) -> ScriptedPipeline:
        raise SwitchError("no")

    bench.switch._make_pipeline = refuse
    with pytest.raises(SwitchError, match="no"):
        bench.switch.commit(PROGRAM)
    assert bench.switch.state is old
    assert len(bench.advance(10**9)) == 2


def test_a_state_that_cannot_be_filled_changes_nothing() -> None:
    bench = Bench()
    old = bench.switch.state

    def refuse(state: ForwardingState) -> None:
        raise SwitchError("no")

    with pytest.raises(SwitchError, match="no"):
        bench.switch.commit(PROGRAM, refuse)
    assert bench.switch.state is old


def test_a_state_is_filled_before_a_packet_can_see_it() -> None:
    bench = Bench()
    old = bench.switch.state
    seen: list[ForwardingState | None] = []
    filled: list[ForwardingState] = []

    def fill(state: ForwardingState) -> None:
        filled.append(state)
        seen.append(bench.switch.state)

    assert [bench.switch.commit(PROGRAM, fill)] == filled
    assert seen == [old]


def test_a_program_that_clones_for_ever_does_not_stop_time() -> None:
    bench = Bench()
    bench.switch.receive(1, [frame(3, action=6)])
    sent = len(bench.advance(0))
    assert bench.switch.counters().drops == {"endless_loop": 1}
    assert sent == bench.pipeline.clones
    assert bench.switch.next_event_ns() is None


def test_wrong_ports_are_refused() -> None:
    bench = Bench()
    with pytest.raises(SwitchError, match="no port 9"):
        bench.switch.receive(9, [b""])
    with pytest.raises(SwitchError, match="no port 9"):
        bench.switch.occupancy(9)
    with pytest.raises(SwitchError, match="CPU port"):
        Switch(1, [PortSettings(255)], VirtualClock())


def test_random_numbers_depend_only_on_seed_and_device() -> None:
    def numbers(device_id: int, seed: int) -> list[int]:
        drawn: list[int] = []

        def make(program: Program, state: ForwardingState, rng: SplitMix) -> ScriptedPipeline:
            drawn.extend(rng.next() for _ in range(3))
            return ScriptedPipeline()

        Switch(device_id, PORTS, VirtualClock(), seed=seed, pipeline_factory=make).commit(PROGRAM)
        return drawn

    assert numbers(1, 0) == numbers(1, 0)
    assert len({tuple(numbers(d, s)) for d in (1, 2) for s in (0, 1)}) == 4


STEP = st.tuples(
    st.sampled_from([0, 0, 1, 500, 100_000]),
    st.sampled_from([1, 2, 3, CPU]),
    st.lists(
        st.one_of(
            st.builds(
                frame,
                st.sampled_from([1, 2, 3, 9, CPU]),
                st.integers(0, 8),
                st.integers(0, 5),
                st.sampled_from([3, 60, 1_500, MAX_FRAME_BYTES + 1]),
            ),
            st.binary(max_size=4).filter(lambda data: data[2:3] != b"\x06"),
        ),
        max_size=6,
    ),
    st.booleans(),
)


@settings(deadline=None)
@given(st.lists(STEP, max_size=25), st.integers(0, 25))
def test_conservation_of_frames(steps: list[tuple[int, int, list[bytes], bool]], swap_at: int) -> None:
    bench = Bench()
    received = departed = 0
    for index, (gap, port, frames, advance) in enumerate(steps):
        if index == swap_at:
            bench.switch.commit(PROGRAM)
        bench.clock.advance_to(bench.clock.now_ns() + gap)
        bench.switch.receive(port, frames)
        received += len(frames)
        if advance:
            departed += len(bench.switch.advance(bench.clock.now_ns()))
    departed += len(bench.switch.advance(bench.clock.now_ns()))
    ports = bench.switch.counters().ports
    sent = sum(port.tx_frames for port in ports.values())
    queued = sum(port.queued_frames for port in ports.values())
    clones = sum(pipeline.clones for pipeline in bench.pipelines)
    assert sum(port.rx_frames for port in ports.values()) == received
    assert sent == departed + len(bench.packets_in)
    assert received + clones == sent + bench.dropped() + queued


def test_concurrent_commits_and_packet_outs_lose_no_frame() -> None:
    bench = Bench()
    switch, rounds = bench.switch, 200

    def control() -> None:
        for _ in range(rounds):
            switch.packet_out(frame(3))
            switch.commit(PROGRAM)

    thread = threading.Thread(target=control)
    thread.start()
    departed = 0
    while thread.is_alive():
        switch.receive(1, [frame(3)])
        departed += len(switch.advance(0))
    thread.join()
    departed += len(switch.advance(0))
    ports = switch.counters().ports
    assert ports[CPU].rx_frames == rounds
    assert ports[1].rx_frames + rounds == departed + bench.dropped()


IPV4_FRAME = bytes.fromhex(
    "020100010001 020000010001 0800"  # Ethernet
    "4500002c 00000000 40110000 0a000101 0a000201"  # IPv4, its checksum 0: bytes 24 and 25
    "1b581b58 00180000"  # UDP
    "000102030405060708090a0b0c0d0e0f"
)


def with_checksum(frame: bytes) -> bytes:
    total = sum(int.from_bytes(frame[at : at + 2], "big") for at in range(14, 34, 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return frame[:24] + (0xFFFF - total).to_bytes(2, "big") + frame[26:]


@cache
def fabric_program() -> Program:
    return load_program(BUILD / "fabric.json", BUILD / "fabric.p4info.txtpb")


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.binary(max_size=6), st.integers(14, 60)), max_size=12))
def test_the_real_program_loses_no_frame_without_a_name(changes: list[tuple[int, bytes, int]]) -> None:
    clock = VirtualClock()
    switch = Switch(1, [PortSettings(1), PortSettings(2, 1_000_000, 4)], clock)
    table = switch.commit(fabric_program()).tables["FabricIngress.routing.ipv4_destination_paths"]
    call = ActionCall("FabricIngress.routing.forward", (2, 0x0200_0002_0001))
    table.insert(TableEntry(match=((0x0A000201, 32),), priority=0, call=call))
    good = with_checksum(IPV4_FRAME)
    frames = [good, *((good[:at] + change + good[at + len(change) :])[:size] for at, change, size in changes)]
    switch.receive(1, frames)
    departures = switch.advance(0) + switch.advance(10**12)
    assert departures[0].data[:6] == bytes.fromhex("020000020001")
    counters = switch.counters()
    dropped = sum(counters.drops.values()) + sum(sum(port.drops.values()) for port in counters.ports.values())
    assert len(frames) == len(departures) + dropped
