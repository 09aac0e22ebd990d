"""A discrete-event simulation of a cluster: units arrive, are placed by a profile's policies, fetch inputs, and run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from controller.cluster.cost_map import CostMap
from controller.cluster.hardware import Cluster, Shares
from controller.common.errors import SchedulerError
from controller.scheduling.framework.deciding import decide
from controller.scheduling.pods import PodChoice, PodProfile
from controller.scheduling.pods.columns import FreeColumns
from controller.scheduling.pods.groups import place_group
from controller.scheduling.pods.snapshot import Snapshot
from controller.scheduling.pods.values import Peer, PendingPod
from controller.scheduling.simulation.network import Network
from controller.scheduling.simulation.queue import Free, Queue, Shape
from controller.scheduling.simulation.settings import SimulationSettings
from controller.scheduling.simulation.trace import Trace
from controller.scheduling.simulation.tracing import Tracer
from controller.scheduling.simulation.workload import Unit, Variant, Workload, units_of
from dataplane.clock import NS_PER_S, VirtualClock
from dataplane.events import EventQueue

LAST_NS: Final = 1 << 62
"""Latest time of an event, so that differences of times fit int64."""

Placed = tuple[Variant, list[PodChoice], list[Shares]]


def simulate(
    cluster: Cluster,
    workload: Workload,
    profile: PodProfile,
    settings: SimulationSettings | None = None,
    costs: CostMap | None = None,
    *,
    until_ns: int | None = None,
    watch: Callable[[Tracer], None] | None = None,
) -> Trace:
    """Replay a workload on a cluster, part of which may be held permanently, and return the trace.

    Without `costs` transfers take no time. Equal arguments give equal traces. `watch` sees the events
    so far after each moment at which something happened. Raise SchedulerError for a workload, node
    or policy that does not match the rest.
    """
    return Simulator(cluster, workload, profile, settings or SimulationSettings(), costs).run(until_ns, watch)


class Simulator:
    """One simulation; see `simulate`."""

    def __init__(
        self,
        cluster: Cluster,
        workload: Workload,
        profile: PodProfile,
        settings: SimulationSettings,
        costs: CostMap | None = None,
    ) -> None:
        self.events = EventQueue(VirtualClock())
        self.network: Network | None = None
        if costs is not None:
            _check_hosts(cluster, workload, costs)
            self.network = Network(costs, self.events, spreading=settings.spreading, seed=settings.seed)
        self._profile = profile
        self._empty = Snapshot.of(Cluster(cluster.nodes), costs)
        self._columns = self._empty.columns
        self._free = FreeColumns.of(self._columns, cluster)
        self._groups: dict[str, dict[int, int]] = {}
        self._snapshot = Snapshot(self._columns, self._free.sealed(), self._empty.ready, costs, self._groups)
        # Fill the cached property: nodes stay on their hosts for the whole run.
        self._snapshot.__dict__["host"] = self._empty.host
        self._units, left_out = units_of(workload)
        self._trace = Tracer(cluster, self._columns, self._units, left_out)
        self._queue = Queue(settings.order, distinct=not profile.is_local)
        self._freed: set[int] = set()
        self._possible: set[object] = set()
        self._is_dispatching = False
        self._running: dict[int, tuple[list[PodChoice], list[Shares]]] = {}
        self._inputs: dict[int, int] = {}

    def run(self, until_ns: int | None = None, watch: Callable[[Tracer], None] | None = None) -> Trace:
        """Process all events, up to and including `until_ns` if given; return the trace."""
        for unit in self._units:
            if not unit.waits:
                self.events.at(unit.arrival_ns, self._ready, unit)
        while (next_ns := self.events.next_ns()) is not None and (until_ns is None or next_ns <= until_ns):
            if next_ns > LAST_NS:
                raise SchedulerError(f"the workload runs for more than {LAST_NS // NS_PER_S} s, the longest there is")
            self.events.run_until(next_ns)
            if watch is not None:
                watch(self._trace)
        self._trace.note_waiting(self._queue, self._profile, self._snapshot)
        return self._trace.finished(self.events.clock.time_ns, self.network)

    def _ready(self, unit: Unit) -> None:
        now_ns = self.events.clock.time_ns
        self._trace.ready_ns[unit.number] = now_ns
        self._queue.put(unit, now_ns)
        self._dispatch_soon()

    def _dispatch_soon(self) -> None:
        """Place units after everything at this moment has happened."""
        if not self._is_dispatching:
            self._is_dispatching = True
            self.events.at(self.events.clock.time_ns, self._dispatch)

    def _dispatch(self) -> None:
        self._is_dispatching = False
        freed, self._freed = [self._free_of(node) for node in self._freed], set()
        for shape, unit in self._queue.to_try(freed, all_shapes=bool(freed) and not self._profile.is_local):
            if (placed := self._place(unit)) is not None:
                self._queue.placed(shape)
                self._start(unit, *placed)
            elif shape.asks not in self._possible and self._never_fits(unit):
                self._drop(shape)
            else:
                self._possible.add(shape.asks)
                self._queue.refused(shape)

    def _place(self, unit: Unit, snapshot: Snapshot | None = None) -> Placed | None:
        """Return the placement of a unit in the fastest variant that fits."""
        snapshot = self._snapshot if snapshot is None else snapshot
        peers = self._peers(unit)
        for variant in unit.variants:
            if len(variant.requests) == 1:
                pod = PendingPod(unit.name, variant.requests[0], unit.priority, peers=peers)
                choice = decide(self._profile, pod, snapshot)
                if choice.is_placed:
                    return variant, [choice], [self._profile.shares(pod, snapshot, choice.candidate)]
                continue
            pods = [
                PendingPod(f"{unit.name}/{member}", request, unit.priority, peers=peers, group=unit.name)
                for member, request in enumerate(variant.requests)
            ]
            group = place_group(self._profile, pods, snapshot)
            if group.is_placed:
                return variant, list(group.choices), list(group.shares)
        return None

    def _peers(self, unit: Unit) -> tuple[Peer, ...]:
        return tuple(Peer(self._source(source), nbytes) for source, nbytes in unit.sources)

    def _source(self, source: int | str) -> str:
        """Return the host of an input: for a unit's output, the node of its first member."""
        return source if isinstance(source, str) else self._columns.names[self._trace.first_node[source]]

    def _start(self, unit: Unit, variant: Variant, choices: list[PodChoice], shares: list[Shares]) -> None:
        now_ns = self.events.clock.time_ns
        for choice, member_shares in zip(choices, shares, strict=True):
            self._free.add(self._columns, choice.candidate, member_shares, -1)
        if len(choices) > 1:
            counts = self._groups.setdefault(unit.name, {})
            for choice in choices:
                counts[choice.candidate] = counts.get(choice.candidate, 0) + 1
        self._running[unit.number] = (choices, shares)
        self._trace.started(unit, variant, choices, now_ns)
        nodes = list(dict.fromkeys(choice.candidate for choice in choices))
        coming = [(self._source(source), node, nbytes) for source, nbytes in unit.sources for node in nodes]
        if self.network is None or not coming:
            self._transferred(unit, variant)
            return
        self._inputs[unit.number] = len(coming)
        for host, node, nbytes in coming:
            self.network.transfer(host, self._columns.names[node], nbytes, partial(self._input, unit, variant))

    def _input(self, unit: Unit, variant: Variant) -> None:
        self._inputs[unit.number] -= 1
        if not self._inputs[unit.number]:
            del self._inputs[unit.number]
            self._transferred(unit, variant)

    def _transferred(self, unit: Unit, variant: Variant) -> None:
        now_ns = self.events.clock.time_ns
        self._trace.transferred_ns[unit.number] = now_ns
        self.events.at(now_ns + variant.duration_ns, self._finish, unit)

    def _finish(self, unit: Unit) -> None:
        now_ns = self.events.clock.time_ns
        self._trace.finished_ns[unit.number] = now_ns
        self._trace.ended += 1
        choices, shares = self._running.pop(unit.number)
        self._groups.pop(unit.name, None)
        for choice, member_shares in zip(choices, shares, strict=True):
            self._free.add(self._columns, choice.candidate, member_shares, 1)
            self._freed.add(choice.candidate)
        for number in unit.after:
            follower = self._units[number]
            follower.waits -= 1
            if not follower.waits:
                if follower.arrival_ns > now_ns:
                    self.events.at(follower.arrival_ns, self._ready, follower)
                else:
                    self._ready(follower)
        self._dispatch_soon()

    def _free_of(self, node: int) -> Free:
        rows = slice(int(self._columns.device_start[node]), int(self._columns.device_start[node + 1]))
        devices = int(self._free.device_milli[rows].sum()) if rows.start < rows.stop else 0
        return Free(int(self._free.cpu_milli[node]), int(self._free.memory_bytes[node]), devices)

    def _never_fits(self, unit: Unit) -> bool:
        """Return whether a unit would not be placed even on an empty cluster."""
        return self._place(unit, self._empty) is None

    def _drop(self, shape: Shape) -> None:
        """Refuse all units of a shape, and those that wait for them."""
        for unit in self._queue.drop(shape):
            self._trace.refused(unit, self._profile, self._empty)
            self._refuse_after(unit)

    def _refuse_after(self, unit: Unit) -> None:
        waiting = [(number, unit.name) for number in unit.after]
        while waiting:
            number, cause = waiting.pop()
            if not self._trace.is_refused[number]:
                self._trace.refused_with(self._units[number], cause)
                waiting.extend((after, self._units[number].name) for after in self._units[number].after)


def _check_hosts(cluster: Cluster, workload: Workload, costs: CostMap) -> None:
    hosts = costs.model.host_number
    if unknown := next((name for name in cluster.nodes if name not in hosts), None):
        raise SchedulerError(f"node {unknown} is not a host of topology {costs.model.topology.name}")
    for task, peers in workload.inputs.items():
        if unknown := next((peer.host for peer in peers if peer.host not in hosts), None):
            raise SchedulerError(f"inputs of {task}: {unknown} is not a host of topology {costs.model.topology.name}")
