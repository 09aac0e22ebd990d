"""Continuous traffic of a virtual fabric's hosts: a demand matrix as Poisson arrivals of UDP packets."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dataplane.fabric.hosts import Arrivals, Flow, Sender, flow_between
from dataplane.fabric.live.pacing import SKIP_AFTER_NS
from dataplane.fabric.live.settings import FabricSettings
from dataplane.fabric.live.values import TrafficCounters
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.fabric.virtual.host import VirtualHost
from dataplane.topology.demands import load_demands
from dataplane.topology.values import Topology


@dataclass(frozen=True, slots=True)
class Demand:
    """Traffic that one host sends to another."""

    src: str
    flow: Flow


def demands_of(settings: FabricSettings, topology: Topology, start_ns: int = 0) -> tuple[Demand, ...]:
    """Return the demands of hosts; raise ConfigError naming file and line, or FabricError for an invalid demand."""
    if settings.demands is None:
        return ()
    matrix = load_demands(Path(settings.demands), topology.host)
    return tuple(
        Demand(
            src,
            flow_between(
                topology,
                number,
                src,
                dst,
                max(1, round(rate_bps * settings.scale)),
                frame_bytes=settings.frame_bytes,
                arrivals=Arrivals.POISSON,
                start_ns=start_ns,
            ),
        )
        for number, (src, dst, rate_bps) in enumerate(matrix.pairs())
    )


@dataclass(slots=True)
class VirtualTraffic:
    """Sends demands in a virtual fabric; while the fabric is far behind, packets are skipped and counted."""

    fabric: VirtualFabric
    behind_ns: Callable[[], int]
    counters: TrafficCounters
    _hosts: dict[str, VirtualHost] = field(default_factory=dict)

    def start(self, demands: tuple[Demand, ...]) -> None:
        """Start sending, and counting arrivals."""
        for node in self.fabric.topology.hosts:
            self._hosts[node.name] = self.fabric.host(node.name)
            if self.fabric.topology.collector is None or node.name != self.fabric.topology.collector.host:
                self._hosts[node.name].on_frame(self._arrived)
        for demand in demands:
            rng = random.Random(f"{self.fabric.seed}/flow/{demand.flow.flow_id}")
            self._plan(self._hosts[demand.src], Sender(demand.flow, rng))

    def _arrived(self, _frame: bytes, _now_ns: int) -> None:
        self.counters.received += 1

    def _plan(self, host: VirtualHost, sender: Sender) -> None:
        due_ns = sender.next_send_ns()
        if due_ns is not None:
            self.fabric.events.at(max(due_ns, self.fabric.now_ns), self._send, host, sender)

    def _send(self, host: VirtualHost, sender: Sender) -> None:
        if self.behind_ns() > SKIP_AFTER_NS:
            sender.skip()
            self.counters.skipped += 1
        elif host.send(sender.frame(self.fabric.now_ns)):
            self.counters.sent += 1
        else:
            self.counters.refused += 1
        self._plan(host, sender)
