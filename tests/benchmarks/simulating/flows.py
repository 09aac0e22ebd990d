"""End times of transfers according to the simulation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from collectors.values import Snapshot
from controller.cluster.cost_map import CostMap
from controller.scheduling.simulation.network import Framing, Network
from dataplane.clock import VirtualClock
from dataplane.events import EventQueue
from dataplane.switch.traffic import WIRE_OVERHEAD_BYTES
from dataplane.topology.values import Topology
from tests.benchmarks.simulating.cases import Transfer

PAYLOAD_BYTES = 1200
UDP_BYTES = 14 + 20 + 8
FRAMING = Framing(PAYLOAD_BYTES, UDP_BYTES + WIRE_OVERHEAD_BYTES)


def simulated_ends_ns(topology: Topology, transfers: Sequence[Transfer]) -> list[int]:
    """Return when the last byte of each transfer arrives, by flows that share links fairly."""
    events = EventQueue(VirtualClock())
    network = Network(CostMap.of(topology, Snapshot(0, {}, {}, {})), events, framing=FRAMING)
    ends: dict[int, int] = {}

    def ended(number: int) -> None:
        ends[number] = events.clock.time_ns

    for number, transfer in enumerate(transfers):
        events.at(
            transfer.start_ns, network.transfer, transfer.src, transfer.dst, transfer.nbytes, partial(ended, number)
        )
    while (next_ns := events.next_ns()) is not None:
        events.run_until(next_ns)
    return [ends[number] for number in range(len(transfers))]
