"""Positions of the managed flows: the paths that they were given or are seen on, and their rates, as far as known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set

import numpy as np

from collectors.values import FlowKey, Snapshot
from controller.common.errors import PathError
from controller.network.algorithms.link_table import Flags, Longs
from controller.network.intents import FlowSpec
from controller.network.paths.balancing.flows import measured_flows, report_flows
from controller.network.paths.balancing.forwarding import Forwarding
from controller.network.paths.balancing.values import MeasuredFlow
from controller.network.paths.deciding.decide import Assignment, Decision
from controller.network.paths.deciding.graph import Network
from controller.network.paths.deciding.located import UNKNOWN, LocatedFlows, Parts
from controller.network.paths.deciding.path_book import NOWHERE, Path, PathBook
from controller.network.paths.engineering.demands import demands_of
from controller.network.paths.managed_flows import ManagedFlows
from controller.network.paths.membership import Membership
from controller.network.paths.pins import Pins
from controller.network.paths.records.values import Assigned
from controller.network.paths.seen_flows import SeenFlows, SeenRows, is_probe
from controller.network.paths.settings import DecideSettings, ManagedFlow
from dataplane.topology.values import LinkKey


class FlowPositions:
    """The managed flows, the paths that were assigned to them, and their pins.

    A flow is on its explicit path, else on the only base path, else where it was last seen, else on the first base
    path; where traffic is engineered no base path is the only one.
    """

    membership: type[Membership] = Membership
    """Replaced by the tests' reference."""

    def __init__(
        self,
        network: Network,
        settings: DecideSettings,
        flows: Iterable[ManagedFlow],
        counters: Counter[str],
        *,
        max_flows: int,
        forget_after_ns: int,
        is_engineered: bool,
    ) -> None:
        rates = {flow.spec: flow.rate_bps for flow in flows}
        self.network, self.settings, self.is_engineered = network, settings, is_engineered
        self.seen = SeenFlows(network, rates)
        self._members = self.membership(
            network, self.seen, rates, counters, most=max_flows, forget_after_ns=forget_after_ns
        )
        self.managed = self._members.flows
        self.pins = Pins(network.topology)
        self.explicit: dict[FlowSpec, Assigned] = {}
        self._moved_ns: dict[FlowSpec, int] = {}

    @property
    def last_move_ns(self) -> int | None:
        """Time of the newest move, None without any."""
        return max(self._moved_ns.values(), default=None)

    def follow(self, snapshot: Snapshot, now_ns: int) -> bool:
        """Add the flows that telemetry shows, drop those not seen for long; return whether that dropped a route."""
        members, pinned = self._members, self.pins.paths
        replaced = members.discover(self.seen.rows(snapshot), {**self.explicit, **pinned}, now_ns)
        forgotten = members.forget(pinned, now_ns)
        for flow in (*replaced, *forgotten):
            self._moved_ns.pop(flow, None)
        routed = [flow for flow in forgotten if self.explicit.pop(flow, None) is not None]
        return bool(routed)

    def current(self, snapshot: Snapshot, now_ns: int) -> LocatedFlows:
        """Return every managed flow with its current path; those without one, or within one switch, are left out."""
        managed, seen, rates_bps = self.managed, self.seen.rows(snapshot), self._members.listed
        count, book = len(managed), seen.book
        numbers = managed.numbers(seen.codes)
        assigned = _overlaid(managed, book, self.explicit)
        default = _default_paths(managed, seen, numbers, is_engineered=self.is_engineered)
        path = np.where(assigned == NOWHERE, default, assigned)
        hops = book.rows.hops
        keep = (path != NOWHERE) & (hops[path] > 0 if len(hops) else False)
        since_ns: Longs = np.full(count, UNKNOWN, np.int64)
        for number, flow in managed.among(self._moved_ns):
            # A time in the future is from before the clock was set back.
            since_ns[number] = self._moved_ns[flow] if self._moved_ns[flow] <= now_ns else UNKNOWN
        rate_bps: Longs = np.full(count, UNKNOWN, np.int64)
        for number, flow in managed.among(rates_bps):
            known_bps = rates_bps[flow]
            rate_bps[number] = UNKNOWN if known_bps is None else known_bps
        measured = np.flatnonzero((numbers >= 0) & (seen.flow_rates.rate_bps != UNKNOWN))
        measured = measured[rate_bps[numbers[measured]] == UNKNOWN]
        rates, to = seen.flow_rates.rows(measured), numbers[measured]
        rate_bps[to] = rates.rate_bps
        columns = [np.full(count, nothing, np.int64) for nothing in (UNKNOWN, 0, UNKNOWN)]
        for column, known_of in zip(columns, (rates.nbytes, np.rint(rates.past_bps), rates.uncertain_bps), strict=True):
            column[to] = known_of
        measured_bytes, past_bps, uncertain_bps = columns
        return LocatedFlows(
            managed.kept(keep),
            book,
            path[keep],
            since_ns=since_ns[keep],
            rate_bps=rate_bps[keep],
            packet_bytes=np.full(int(keep.sum()), UNKNOWN, np.int64),
            measured_bytes=measured_bytes[keep],
            past_bps=past_bps[keep],
            uncertain_bps=uncertain_bps[keep],
            pinned=((path != NOWHERE) & (_overlaid(managed, book, self.pins.paths) == path))[keep],
            parts=_parts(managed, seen, keep & (assigned == NOWHERE), np.cumsum(keep) - 1),
        )

    def decided(self, current: Mapping[FlowSpec, Assignment]) -> Mapping[FlowSpec, Assignment]:
        """Return the flows whose paths are decided flow by flow: if traffic is engineered, only those pinned."""
        if not self.is_engineered:
            return current
        return {flow: assignment for flow, assignment in current.items() if flow in self.pins.paths}

    def on_links(self, links: Set[LinkKey], snapshot: Snapshot, now_ns: int) -> Mapping[FlowSpec, Assignment]:
        """Return the flows decided flow by flow whose paths cross any of these links between switches."""
        if not links:
            return {}
        return self.decided(self.current(snapshot, now_ns).on_links(self.network.table.flags(links)))

    def present(self, flow: FlowSpec, snapshot: Snapshot | None, default: Path) -> Path:
        """Return the path that a flow is on, the default where no base path is known either."""
        return self._path(flow, None if snapshot is None else self._seen_path(flow, snapshot)) or default

    def expected(self, key: FlowKey) -> Path | None:
        """Return the path that a 5-tuple takes as far as is known without telemetry; None for unknown hosts."""
        flow = None if is_probe(key) else self.seen.flow_of(key)
        return None if flow is None else self._path(flow, None)

    def _path(self, flow: FlowSpec, seen: Path | None) -> Path | None:
        """Return the path of one flow, as `current` does for all at once."""
        if flow in self.explicit:
            return self.explicit[flow].path
        src, dst = self.network.ends(flow.src_host, flow.dst_host)
        base = self.network.base(src, dst)
        if base is None or (base[1] and (not self.is_engineered or seen is None)):
            return None if base is None else base[0]
        return seen if seen is not None and self._is_path(seen, src, dst) else base[0]

    def _is_path(self, path: Path, src: str, dst: str) -> bool:
        return bool(path) and (path[0], path[-1]) == (src, dst) and self.network.has_path(path)

    def _seen_path(self, flow: FlowSpec, snapshot: Snapshot) -> Path | None:
        """Return the path that a flow was last seen on."""
        rows = self.seen.rows(snapshot)
        (places,) = np.nonzero(rows.codes == self.seen.code(flow))
        return rows.book.paths[rows.flow_paths[places[0]]] if len(places) else None

    def apply(self, decision: Decision) -> None:
        """Put a flow on a decision's new path."""
        self._moved_ns[decision.flow] = decision.time_ns
        base = self.network.base(decision.new_path[0], decision.new_path[-1])
        if base == (decision.new_path, True) and not self.pins.holds(decision.flow, decision.new_path):
            self.explicit.pop(decision.flow, None)
        else:
            self.explicit[decision.flow] = Assigned(decision.new_path, decision.time_ns)

    def admit(self, flow: FlowSpec, now_ns: int) -> None:
        """Manage a flow from now on, apart from the others of its hosts."""
        self.seen.name(flow)
        self.managed.add((flow,), now_ns)

    def let_go(self, flow: FlowSpec, snapshot: Snapshot | None, default: Path) -> tuple[Path, Path]:
        """Leave a flow that was pinned to the deciders; return its path before and after, as `present` does."""
        self._moved_ns.pop(flow, None)  # a user's request starts no hold-down
        is_part = not self._members.listed and flow != FlowSpec(flow.src_host, flow.dst_host)
        if is_part:
            self.seen.forget(flow)
            self.managed.discard(flow)
        before = self.present(flow, snapshot, default)
        if is_part or self.is_engineered or self.network.is_base(before):
            self.explicit.pop(flow, None)
        return before, self.present(flow, snapshot, default)

    def check(self, flow: FlowSpec) -> None:
        """Raise PathError for a flow that cannot be managed."""
        attachment = self.network.topology.attachment
        is_known = flow.src_host in attachment and flow.dst_host in attachment
        if (
            not is_known
            or len(set(self.network.ends(flow.src_host, flow.dst_host))) < 2
            or not self._members.manages(flow)
        ):
            raise PathError(self.why_not(flow))
        if self._members.is_full and flow not in self.managed:
            raise PathError(f"the limit of {self._members.most} managed flows is reached")

    def why_not(self, flow: FlowSpec) -> str:
        """Return why a flow has no position."""
        topology = self.network.topology
        for host in (flow.src_host, flow.dst_host):
            if host not in topology.host:
                return f"topology {topology.name} has no host {host!r}"
        name, (src, dst) = f"flow {flow.src_host}->{flow.dst_host}", self.network.ends(flow.src_host, flow.dst_host)
        if src == dst:
            return f"{name} stays within switch {src}: there is no path to choose"
        if flow in self.managed:
            return f"{name} has no path: its switches are not connected"
        where = "telemetry has not seen it" if not self._members.listed else "it is not listed in the settings"
        return f"{name} is not managed: {where}"

    def clear(self) -> None:
        """Forget explicit paths, moves and pins; the flows stay managed."""
        for saved in (self.explicit, self._moved_ns, self.pins.paths):
            saved.clear()

    def restore(self, explicit: Mapping[FlowSpec, Assigned], pins: Mapping[FlowSpec, Assigned]) -> int:
        """Restore the saved paths and pins that the topology still has, of flows that are still managed.

        Return the number of dropped pins. Where traffic is engineered only pinned flows keep explicit paths: nothing
        would manage the others, not even when one of their links dies.
        """
        dropped = self.pins.restore(pins, self._members.manages)
        for flow, entry in explicit.items():
            if self.is_engineered and flow not in self.pins.paths:
                continue
            if self._members.manages(flow) and self.pins.is_path(flow, entry.path):
                self.explicit[flow] = entry
                self._moved_ns[flow] = entry.since_ns
                self.seen.name(flow)
        return dropped

    def measured_flows(self, snapshot: Snapshot, forwarding: Forwarding) -> list[MeasuredFlow]:
        """Return the traffic on weights and base routes: measured flows without an explicit path, and reports."""
        seen = self.seen.rows(snapshot)
        measured = measured_flows(seen, self.network, ~self._is_explicit(seen), self.settings.stale_after_ns)
        watch = self.settings.watch
        return measured if watch is None else [*measured, *report_flows(seen, self.network, watch, forwarding.path)]

    def _is_explicit(self, seen: SeenRows) -> Flags:
        """Return which 5-tuples have an explicit path, their own or that of all traffic between their hosts."""
        explicit = [self.seen.code(flow) for flow in self.explicit]
        return np.isin(seen.pair, explicit) | np.isin(seen.code, explicit)

    def demands(
        self, snapshot: Snapshot, drained: Set[str]
    ) -> tuple[dict[tuple[str, str], float], dict[LinkKey, float]]:
        """Return the demands to engineer, and the load of links by other traffic; `drained` switches are left out."""

        def fixed_path(key: FlowKey) -> Path | None:
            flow = self.seen.flow_of(key)
            if flow is None or flow in self.explicit:
                return None if flow is None else self.explicit[flow].path
            # Traffic of hosts at a drained switch stays on base routes, and still loads them.
            is_stuck = not drained.isdisjoint(self.network.ends(flow.src_host, flow.dst_host))
            return snapshot.paths[key].switches if is_stuck else None

        return demands_of(snapshot, self.network.topology, fixed_path)


