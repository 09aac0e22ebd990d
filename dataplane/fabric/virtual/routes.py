"""Routes of flows through the switches of a virtual fabric, asked of their programs and tables without sending."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dataplane.errors import FabricError
from dataplane.fabric.hosts import Flow, Sender
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.program.model import Program
from dataplane.switch.compiled.pipeline import CompiledPipeline
from dataplane.switch.compiled.program import compile_program
from dataplane.switch.pipeline import Dequeued, Frame, Output, Placement
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.switch import Switch
from dataplane.switch.tables import ForwardingState
from dataplane.topology.values import LinkKey
from dataplane.wire import ethernet

_MOST_SWITCHES: Final = 64
"""As many as a packet's TTL lets it cross."""
_IPV4_ADDRESSES: Final = slice(ethernet.SIZE + 12, ethernet.SIZE + 20)
_IPV6_ADDRESSES: Final = slice(ethernet.SIZE + 8, ethernet.SIZE + 40)


@dataclass(frozen=True, slots=True)
class Route:
    """The links that a packet takes from its host on, and the switches that decided so; `arrives` at some host."""

    links: tuple[LinkKey, ...]
    switches: tuple[str, ...]
    arrives: bool


class RouteFinder:
    """Finds routes; switches must run compiled programs, and notice nothing, except that tallies of entries grow."""

    def __init__(self, fabric: VirtualFabric, before_switch: Callable[[str], None] | None = None) -> None:
        """Call `before_switch` before a switch is asked."""
        self._fabric = fabric
        self._before_switch = before_switch
        self._scratch: dict[str, CompiledPipeline] = {}

    def find(self, host: str, flow: Flow) -> Route:
        """Return the present route of a flow's packets; raise FabricError if a switch's program is interpreted."""
        topology = self._fabric.topology
        frame = Sender(flow, random.Random(0)).frame(self._fabric.now_ns)
        end = topology.attachment[host]
        links, switches = [LinkKey(host, end.node)], list[str]()
        while end.node in topology.switch and len(switches) < _MOST_SWITCHES:
            switches.append(end.node)
            output = self._ask(end.node, end.port, frame, flow)
            peer = None if output is None else topology.neighbours[end.node].get(output.port)
            if output is None or peer is None:
                return Route(tuple(links), tuple(switches), arrives=False)
            links.append(LinkKey(end.node, peer.node))
            frame, end = output.data, peer
        return Route(tuple(links), tuple(switches), arrives=end.node not in topology.switch)

    def _ask(self, name: str, port: int, frame: bytes, flow: Flow) -> Output | None:
        """Return what a switch would send for a flow's frame; None if it drops it."""
        if self._before_switch is not None:
            self._before_switch(name)
        switch = self._fabric.switch(name)
        if switch.program is None or not switch.is_open(port):
            return None
        addresses = _IPV4_ADDRESSES if flow.src.version == 4 else _IPV6_ADDRESSES
        outputs = [output for output in self._outputs(name, switch, port, frame) if switch.is_open(output.port)]
        # Reports go elsewhere; in a tunnel the packet itself may be the only one.
        same = [output for output in outputs if output.data[addresses] == frame[addresses]]
        return next(iter(same or outputs[-1:]), None)

    def _outputs(self, name: str, switch: Switch, port: int, frame: bytes) -> list[Output]:
        now_us = self._fabric.now_ns // 1_000
        with switch.paused():
            program, pipeline = switch.program, switch.pipeline
            if program is None or not isinstance(pipeline, CompiledPipeline):
                raise FabricError(f"switch {name}: routes of flows need a compiled program")
            scratch = self._scratch_for(program)
            with scratch.reading(pipeline):
                placements = scratch.ingress((Frame(port, frame),), now_us)
                outputs = scratch.egress([_dequeued(placement, now_us) for placement in placements], now_us).outputs
            scratch.take_digests()
        return outputs

    def _scratch_for(self, program: Program) -> CompiledPipeline:
        """Return a pipeline of a program whose registers, counters and meters belong to no switch."""
        if program.digest not in self._scratch:
            compiled = compile_program(program)
            self._scratch[program.digest] = CompiledPipeline(compiled, ForwardingState(program), SplitMix(0))
        return self._scratch[program.digest]


def _dequeued(placement: Placement, now_us: int) -> Dequeued:
    return Dequeued(
        placement.packet,
        placement.port,
        placement.priority,
        enq_timestamp_us=now_us,
        enq_qdepth=0,
        deq_timedelta_us=0,
        deq_qdepth=0,
    )
