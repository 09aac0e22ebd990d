"""The same fabric with time: every frame through hosts' uplinks, switches' real queues and cables, hellos between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from controller.network.aggregation.settings import AggregationSettings
from controller.network.tables.telemetry.int_domain import DEFAULT_DOMAIN, IntDomain
from controller.network.tables.telemetry.int_watch import Watch
from controller.network.virtual import VirtualController
from dataplane.fabric.virtual import VirtualFabric
from dataplane.switch.switch import PipelineFactory
from tests.payloads.chain import CHANGE_NS, TOPOLOGY, Carried, program_drops

AT_ONCE = 64
"""Frames that a host hands to its uplink at one instant: INT and reports make more of them, and a queue holds 256."""
ARRIVED_NS = 1_000_000
"""By then every frame of these has left the fabric: it has links of 10 Gbit/s and 1 us."""


class Timed:
    """A fabric in virtual time under the default controller, as it comes; otherwise like `Chain`."""

    def __init__(self, pipeline: PipelineFactory, *, aggregating: bool = False) -> None:
        self._fabric = VirtualFabric(TOPOLOGY, pipeline_factory=pipeline)
        aggregation = AggregationSettings() if aggregating else None
        self._controller = VirtualController.over(self._fabric, aggregation=aggregation)
        self._controller.start()
        self._fabric.run_until(CHANGE_NS)
        self._carried = Carried()
        for host in TOPOLOGY.hosts:
            self._fabric.host(host.name).on_frame(partial(self._keep, host.name))

    def configure(self, domain: IntDomain = DEFAULT_DOMAIN, watches: Sequence[Watch] = (Watch(),)) -> None:
        """Have the controller bring other marks and watches into the switches."""
        self._controller.configure(watches=watches, domain=domain)
        self._fabric.run_until(self._fabric.now_ns + CHANGE_NS)
        assert self._controller.features.telemetry.is_settled

    def carry(self, src: str, frames: Sequence[bytes], *, reports: bool = True) -> Carried:
        """Send a burst from a host and wait until it has arrived; there is no way to be without reports."""
        assert reports, "what has queues and cables has reports on them"
        before, self._carried = self._drops(), Carried()
        host = self._fabric.host(src)
        for start in range(0, len(frames), AT_ONCE):
            for frame in frames[start : start + AT_ONCE]:
                assert host.send(frame), "the uplink is full"
            self._fabric.run_until(self._fabric.now_ns + ARRIVED_NS)
        after = self._drops()
        self._carried.drops = {name: count - before.get(name, 0) for name, count in after.items()}
        self._carried.drops = {name: count for name, count in self._carried.drops.items() if count}
        return self._carried

    def _keep(self, host: str, frame: bytes, _: int) -> None:
        self._carried.arrived[host].append(frame)

    def _drops(self) -> Mapping[str, int]:
        """Return what switches' programs dropped, and their queues on the way to another host than the collector."""
        drops = dict(program_drops(self._fabric))
        assert TOPOLOGY.collector is not None
        reported = TOPOLOGY.attachment[TOPOLOGY.collector.host]
        for node in TOPOLOGY.switches:
            for port, counters in self._fabric.switch(node.name).counters().ports.items():
                if (node.name, port) != (reported.node, reported.port):
                    for name, count in counters.drops.items():
                        drops[name] = drops.get(name, 0) + count
        return drops
