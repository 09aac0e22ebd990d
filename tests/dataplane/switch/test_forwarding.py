"""The forwarder with ports made of lists: cable delays, order, bursts, full cables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from dataplane.clock import VirtualClock
from dataplane.nic import LinkStatus
from dataplane.nic.port import PortReading
from dataplane.program.model import Program
from dataplane.switch import forwarding
from dataplane.switch.forwarding import BURST_FRAMES, Forwarder, PortCable
from dataplane.switch.pipeline import Dequeued, DigestMessage, EgressResult, Frame, Output, Placement
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.switch import PortSettings, Switch
from dataplane.switch.tables import ForwardingState


class ListPort:
    """A port whose cable is two lists."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_down = False
        self.link_status = LinkStatus.UP
        self.speed_bps: int | None = None
        self.arrived: list[bytes] = []
        self.sent: list[bytes] = []

    def receive(self, max_frames: int) -> list[bytes]:
        frames, self.arrived = self.arrived[:max_frames], self.arrived[max_frames:]
        return frames

    def send(self, frames: Sequence[bytes]) -> int:
        self.sent += frames
        return len(frames)

    def fileno(self) -> int:
        return -1

    def read_counters(self) -> PortReading:
        return PortReading(0, 0, len(self.sent), 0, 0, {})

    def close(self) -> None:
        return


class ByFirstByte:
    """Sends a frame out by the port that its first byte names."""

    def __init__(self, program: Program, state: ForwardingState, rng: SplitMix) -> None:
        self.drops: dict[str, int] = {}
        self.parser_errors: dict[str, int] = {}

    def take_digests(self) -> list[DigestMessage]:
        return []

    def ingress(self, frames: Sequence[Frame], now_us: int) -> list[Placement]:
        return [Placement(frame.data, frame.data[0], 0, len(frame.data)) for frame in frames]

    def egress(self, packets: Sequence[Dequeued], now_us: int) -> EgressResult:
        return EgressResult([Output(packet.port, packet.packet) for packet in packets])

    def deflect(self, refused: Placement, session: int) -> list[Placement]:
        return []


class Empty:
    """An empty program."""

    tables = actions = profiles = counters = registers = meters = value_sets = cast(dict[str, object], {})


def test_jitter_spreads_arrivals_around_the_delay_in_order() -> None:
    port = PortSettings(1, delay_ns=5_000, jitter_ns=2_000)
    cable, again = PortCable(port, 7), PortCable(port, 7)
    spread = [cable.arrival_ns(10_000 * index) - 10_000 * index for index in range(4_000)]
    assert [again.arrival_ns(10_000 * index) - 10_000 * index for index in range(4_000)] == spread
    assert 3_000 <= min(spread) < 3_020 < 6_980 < max(spread) <= 7_000
    assert abs(sum(spread) / len(spread) - 5_000) < 5 * 4_000 / 12**0.5 / len(spread) ** 0.5
    dense = [PortCable(port, 8).arrival_ns(0)] + [cable.arrival_ns(10**9 + index) for index in range(100)]
    assert dense == sorted(dense)


def make() -> tuple[Forwarder, VirtualClock, dict[int, ListPort]]:
    clock = VirtualClock()
    settings = [PortSettings(1, 1_000_000_000, delay_ns=5_000), PortSettings(2, delay_ns=2_000), PortSettings(3)]
    switch = Switch(1, settings, clock, pipeline_factory=ByFirstByte)
    switch.commit(cast(Program, Empty()))
    ports = {port.number: ListPort(f"p{port.number}") for port in settings}
    return Forwarder(switch, ports, clock), clock, ports


def to(port: int, text: str = "") -> bytes:
    return (bytes((port,)) + text.encode()).ljust(101, b".")


def test_frame_arrives_exactly_after_serialisation_and_delay() -> None:
    forwarder, clock, ports = make()
    ports[3].arrived = [to(1)]
    forwarder.step([3])
    assert (ports[1].sent, forwarder.in_flight, forwarder.next_due_ns()) == ([], 1, 6_000)
    clock.advance_to(5_999)
    forwarder.step([])
    assert ports[1].sent == []
    clock.advance_to(6_000)
    forwarder.step([])
    assert (ports[1].sent, forwarder.next_due_ns()) == ([to(1)], None)


def test_frames_for_an_ideal_port_leave_in_the_same_step() -> None:
    forwarder, _, ports = make()
    ports[1].arrived = [to(3, "a"), to(3, "b")]
    forwarder.step([1])
    assert ports[3].sent == [to(3, "a"), to(3, "b")]


def test_order_holds_within_a_port_however_late_the_step_comes() -> None:
    forwarder, clock, ports = make()
    frames = [to(1, str(index)) for index in range(20)]
    ports[3].arrived = list(frames)
    forwarder.step([3])
    clock.advance_to(10**9)
    forwarder.step([])
    forwarder.step([])
    assert ports[1].sent == frames


def test_next_due_time_is_the_earlier_of_queue_and_cable() -> None:
    forwarder, _, ports = make()
    ports[3].arrived = [to(1), to(1), to(2)]
    forwarder.step([3])
    # The second frame to port 1 may start at 1000 ns; the one to port 2 arrives at 2000 ns.
    assert forwarder.next_due_ns() == 1_000


def test_a_port_gives_one_burst_before_the_next_has_its_turn() -> None:
    forwarder, _, ports = make()
    ports[1].arrived = [to(3, "x")] * (BURST_FRAMES + 5)
    ports[2].arrived = [to(3, "y")]
    forwarder.step([1, 2])
    assert ports[3].sent == [to(3, "x")] * BURST_FRAMES + [to(3, "y")]
    assert len(ports[1].arrived) == 5


def test_full_cables_drop_and_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "IN_FLIGHT_FRAMES", 3)
    forwarder, clock, ports = make()
    ports[3].arrived = [to(2)] * 5
    forwarder.step([3])
    assert (forwarder.in_flight, forwarder.cable_full) == (3, 2)
    clock.advance_to(2_000)
    forwarder.step([])
    assert (len(ports[2].sent), forwarder.in_flight) == (3, 0)
