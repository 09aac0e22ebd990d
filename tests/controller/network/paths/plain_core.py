"""Reference core of a path server that handles 5-tuples and flows one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from collectors.values import FlowKey, PathState, Snapshot
from controller.network.intents import FlowSpec
from controller.network.paths.balancing.flows import report_flows
from controller.network.paths.balancing.forwarding import Forwarding
from controller.network.paths.balancing.values import MeasuredFlow
from controller.network.paths.core import PathServerCore
from controller.network.paths.deciding.decide import Assignment, Part
from controller.network.paths.deciding.graph import Network, Path
from controller.network.paths.deciding.located import LocatedFlows
from controller.network.paths.membership import Membership
from controller.network.paths.positions import FlowPositions
from controller.network.paths.seen_flows import MeasuredRate, SeenFlows, SeenRows, is_probe
from controller.network.paths.telemetry_load import DEFAULT_PACKET_BYTES, TelemetryLoad
from controller.network.tables.path_choice import flow_hash

MOSTLY: Final = 0.85


class PlainMembership(Membership):
    """Admits flows like `Membership`, one by one."""

    def discover(self, seen: SeenRows, held: Collection[FlowSpec], now_ns: int) -> list[FlowSpec]:
        if self.listed:
            return []
        self.flows.add(held, now_ns)
        rates: dict[FlowSpec, int] = {}
        for key, rate_bps in zip(seen.paths.flow_keys(), seen.paths.integers("rate_bps").tolist(), strict=True):
            flow = None if is_probe(key) else self._seen.flow_of(key)
            if flow is not None:
                rates[flow] = rates.get(flow, 0) + max(rate_bps, 0)
        for flow in rates:
            number = self.flows.number(flow)
            if number is not None:
                self.flows.seen_ns[number] = now_ns
        new = [flow for flow in rates if flow not in self.flows]
        room = max(self.most - len(self.flows), 0)
        replaced: list[FlowSpec] = []
        if len(new) > room:
            new, replaced = self._admitted(new, rates, held, room, now_ns)
        self.flows.add(new, now_ns)
        return replaced

    def _admitted(
        self, new: list[FlowSpec], rates: dict[FlowSpec, int], held: Collection[FlowSpec], room: int, now_ns: int
    ) -> tuple[list[FlowSpec], list[FlowSpec]]:
        may_replace = not 0 <= now_ns - self._replaced_ns < 1_000_000_000
        self._replaced_ns = now_ns if may_replace else self._replaced_ns
        heaviest = sorted(new, key=lambda flow: -rates[flow])
        admitted, challengers = heaviest[:room], heaviest[room:]
        movable = [flow for flow in self.flows if may_replace and flow not in held]
        lightest = sorted(movable, key=lambda flow: rates.get(flow, 0))
        replaced: list[FlowSpec] = []
        for challenger, flow in zip(challengers, lightest, strict=False):
            if rates[challenger] <= 2 * rates.get(flow, 0):
                break
            self.flows.discard(flow)
            self._counters["flows_replaced"] += 1
            replaced.append(flow)
            admitted.append(challenger)
        self._counters["flows_over_limit"] += len(new) - len(admitted)
        return admitted, replaced


class PlainPositions(FlowPositions):
    """Locates flows like `FlowPositions`, one by one; the managed ones are in `ManagedFlows`, too."""

    membership = PlainMembership

    def current(self, snapshot: Snapshot, now_ns: int) -> LocatedFlows:
        """Return every managed flow with its path, flow by flow."""
        measured, rates = seen_paths(self.seen, snapshot), seen_rates(self.seen, snapshot)
        parts, listed = parts_of(snapshot, self.network), self._members.listed
        assignments: dict[FlowSpec, Assignment] = {}
        for flow in self.managed:
            path = self._path(flow, measured.get(flow))
            if path is not None and len(path) > 1:
                since_ns = self._moved_ns.get(flow)
                since_ns = None if since_ns is None or since_ns > now_ns else since_ns
                rate = rates.get(flow) if listed.get(flow) is None else None
                spread = () if flow in self.explicit else parts.get(flow, ())
                is_pinned = self.pins.holds(flow, path)
                assignment = Assignment(path, since_ns, listed.get(flow), parts=spread, pinned=is_pinned)
                assignments[flow] = assignment if rate is None else rate.given_to(assignment)
        return LocatedFlows.of(self.network.book, assignments)

    def measured_flows(self, snapshot: Snapshot, forwarding: Forwarding) -> list[MeasuredFlow]:
        def has_route(key: FlowKey, src: str, dst: str) -> bool:
            return FlowSpec(src, dst) in self.explicit or self.seen.flow_of(key) in self.explicit

        flows = measured_flows(snapshot, self.network, has_route, self.settings.stale_after_ns)
        watch, seen = self.settings.watch, self.seen.rows(snapshot)
        return flows if watch is None else [*flows, *report_flows(seen, self.network, watch, forwarding.path)]

    def _seen_path(self, flow: FlowSpec, snapshot: Snapshot) -> Path | None:
        return seen_paths(self.seen, snapshot).get(flow)


class PlainCore(PathServerCore):
    """Decides like `PathServerCore`, with flows one by one."""

    kind_of_positions = PlainPositions


def seen_paths(seen: SeenFlows, snapshot: Snapshot) -> Mapping[FlowSpec, Path]:
    """Return the last seen path of each flow; with several 5-tuples, that of the largest sender."""
    paths: dict[FlowSpec, tuple[tuple[int, int], Path]] = {}
    for key, state in snapshot.paths.items():
        rank, flow = (state.rate_bps or 0, -state.age_ns), seen.flow_of(key)
        if flow is not None and (flow not in paths or rank > paths[flow][0]):
            paths[flow] = rank, state.switches
    return {flow: path for flow, (_, path) in paths.items()}


def seen_rates(seen: SeenFlows, snapshot: Snapshot) -> Mapping[FlowSpec, MeasuredRate]:
    """Return the rate of each flow, None if one of its 5-tuples has no rate yet."""
    rates: dict[FlowSpec, MeasuredRate] = {}
    unknown: set[FlowSpec] = set()
    for key, state in snapshot.paths.items():
        rate, flow = MeasuredRate.of(state), seen.flow_of(key)
        if flow is None:
            continue
        if rate is None:
            unknown.add(flow)
        else:
            rates[flow] = rate + rates[flow] if flow in rates else rate
    return {flow: rate for flow, rate in rates.items() if flow not in unknown}


def parts_of(snapshot: Snapshot, network: Network) -> Mapping[FlowSpec, tuple[Part, ...]]:
    """Return the paths of pairs of hosts without a main path."""
    hosts = network.topology.host_by_address
    rates: dict[FlowSpec, dict[Path, MeasuredRate]] = {}
    for key, state in snapshot.paths.items():
        src, dst = hosts.get(key.src), hosts.get(key.dst)
        if src is None or dst is None or src is dst or not state.rate_bps:
            continue
        path, rate = state.switches, MeasuredRate.of(state)
        if rate and path and (path[0], path[-1]) == network.ends(src.name, dst.name) and network.has_path(path):
            by_path = rates.setdefault(FlowSpec(src.name, dst.name), {})
            by_path[path] = by_path[path] + rate if path in by_path else rate
    return {
        pair: tuple(Part(path, rate.rate_bps - rate.past_bps, rate.variance) for path, rate in sorted(by_path.items()))
        for pair, by_path in rates.items()
        if max(part.rate_bps for part in by_path.values()) < MOSTLY * sum(part.rate_bps for part in by_path.values())
    }


def measured_flows(
    snapshot: Snapshot, network: Network, has_path: Callable[[FlowKey, str, str], bool], stale_after_ns: int
) -> list[MeasuredFlow]:
    """Return the flows of a snapshot between hosts of different switches; `has_path` by flow and host names."""
    topology, numbers = network.topology, network.table.switch_number
    hosts = topology.host_by_address
    flows: list[MeasuredFlow] = []
    for key, state in snapshot.paths.items():
        src, dst = hosts.get(key.src), hosts.get(key.dst)
        if src is None or dst is None or not state.rate_bps or state.age_ns > stale_after_ns:
            continue
        path = state.switches
        if len(path) < 2 or path[0] != topology.attachment[src.name].node or not network.has_path(path):
            continue
        if path[-1] != topology.attachment[dst.name].node or has_path(key, src.name, dst.name):
            continue
        packets = max(1.0, state.measured_bytes / DEFAULT_PACKET_BYTES)
        pps = state.rate_bps / (8 * DEFAULT_PACKET_BYTES)
        ends = numbers[path[0]], numbers[path[-1]]
        flows.append(MeasuredFlow(flow_hash(key), network.rows(path), *ends, state.rate_bps, pps, packets))
    return flows


def report_rates(states: list[PathState], network: Network, watch: TelemetryLoad) -> dict[str, float]:
    """Return the bit/s of each switch's reports, flow by flow."""
    rates: dict[str, float] = {}
    numbers, names = network.table.switch_number, network.table.switches
    for state in states:
        if not state.rate_bps or not state.switches or any(name not in numbers for name in state.switches):
            continue
        pps = state.rate_bps / (8 * DEFAULT_PACKET_BYTES)
        for number, nbytes in watch.reports([numbers[name] for name in state.switches]):
            rates[names[number]] = rates.get(names[number], 0.0) + 8 * pps * nbytes
    return rates
