"""A fabric without time: the controller's tables of a leaf-spine, and bursts of frames from host to host through them.

The tables come from the real controller over P4Runtime in virtual time. The frames go through each switch's program
directly, a burst at a time, without queues, rates and cables, so that a million of them are a matter of minutes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from controller.network.aggregation.settings import AggregationSettings
from controller.network.tables.telemetry.int_domain import DEFAULT_DOMAIN, IntDomain
from controller.network.tables.telemetry.int_watch import Watch
from controller.network.virtual import VirtualController, WriteDelays
from dataplane.fabric.virtual import VirtualFabric
from dataplane.program.model import Program
from dataplane.switch.pipeline import Dequeued, Frame, Output, Pipeline
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.switch import PipelineFactory
from dataplane.topology.file import load_topology

TOPOLOGY = load_topology("leaf-spine:spines=1,leaves=2,hosts=2")
SAME_LEAF, ACROSS = ("h1", "h2"), ("h1", "h4")
HOPS_ACROSS = 3
_CPU_PORT = 255
_US_A_BURST = 1_000
CHANGE_NS = 10_000_000_000
ABOUT_REPORTS = ("without_target", "about_report", "not_watched", "over_quota")

Change = Callable[[Program], Program]
"""Derives a program from the committed one."""


class Fabric(Protocol):
    """Takes frames from host to host."""

    def configure(self, domain: IntDomain = ..., watches: Sequence[Watch] = ...) -> None:
        """Configure the switches' INT."""
        ...

    def carry(self, src: str, frames: Sequence[bytes], *, reports: bool = True) -> Carried:
        """Send a burst from a host; return its outcome."""
        ...


@dataclass(slots=True)
class Carried:
    """Outcome of a burst: frames by the host that received them, and drops by counter."""

    arrived: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    drops: dict[str, int] = field(default_factory=dict)


class Chain:
    """Two leaves and a spine with one of the two programs, executed by one pipeline; `change` makes mutants."""

    def __init__(self, pipeline: PipelineFactory, *, aggregating: bool = False, change: Change | None = None) -> None:
        self._fabric = VirtualFabric(TOPOLOGY)
        self._make, self._change = pipeline, change
        aggregation = AggregationSettings() if aggregating else None
        delays = WriteDelays(write_delay_ns=0)
        self._controller = VirtualController.over(self._fabric, delays=delays, aggregation=aggregation)
        self._controller.start()
        self._pipelines: dict[str, Pipeline] = {}
        self._now_us = 0

    def configure(self, domain: IntDomain = DEFAULT_DOMAIN, watches: Sequence[Watch] = (Watch(),)) -> None:
        """Let the controller write other marks and watches to the switches."""
        self._controller.configure(watches=watches, domain=domain)
        self._fabric.run_until(self._fabric.now_ns + CHANGE_NS)
        assert self._controller.features.telemetry.is_settled

    def carry(self, src: str, frames: Sequence[bytes], *, reports: bool = True) -> Carried:
        """Send a burst from a host; without `reports` these end at the switch that makes them."""
        before, carried = program_drops(self._fabric), Carried()
        self._now_us += _US_A_BURST
        edge = TOPOLOGY.attachment[src]
        work: list[tuple[str, int, list[bytes]]] = [(edge.node, edge.port, list(frames))]
        while work:
            node, port, burst = work.pop(0)
            leaving: dict[int, list[bytes]] = defaultdict(list)
            for output in self._pass(node, [Frame(port, data) for data in burst], reports=reports):
                leaving[output.port].append(output.data)
            for out_port, sent in leaving.items():
                assert out_port != _CPU_PORT, "nothing is for the controller"
                end = TOPOLOGY.neighbours[node][out_port]
                if end.node in TOPOLOGY.host:
                    carried.arrived[end.node] += sent
                else:
                    work.append((end.node, end.port, sent))
        after = program_drops(self._fabric)
        carried.drops = {name: count - before[name] for name, count in after.items() if count > before[name]}
        return carried

    def _pass(self, node: str, frames: list[Frame], *, reports: bool) -> list[Output]:
        pipeline = self._pipeline(node)
        placements = pipeline.ingress(frames, self._now_us)
        egress = pipeline.egress(
            [_dequeued(placement.packet, placement.port, self._now_us) for placement in placements], self._now_us
        )
        outputs, copies = list(egress.outputs), egress.placements
        while reports and copies:
            egress = pipeline.egress([_dequeued(copy.packet, copy.port, self._now_us) for copy in copies], self._now_us)
            outputs += egress.outputs
            copies = egress.placements
        return outputs

    def _pipeline(self, node: str) -> Pipeline:
        if node not in self._pipelines:
            switch = self._fabric.switch(node)
            assert switch.program is not None
            assert switch.state is not None
            program = switch.program if self._change is None else self._change(switch.program)
            self._pipelines[node] = self._make(program, switch.state, SplitMix(1))
        return self._pipelines[node]


def program_drops(fabric: VirtualFabric) -> Mapping[str, int]:
    """Return the packets of each drop counter over all switches, except those about reports."""
    counts: dict[str, int] = defaultdict(int)
    for node in TOPOLOGY.switches:
        state = fabric.switch(node.name).state
        assert state is not None
        for name, array in state.counters.items():
            short = name.rpartition(".")[2]
            if short.startswith("drop_") and not short.endswith(ABOUT_REPORTS):
                counts[short] += array.packets[0]
    return counts


def _dequeued(packet: object, port: int, now_us: int) -> Dequeued:
    return Dequeued(packet, port, 0, now_us, 0, 0, 0)