def _overlaid(managed: ManagedFlows, book: PathBook, paths: Mapping[FlowSpec, Assigned]) -> Longs:
    return book.overlay({number: paths[flow].path for number, flow in managed.among(paths)}, len(managed))


def _default_paths(managed: ManagedFlows, seen: SeenRows, numbers: Longs, *, is_engineered: bool) -> Longs:
    """Return the positions of flows without an explicit path."""
    first, last, base, is_only = managed.ends(seen.book)
    shown: Longs = np.full(len(managed), NOWHERE, np.int64)
    shown[numbers[numbers >= 0]] = seen.flow_paths[numbers >= 0]
    is_shown = shown != NOWHERE
    rows = seen.book.rows
    if len(rows.first):
        is_way = is_shown & rows.linked[shown] & (rows.first[shown] == first) & (rows.last[shown] == last)
    else:
        is_way = is_shown
    takes_base = (base == NOWHERE) | (is_only & ~is_shown if is_engineered else is_only) | ~is_way
    return np.where(takes_base, base, shown)


def _parts(managed: ManagedFlows, seen: SeenRows, spreads: Flags, positions: Longs) -> Parts:
    """Return the parts of the pairs of hosts among the flows that may be spread, by their positions."""
    pairs = seen.spread_pairs
    number = managed.numbers(pairs.pair)
    rows = np.flatnonzero(number >= 0)
    rows = rows[spreads[number[rows]]]
    flow = positions[number[rows]]
    order = np.argsort(flow, kind="stable")
    rows = rows[order]
    return Parts(flow[order], pairs.path[rows], pairs.rate_bps[rows], pairs.variance[rows])
