"""Records the events of a simulation and turns them into a `Trace`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from controller.cluster.hardware import WHOLE, Cluster
from controller.scheduling.pods import PodChoice, PodProfile
from controller.scheduling.pods.columns import NodeColumns
from controller.scheduling.pods.explaining import explain
from controller.scheduling.pods.snapshot import Snapshot
from controller.scheduling.pods.values import PendingPod
from controller.scheduling.simulation.trace import NOT_YET, Held, Longs, Trace
from controller.scheduling.simulation.workload import LeftOut, Unit, Variant

if TYPE_CHECKING:
    from controller.scheduling.simulation.network import Network


class Tracer:
    """Times by unit number, as they happen."""

    def __init__(
        self, cluster: Cluster, columns: NodeColumns, units: Sequence[Unit], left_out: Sequence[LeftOut]
    ) -> None:
        self._cluster, self._columns, self._units, self._left_out = cluster, columns, units, left_out
        count = len(units)
        self.ready_ns, self.transferred_ns, self.finished_ns = ([NOT_YET] * count for _ in range(3))
        self.started_ns = [NOT_YET] * count
        self.first_node = [NOT_YET] * count
        self.is_refused = [False] * count
        self.count, self.ended = count, 0
        self._nodes: list[tuple[str, ...]] = [()] * count
        self._variants: list[Variant | None] = [None] * count
        self._choices: list[tuple[int, int, int] | None] = [None] * count
        self._reasons: dict[int, str] = {}

    def started(self, unit: Unit, variant: Variant, choices: Sequence[PodChoice], now_ns: int) -> None:
        """Record a unit's placement, and the reason."""
        number, first = unit.number, choices[0]
        self.started_ns[number] = now_ns
        self.first_node[number] = first.candidate
        self._nodes[number] = tuple(self._columns.names[choice.candidate] for choice in choices)
        self._variants[number] = variant
        self._choices[number] = (first.points, first.equal, sum(count for _, count in first.refused))

    def refused(self, unit: Unit, profile: PodProfile, empty: Snapshot) -> None:
        """Record that a unit can never be placed, and why."""
        self.is_refused[unit.number] = True
        self._reasons[unit.number] = f"does not fit even an empty cluster: {self._refusal(unit, profile, empty)}"

    def refused_with(self, unit: Unit, cause: str) -> None:
        """Record that a unit waits for one that can never be placed."""
        self.is_refused[unit.number] = True
        self._reasons[unit.number] = f"waits for {cause}, which cannot be placed"

    def note_waiting(self, waiting: Iterable[Unit], profile: PodProfile, snapshot: Snapshot) -> None:
        """Record why units still wait at the end."""
        for unit in waiting:
            self._reasons[unit.number] = self._refusal(unit, profile, snapshot)

    def finished(self, end_ns: int, network: Network | None) -> Trace:
        """Return the trace."""
        links = network.costs.links if network is not None else None
        return Trace(
            cluster=self._cluster,
            names=tuple(unit.name for unit in self._units),
            submitted_ns=_longs([unit.arrival_ns for unit in self._units]),
            ready_ns=_longs(self.ready_ns),
            started_ns=_longs(self.started_ns),
            transferred_ns=_longs(self.transferred_ns),
            finished_ns=_longs(self.finished_ns),
            kinds=tuple("" if variant is None else str(variant.kind) for variant in self._variants),
            nodes=tuple(self._nodes),
            reasons=tuple(self._reason(number) for number in range(len(self._units))),
            is_refused=np.array(self.is_refused, np.bool_),
            held=self._held(),
            left_out=tuple((item.name, item.reason) for item in self._left_out),
            links=() if links is None else tuple(map(str, links.numbers)),
            link_rate_bps=_longs([]) if links is None else links.rate_bps,
            carried_bits=_longs([]) if network is None else network.carried_bits,
            transfers=0 if network is None else network.transfers,
            end_ns=end_ns,
        )

    def _reason(self, number: int) -> str:
        if (choice := self._choices[number]) is None:
            return self._reasons.get(number, "")
        points, equal, refused = choice
        drawn = f", drawn from {equal} tied" if equal > 1 else ""
        return (
            f"{points} points{drawn}, {len(self._columns.nodes) - refused} of {len(self._columns.nodes)} could run it"
        )

    @staticmethod
    def _refusal(unit: Unit, profile: PodProfile, snapshot: Snapshot) -> str:
        requests = unit.variants[0].requests
        why = explain(profile, PendingPod(unit.name, requests[0], unit.priority), snapshot, most=1)
        if why.choice is not None:
            return f"its {len(requests)} members do not fit together"
        example = f", {why.refused[0].name}: {why.refused[0].reason}" if why.refused else ""
        return f"{why.summary}{example}"

    def _held(self) -> Held:
        amounts: dict[str, Longs] = {}
        columns = {"cpu": [0] * len(self._units), "memory": [0] * len(self._units)}
        for number, variant in enumerate(self._variants):
            for request in variant.requests if variant is not None else ():
                columns["cpu"][number] += request.cpu_milli
                columns["memory"][number] += request.memory_bytes
                for device in request.devices:
                    column = columns.setdefault(str(device.kind), [0] * len(self._units))
                    column[number] += device.count * device.thousandths
        nodes = self._columns.nodes
        totals = {"cpu": sum(node.cpu_milli for node in nodes), "memory": sum(node.memory_bytes for node in nodes)}
        for node in nodes:
            for node_device in node.devices:
                totals[str(node_device.kind)] = totals.get(str(node_device.kind), 0) + WHOLE
        for name in totals:
            amounts[name] = _longs(columns.get(name, [0] * len(self._units)))
        return Held(amounts, totals)


def _longs(values: Sequence[int]) -> Longs:
    return np.array(values, np.int64)
