"""INT's own load, end to end: programs, collector, path server and controller on one virtual clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from collectors.collector import Collector
from controller.network.intents import FlowSpec
from controller.network.paths.core import PathServerCore
from controller.network.paths.settings import DecideSettings
from controller.network.paths.telemetry_load import TelemetryLoad
from controller.network.virtual import VirtualController
from dataplane.fabric.hosts import FlowMeasurement, Receiver, flow_between
from dataplane.fabric.virtual import VirtualFabric
from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.topology.file import load_topology
from dataplane.topology.values import Topology
from dataplane.wire.packet import decode_udp_frame

MS = 1_000_000
RATE_BPS = 1_800_000
"""Equivalent to 9 Mbit/s on links of 10, with a fifth of the packets."""
ROUND_NS = 50 * MS
TWO_OR_FOUR_LINKS = """
millrace: 1
name: detour
collector: {host: c1}
synchronised_clocks: true
defaults:
  access: {rate: 20 Mbit/s, delay: 10 us}
  link: {rate: 2 Mbit/s, queue_frames: 24}
switches: [{name: s1}, {name: s2}, {name: s3}, {name: s4}, {name: s5}, {name: s6}]
hosts: [{name: h1, switch: s1}, {name: h2, switch: s2}, {name: h3, switch: s3}, {name: c1, switch: s3}]
links:
  - {a: s1, b: s2, delay: 1 ms}
  - {a: s2, b: s3, delay: 1 ms}
  - {a: s1, b: s4, delay: 600 us}
  - {a: s4, b: s5, delay: 600 us}
  - {a: s5, b: s6, delay: 600 us}
  - {a: s6, b: s3, delay: 600 us}
"""


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    """Return links of 2 Mbit/s, two of them from s1 to s3, or four."""
    file = tmp_path / "detour.yaml"
    file.write_text(TWO_OR_FOUR_LINKS, encoding="utf-8")
    return load_topology(str(file))


@dataclass(frozen=True, slots=True)
class Run:
    """Outcome for the large flow."""

    moves: list[tuple[FlowSpec, tuple[str, ...]]]
    last_seconds: FlowMeasurement


def run(topology: Topology, watch: TelemetryLoad | None) -> Run:
    """Send 1.8 Mbit/s over two links of 2, all with telemetry, and another 0.036; 4 s in total."""
    fabric = VirtualFabric(topology, seed=1, pipeline_factory=compiled_pipeline)
    controller = VirtualController.over(fabric)
    controller.start()
    collector, receiver = Collector(topology, fabric.clock), Receiver()
    # Low headroom, so that only telemetry's load can rule out the longer path.
    paths = PathServerCore(topology, DecideSettings(headroom=0.02, hidden=1.0, watch=watch))

    def report(frame: bytes, _now_ns: int) -> None:
        datagram = decode_udp_frame(frame)
        assert datagram is not None
        collector.receive(datagram.payload)

    def decide() -> None:
        result = paths.step(collector.snapshot(), fabric.now_ns)
        if result is not None:
            controller.submit(result.routes)
        fabric.call_after(ROUND_NS, decide)

    fabric.host("c1").on_frame(report)
    fabric.host("h3").on_frame(receiver.receive)
    fabric.call_after(ROUND_NS, decide)
    fabric.start_flow("h1", flow_between(topology, 1, "h1", "h3", rate_bps=RATE_BPS, frame_bytes=1000))
    fabric.start_flow(
        "h2", flow_between(topology, 2, "h2", "h3", rate_bps=RATE_BPS // 50, frame_bytes=1000, start_ns=500 * MS)
    )
    fabric.run_until(4_000 * MS)
    moves = [(decision.flow, decision.new_path) for decision in paths.decisions]
    return Run(moves, receiver.measure(1, 2_000 * MS, 4_000 * MS))


def test_large_flow_does_not_move_if_telemetry_fills_links(topology: Topology) -> None:
    """Four hops add 16 % to the packets' own bytes, for which the links have no room."""
    seen = run(topology, TelemetryLoad())
    assert FlowSpec("h1", "h3") not in [flow for flow, _ in seen.moves]
    assert seen.last_seconds.lost == 0
    assert seen.last_seconds.delay_max_ns is not None
    assert seen.last_seconds.delay_max_ns < 100 * MS


def test_without_that_knowledge_it_is_moved_and_fills_them(topology: Topology) -> None:
    seen = run(topology, None)
    assert (FlowSpec("h1", "h3"), ("s1", "s4", "s5", "s6", "s3")) in seen.moves
    assert seen.last_seconds.delay_p50_ns is not None
    assert seen.last_seconds.delay_p50_ns > 100 * MS
