"""Fabrics whose switches run a pipeline small enough to reason about: shortest paths by destination address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import networkx as nx
import pytest

from dataplane.fabric.virtual import VirtualFabric
from dataplane.program.model import Program
from dataplane.switch.pipeline import Dequeued, DigestMessage, EgressResult, Frame, Output, Placement
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.tables import ForwardingState
from dataplane.topology.values import Topology

MakeFabric = Callable[..., VirtualFabric]


class EmptyProgram:
    """A program without objects: the static pipeline reads none."""

    tables: dict[str, object] = {}  # noqa: RUF012 - stays empty
    actions = profiles = counters = registers = meters = value_sets = tables


class StaticPipeline:
    """Forwards by IPv4 destination; anything else is dropped as `no_route`."""

    def __init__(self, ports: dict[bytes, int]) -> None:
        self.ports = ports
        self.drops: dict[str, int] = {}
        self.parser_errors: dict[str, int] = {}

    def take_digests(self) -> list[DigestMessage]:
        return []

    def ingress(self, frames: Sequence[Frame], now_us: int) -> list[Placement]:
        placements = []
        for frame in frames:
            port = self.ports.get(frame.data[30:34])
            if port is None:
                self.drops["no_route"] = self.drops.get("no_route", 0) + 1
            else:
                placements.append(Placement(frame.data, port, 0, len(frame.data)))
        return placements

    def egress(self, packets: Sequence[Dequeued], now_us: int) -> EgressResult:
        return EgressResult([Output(packet.port, packet.packet) for packet in packets])

    def deflect(self, refused: Placement, session: int) -> list[Placement]:
        return []


def ports_towards_hosts(topology: Topology, switch: str) -> dict[bytes, int]:
    """Return a switch's port on the least-delay path to every host, by IPv4 address."""
    graph = nx.Graph()
    for link in topology.links:
        graph.add_edge(link.a.node, link.b.node, delay_ns=link.delay_ns)
    port = {end.node: number for number, end in topology.neighbours[switch].items()}
    return {
        host.ipv4.packed: port[nx.shortest_path(graph, switch, host.name, weight="delay_ns")[1]]
        for host in topology.hosts
    }


@pytest.fixture
def make_fabric() -> MakeFabric:
    def make(topology: Topology, **settings: Any) -> VirtualFabric:
        ports: dict[bytes, int] = {}

        def pipeline(program: Program, state: ForwardingState, rng: SplitMix) -> StaticPipeline:
            return StaticPipeline(dict(ports))

        fabric = VirtualFabric(topology, pipeline_factory=pipeline, **settings)
        for node in topology.switches:
            ports.clear()
            ports.update(ports_towards_hosts(topology, node.name))
            fabric.switch(node.name).commit(cast(Program, EmptyProgram()))
        return fabric

    return make
