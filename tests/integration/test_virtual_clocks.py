"""Switches with independent clocks, in virtual time: the same link delays as with one clock.

Two runs of the same traffic, both ways over a line of three switches, one link of which has a queue: with one clock for
all, and with clocks that are seconds to years apart and drift by tens of parts per million.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from collectors.collector import Collector
from collectors.values import DelaySource, Snapshot
from controller.network.virtual import VirtualController
from dataplane.fabric.hosts import Arrivals, flow_between
from dataplane.fabric.virtual import VirtualFabric
from dataplane.program.model import Program
from dataplane.switch.interpreter import InterpretedPipeline
from dataplane.switch.pipeline import Dequeued, EgressResult, Frame, Pipeline, Placement
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.tables import ForwardingState
from dataplane.topology.file import loads
from dataplane.topology.values import LinkKey, Topology
from dataplane.wire.packet import decode_udp_frame

MS = 1_000_000
RUN_NS = 1000 * MS
LINE = """
millrace: 1
name: line
synchronised_clocks: {synchronised}
collector: {{host: c1}}
defaults:
  access: {{rate: 100 Mbit/s, delay: 10 us}}
  link: {{rate: 4 Mbit/s, delay: 2 ms, queue_frames: 64}}
switches: [{{name: s1}}, {{name: s2}}, {{name: s3}}]
hosts: [{{name: h1, switch: s1}}, {{name: h2, switch: s2}}, {{name: h3, switch: s3}}, {{name: c1, switch: s1}}]
links:
  - {{a: s1, b: s2}}
  - {{a: s2, b: s3}}
"""
CLOCKS = [(0, 0), (5_000_000, 40), (10**14, -70)]
"""Clock offsets of the switches, in us, and their drift, in parts per million."""


class OwnClock(InterpretedPipeline):
    """A pipeline whose time stamps are those of a clock that is ahead and drifts."""

    def __init__(self, program: Program, state: ForwardingState, *, rng: SplitMix, ahead_us: int, ppm: int) -> None:
        super().__init__(program, state, rng=rng)
        self._ahead_us, self._ppm = ahead_us, ppm

    def _reads(self, now_us: int) -> int:
        return now_us + self._ahead_us + now_us * self._ppm // 1_000_000

    def ingress(self, frames: Sequence[Frame], now_us: int) -> list[Placement]:
        return super().ingress(frames, self._reads(now_us))

    def egress(self, packets: Sequence[Dequeued], now_us: int) -> EgressResult:
        return super().egress(packets, self._reads(now_us))


def own_clocks(clocks: Iterator[tuple[int, int]], program: Program, state: ForwardingState, rng: SplitMix) -> Pipeline:
    ahead_us, ppm = next(clocks)
    return OwnClock(program, state, rng=rng, ahead_us=ahead_us, ppm=ppm)


def run(topology: Topology, clocks: list[tuple[int, int]]) -> Snapshot:
    """Let traffic flow both ways for a while, with a queue on s2->s3; return what the collector knows then."""
    turn = iter(clocks)
    fabric = VirtualFabric(topology, pipeline_factory=lambda program, state, rng: own_clocks(turn, program, state, rng))
    VirtualController.over(fabric).start()
    collector = Collector(topology, fabric.clock)

    def report(frame: bytes, now_ns: int) -> None:
        packet = decode_udp_frame(frame)
        assert packet is not None
        collector.receive(packet.payload)

    fabric.host("c1").on_frame(report)
    fabric.start_flow("h1", flow_between(topology, 1, "h1", "h3", 200_000, frame_bytes=500))
    fabric.start_flow("h3", flow_between(topology, 2, "h3", "h1", 200_000, frame_bytes=500))
    busy = flow_between(topology, 3, "h2", "h3", 2_900_000, frame_bytes=1400, arrivals=Arrivals.POISSON)
    fabric.start_flow("h2", busy)
    fabric.run_until(RUN_NS)
    return collector.snapshot()


def test_delays_do_not_need_clocks_that_agree() -> None:
    truth = run(loads(LINE.format(synchronised="true")), [(0, 0)] * 3)
    result = run(loads(LINE.format(synchronised="false")), CLOCKS)
    for tail, head in (("s1", "s2"), ("s2", "s1"), ("s2", "s3"), ("s3", "s2")):
        one_clock, own = truth.links[LinkKey(tail, head)], result.links[LinkKey(tail, head)]
        assert one_clock.source is DelaySource.STAMPS
        assert own.source is DelaySource.CORRECTED_STAMPS
        assert own.delay_uncertainty_ns is not None
        # A packet takes a millisecond to send, so that much may be hidden; in truth both ways hide nearly the same.
        assert 1 * MS < own.delay_uncertainty_ns < 6 * MS
        assert own.delay_p50_ns == pytest.approx(one_clock.delay_p50_ns, rel=1 / 32, abs=200_000)
    assert result.links[LinkKey("s2", "s3")].delay_p99_ns > 4 * MS
    told = sorted(result.clocks.values(), key=lambda clock: clock.node_id)
    assert [clock.group for clock in told] == [told[0].node_id] * 3
    for clock, (ahead_us, ppm) in zip(told, CLOCKS, strict=True):
        assert abs(clock.offset_ns - (ahead_us * 1000 + ppm * RUN_NS // 1_000_000)) <= 200_000
        assert clock.drift_ppb == pytest.approx(1000 * ppm, abs=50_000)
