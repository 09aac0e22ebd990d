"""The path server without process, feed or clock: snapshots in, sets of routes out, decisions kept and explained."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace

import numpy as np

from collectors.values import FlowKey, LinkStatus, Snapshot
from controller.common.errors import PathError, StaleDrainsError, StorageError
from controller.network.algorithms.link_table import Flags, Longs
from controller.network.intents import FlowSpec, RouteSet, WeightedRoute
from controller.network.links.loss_failures import LossFailureDetector
from controller.network.paths.balancing.balancer import Balancer, weights_on
from controller.network.paths.balancing.flows import measured_flows, report_flows
from controller.network.paths.balancing.forwarding import Forwarding
from controller.network.paths.balancing.values import MeasuredFlow, Rebalance
from controller.network.paths.deciding.backups import Backups
from controller.network.paths.deciding.decide import Assignment, Decision, Verdict
from controller.network.paths.deciding.decider import Decider
from controller.network.paths.deciding.evacuation import Avoided, Choose, Evacuation, ReportedLinks
from controller.network.paths.deciding.graph import Network, Path
from controller.network.paths.deciding.located import LocatedFlows
from controller.network.paths.draining import DrainForecast, Present, staying
from controller.network.paths.drains import Drains
from controller.network.paths.engineering.demands import demands_of, possible
from controller.network.paths.engineering.engineer import TrafficEngineer
from controller.network.paths.engineering.settings import EngineeringSettings
from controller.network.paths.explicit_routes import explicit_routes
from controller.network.paths.membership import Membership
from controller.network.paths.pins import Pins
from controller.network.paths.positions import locate
from controller.network.paths.records.pair_store import PairStore
from controller.network.paths.records.store import PathStore
from controller.network.paths.records.values import (
    Assigned,
    Drain,
    DrainChange,
    DrainEffect,
    DrainList,
    Explanation,
    History,
    HistoryQuery,
)
from controller.network.paths.round_result import RoundResult
from controller.network.paths.seen_flows import SeenFlows, SeenRows, is_probe
from controller.network.paths.settings import DecideSettings, ManagedFlow
from controller.network.paths.telemetry_load import DEFAULT_PACKET_BYTES
from dataplane.clock import Clock
from dataplane.topology.values import LinkKey, Topology

VERSIONS_BITS = 20
"""Versions of routes under a fencing token begin at the token shifted by this."""
RECENT_DECISIONS = 1000
"""Decisions kept in memory; the store keeps more."""

_EXPLAINED_MOVES = 10
_PREPARED_A_ROUND = 4
"""Pairs of switches whose candidate paths a calm round computes ahead, to save time in a round that moves flows."""


class PathServerCore:
    """Steps the decider and records its decisions; the same object serves virtual time and the process.

    `clock` only bounds how long traffic engineering computes; without one it is not bounded.
    """

    membership: type[Membership] = Membership
    """Replaced by the tests' reference."""

    def __init__(
        self,
        topology: Topology,
        settings: DecideSettings,
        *,
        flows: tuple[ManagedFlow, ...] = (),
        store: PathStore | None = None,
        engineering: EngineeringSettings | None = None,
        max_flows: int = 4096,
        forget_after_ns: int = 60_000_000_000,
        clock: Clock | None = None,
    ) -> None:
        self.network = Network(topology)
        self.settings = settings
        self._decider = Decider(self.network, settings)
        self.decisions: deque[Decision] = deque(maxlen=RECENT_DECISIONS)
        self.rebalances: deque[Rebalance] = deque(maxlen=RECENT_DECISIONS)
        self.counters: Counter[str] = Counter()
        self.last_problem: str | None = None
        self._store = store
        rates = {flow.spec: flow.rate_bps for flow in flows}
        self._seen = SeenFlows(self.network, rates)
        self._pins = Pins(topology)
        self._drains = Drains(topology)
        self._members = self.membership(
            self.network, self._seen, rates, self.counters, most=max_flows, forget_after_ns=forget_after_ns
        )
        self._managed = self._members.flows
        self._assigned: dict[FlowSpec, Assigned] = {}
        self._moved_ns: dict[FlowSpec, int] = {}
        self._snapshot: Snapshot | None = None
        self._located: LocatedFlows | None = None
        self._prepared_for: Longs = np.zeros(0, np.int64)
        self._reported, self._is_reported = ReportedLinks(), False
        self._loss_failures = LossFailureDetector(settings.dead_loss, settings.dead_loss_samples)
        self._backups = Backups(self.network.table)
        self._evacuation = Evacuation(self._backups, self._reported, return_after_ns=settings.return_after_ns)
        self._forecast = DrainForecast(self._decider, self._evacuation, self._pins, self._seen)
        self.engineer: TrafficEngineer | None = None
        self._balancer = Balancer(self.network, settings)
        self._engineering, self._clock = engineering, clock
        self._token = 0
        self.is_following = isinstance(store, PairStore)
        """True while another path server of the pair decides."""
        self.routes = self._restore(engineering, clock)

    @property
    def flows(self) -> int:
        """Number of managed flows."""
        return len(self._managed)

    def outgrows(self, grown: Mapping[FlowKey, float]) -> bool:
        """Return whether flows have grown since the last round beyond what a link can carry.

        `grown` has the increase of each in measured packets per second.
        """
        return any(self._outgrows_a_link(flow, more_hz) for flow, more_hz in grown.items())

    def _outgrows_a_link(self, key: FlowKey, more_hz: float) -> bool:
        """Return whether `more_hz` measured packets would push a link on a flow's path above its rate."""
        flow = self._seen.flow_of(key)
        path = None if flow is None else self._path(flow, None)
        if path is None or len(path) < 2 or is_probe(key):
            return False
        watch = self.settings.watch
        more_bps = 8 * DEFAULT_PACKET_BYTES * more_hz * (1 if watch is None else watch.sample_every)
        beliefs, rows = self._decider.beliefs, list(self.network.rows(path))
        return bool((beliefs.offered_bps[rows] + more_bps > beliefs.table.rate_bps[rows]).any())

    def step(self, snapshot: Snapshot, now_ns: int, *, out_of_turn: bool = False) -> RoundResult | None:
        """Decide one round and prepare some of the next; return the result of `decide`."""
        result = self.decide(snapshot, now_ns, out_of_turn=out_of_turn)
        if self._located is not None:
            paths = self._located.paths()
            self._backups.prepare(paths)
            if result is None and not out_of_turn:
                ends = ((path[0], path[-1]) for path in paths)
                self.network.prepare(ends, self.settings.candidates, _PREPARED_A_ROUND)
        return result

    def prepare(self, is_enough: Callable[[], bool]) -> None:
        """Prepare for flows that will move, until it is enough: the backups of their paths, and candidates."""
        located = self._located
        if located is None or np.array_equal(located.path, self._prepared_for):
            return
        paths = located.paths()
        for path in paths:
            if not self._backups.has(path):
                if is_enough():
                    return
                self._backups.prepare((path,))
        for path in paths:
            ends = path[0], path[-1]
            if not self.network.is_prepared(ends):
                if is_enough():
                    return
                self.network.prepare((ends,), self.settings.candidates, 1)
        self._prepared_for = located.path

    def decide(self, snapshot: Snapshot, now_ns: int, *, out_of_turn: bool = False) -> RoundResult | None:
        """Decide one round; return the new set of routes with its causes, None if it is unchanged.

        A round out of turn (`out_of_turn`) confirms no wish: its snapshot is hardly newer than the last. `prepare`
        saves later rounds time.
        """
        self._snapshot = snapshot = self._loss_failures.confirmed(snapshot)
        forgotten = self._follow_flows(snapshot, now_ns)
        if not self._is_reported:
            # After a restart the controller's reports to the collector count, until it reports here.
            self._reported.watch(snapshot.statuses, self.network.table.link_number.keys())
        self._observe(snapshot)
        if self.is_following:
            self._follow(snapshot, now_ns)
            return None
        decisions = [*self._evacuate(snapshot, now_ns), *self._come_back(snapshot, now_ns)]
        if self.engineer is not None:
            engineered = self._engineer(self.engineer, snapshot, now_ns)
            return self._publish(decisions) if decisions or engineered or forgotten else None
        self._located = current = self.current(snapshot, now_ns)
        self._decider.locate(current)
        more = self._decider.step(now_ns, confirming=not out_of_turn)
        for decision in more:
            self._apply(decision)
        changes = self._rebalance(snapshot, now_ns, moved=bool(decisions or more), confirming=not out_of_turn)
        if not decisions and not more and not forgotten and not changes:
            return None
        return self._publish([*decisions, *more], changes)

    def take_over(self, token: int) -> RoundResult:
        """Decide from now on, with the lease of this token; return the pair's routes, as a new set under the token.

        Raise LostLeaseError if the lease is lost meanwhile, StorageError if the shared state cannot be read.
        """
        self._adopt()
        self._token, self.is_following = token, False
        return self._publish(())

    def _follow(self, snapshot: Snapshot, now_ns: int) -> None:
        """Compute what a decision needs, and decide nothing: the flows are where the other path server puts them."""
        with suppress(StorageError):  # shown by the lease's own status; the next round tries again
            self._adopt()
        current = self.current(snapshot, now_ns)
        self._decider.locate(current)
        self._decider.watch(now_ns)
        paths = current.paths()
        self._backups.prepare(paths)
        self.network.prepare(((path[0], path[-1]) for path in paths), self.settings.candidates, _PREPARED_A_ROUND)

    def _adopt(self) -> None:
        """Take over what the other path server of the pair has saved, if it has; measurements stay."""
        if not isinstance(self._store, PairStore) or not self._store.refresh():
            return
        for saved in (self._assigned, self._moved_ns, self._pins.paths, self.decisions, self.rebalances):
            saved.clear()
        self._evacuation.clear()
        self.routes = self._restore(self._engineering, self._clock)

    def _observe(self, snapshot: Snapshot) -> None:
        self._decider.observe(snapshot, self._reported.down, self._drains.links)

    @property
    def _avoided(self) -> Avoided:
        """The links that flows must leave, by the last snapshot."""
        return Avoided(self._decider.dead_links(), self._drains.links)

    def _follow_flows(self, snapshot: Snapshot, now_ns: int) -> bool:
        """Add the flows that telemetry shows, drop those not seen for long; return whether that dropped a route."""
        members, pinned = self._members, self._pins.paths
        replaced = members.discover(self._seen.rows(snapshot), {**self._assigned, **pinned}, now_ns)
        forgotten = members.forget(pinned, now_ns)
        for flow in (*replaced, *forgotten):
            self._moved_ns.pop(flow, None)
        routed = [flow for flow in forgotten if self._assigned.pop(flow, None) is not None]
        return bool(routed)

    def link_changed(self, link: LinkKey, now_ns: int, *, up: bool) -> RoundResult | None:
        """Note that a link went down or came back; return the routes around it, None if no route changes.

        Raise PathError for a link that is not between switches. A link that goes down stays so until it is reported up.
        """
        if link not in self.network.table.link_number:
            raise PathError(f"topology {self.network.topology.name} has no link {link} between switches")
        if up:
            self._reported.by_hand.discard(link)
            return None
        self._reported.by_hand.add(link)
        if self._snapshot is None or self.is_following:
            return None
        return self._leave_dead_links(self._snapshot, now_ns)

    def links_noted(self, statuses: Mapping[LinkKey, LinkStatus], now_ns: int) -> RoundResult | None:
        """Take the controller's reports on all links; return the routes around those that went down.

        None if no route changes; links that are not between switches of the topology are left out. The reports hold
        until the next call.
        """
        self._is_reported = True
        went_down = self._reported.watch(statuses, self.network.table.link_number.keys())
        if not went_down or self._snapshot is None or self.is_following:
            return None
        return self._leave_dead_links(self._snapshot, now_ns)

    def pin(self, flow: FlowSpec, path: Path, now_ns: int) -> RoundResult | None:
        """Pin a flow to a path until it is released; return the new routes, None if it was pinned there already.

        Raise NoSuchPathError for a path that is not the flow's, DeadPathError for one with a dead or drained link,
        PathError for a flow that cannot be managed.
        """
        self._check_pinnable(flow)
        if self._pins.holds(flow, path):
            return None
        avoided = Avoided(self._decider.dead_links() | self._reported.down, self._drains.links)
        decision = self._pins.hold(flow, self._present_path(flow, path), path, avoided, now_ns)
        self._evacuation.forget(flow)
        self._seen.name(flow)
        self._managed.add((flow,), now_ns)
        self._apply(decision)
        return self._publish([decision])

    def release(self, flow: FlowSpec, now_ns: int) -> RoundResult:
        """Return a flow to the decider, which moves it when it finds a better path; raise PathError if not pinned.

        It follows base or weighted routes at once if its path is one of the base paths, if traffic is engineered, and
        if it is managed only for its pin: it names ports, and the settings list no flows.
        """
        path = self._pins.release(flow)
        self._evacuation.forget(flow)
        self._moved_ns.pop(flow, None)  # a user's request starts no hold-down
        is_part = not self._members.listed and flow != FlowSpec(flow.src_host, flow.dst_host)
        if is_part:
            self._seen.forget(flow)
            self._managed.discard(flow)
        present = self._present_path(flow, path)
        if is_part or self.engineer is not None or self.network.is_base(present):
            self._assigned.pop(flow, None)
        then = self._present_path(flow, path)
        reason = f"released: no longer pinned to {'-'.join(path)}"
        return self._publish([Decision(now_ns, flow, present, then, (), reason)])

    def drain(self, change: DrainChange, now_ns: int) -> tuple[DrainEffect, RoundResult | None]:
        """Drain an element or put it back; return the effect and the new routes, None if nothing changes.

        Raise NoSuchPathError for an unknown element, StaleDrainsError if the drains have changed since the revision,
        PathError for putting back what is not drained.
        """
        effect, after = self._foreseen(change, now_ns)
        if not effect.is_change:
            return effect, None
        self._drains = after
        snapshot = self._state(now_ns)
        self._observe(snapshot)
        decisions = self._evacuate(snapshot, now_ns)
        if not change.drained:
            decisions += self._come_back(snapshot, now_ns)
        if self.engineer is not None:
            self._engineer(self.engineer, snapshot, now_ns)
            result = self._publish(decisions)
        else:
            result = self._publish(decisions, self._give_up_weights(now_ns))
        return replace(effect, revision=after.revision), result

    def foresee_drain(self, change: DrainChange, now_ns: int) -> DrainEffect:
        """Return what `drain` would do now, by the same deciders, and change nothing; raise the same errors."""
        return self._foreseen(change, now_ns)[0]

    @property
    def drained(self) -> int:
        """Number of drained elements."""
        return len(self._drains.elements)

    def drains(self, now_ns: int) -> DrainList:
        """Return the drained elements and the flows that stay on them."""
        drains, snapshot = self._drains, self._state(now_ns)
        stays = staying(self._on_links(drains.links, snapshot, now_ns), (), drains)
        return DrainList(tuple(drains.elements.values()), stays, drains.revision)

    def _state(self, now_ns: int) -> Snapshot:
        """Return the last snapshot; before the first, one that knows nothing."""
        return self._snapshot or Snapshot(now_ns, {}, {}, {})

    def _foreseen(self, change: DrainChange, now_ns: int) -> tuple[DrainEffect, Drains]:
        """Return a change's effect by the present state, and the drains after it."""
        before, snapshot = self._drains, self._state(now_ns)
        if change.revision not in {None, before.revision}:
            raise StaleDrainsError("the drains have changed since this was shown: look again")
        drain = Drain(before.name(change.element), now_ns, change.by, change.note)
        after = before.changed(drain, is_drained=change.drained)
        present = Present(snapshot, now_ns, self.current(snapshot, now_ns), self._ours, self._chooser(snapshot))
        self._decider.observe(snapshot, self._reported.down, after.links)
        try:
            effect = self._forecast.effect(drain.element, before, after, present)
        finally:
            self._observe(snapshot)
        if self.engineer is None:
            return effect, after
        dead = self._decider.dead_links()
        now, then = self.engineer.foresee(*self._demands(snapshot, after), dead, after.links, now_ns)
        effect = replace(effect, fullest_before=None, fullest_after=None)
        return replace(effect, utilisation_before=now, utilisation_after=then), after

    def _present_path(self, flow: FlowSpec, default: Path) -> Path:
        """Return the path that a flow is on, the default where no base path is known either."""
        return self._path(flow, None if self._snapshot is None else self._seen_path(flow, self._snapshot)) or default

    def _seen_path(self, flow: FlowSpec, snapshot: Snapshot) -> Path | None:
        """Return the path that a flow was last seen on."""
        rows = self._seen.rows(snapshot)
        (places,) = np.nonzero(rows.codes == self._seen.code(flow))
        return rows.book.paths[rows.flow_paths[places[0]]] if len(places) else None

    def _check_pinnable(self, flow: FlowSpec) -> None:
        topology = self.network.topology
        is_known = flow.src_host in topology.attachment and flow.dst_host in topology.attachment
        if (
            not is_known
            or len(set(self.network.ends(flow.src_host, flow.dst_host))) < 2
            or not self._members.manages(flow)
        ):
            raise PathError(self._why_not(flow))
        if self._members.is_full and flow not in self._managed:
            raise PathError(f"the limit of {self._members.most} managed flows is reached")

    def _leave_dead_links(self, snapshot: Snapshot, now_ns: int) -> RoundResult | None:
        """Only evacuate dead links: the last snapshot was already evaluated when it arrived."""
        self._observe(snapshot)
        decisions = self._evacuate(snapshot, now_ns)
        if self.engineer is not None:
            engineered = self._engineer(self.engineer, snapshot, now_ns)
            return self._publish(decisions) if decisions or engineered else None
        changes = self._give_up_weights(now_ns)
        return self._publish(decisions, changes) if decisions or changes else None

    def _give_up_weights(self, now_ns: int) -> list[Rebalance]:
        """Change weights of groups that lead over links which are dead or drained."""
        avoided = self._avoided
        return self._balancer.avoid(avoided.dead, self._reported.watched.keys(), now_ns, avoided.drained)

    def _rebalance(self, snapshot: Snapshot, now_ns: int, *, moved: bool, confirming: bool) -> list[Rebalance]:
        """Change weights of groups: off dead links at once, otherwise where no flow moved that would have helped."""
        balancer, beliefs = self._balancer, self._decider.beliefs
        changes = self._give_up_weights(now_ns)
        if self.settings.balance.enabled and not changes:
            last_ns = now_ns if moved else max(self._moved_ns.values(), default=None)
            changes = balancer.step(
                beliefs,
                lambda forwarding: self._measured_flows(snapshot, forwarding),
                now_ns,
                last_move_ns=last_ns,
                confirming=confirming,
            )
        if changes:
            self._decider.rebalanced(now_ns)
        return changes

    def _measured_flows(self, snapshot: Snapshot, forwarding: Forwarding) -> list[MeasuredFlow]:
        """Return the traffic on weights and base routes: measured flows without an explicit path, and reports."""
        seen = self._seen.rows(snapshot)
        measured = measured_flows(seen, self.network, ~self._explicit(seen), self.settings.stale_after_ns)
        watch = self.settings.watch
        return measured if watch is None else [*measured, *report_flows(seen, self.network, watch, forwarding.path)]

    def _explicit(self, seen: SeenRows) -> Flags:
        """Return which 5-tuples have an explicit path, their own or that of all traffic between their hosts."""
        explicit = [self._seen.code(flow) for flow in self._assigned]
        return np.isin(seen.pair, explicit) | np.isin(seen.code, explicit)

    def _engineer(self, engineer: TrafficEngineer, snapshot: Snapshot, now_ns: int) -> bool:
        """Continue a round of traffic engineering; return whether weights have changed."""
        before = engineer.failed_rounds
        demands, pinned_bps = self._demands(snapshot, self._drains)
        done = engineer.step(demands, self._decider.dead_links(), now_ns, pinned_bps, self._drains.links)
        if engineer.failed_rounds != before:
            self.counters["engineering_failed"] += 1
            self.last_problem = engineer.last_problem
        return done is not None

    def _demands(self, snapshot: Snapshot, drains: Drains) -> tuple[dict[tuple[str, str], float], dict[LinkKey, float]]:
        """Return the demands to engineer, and the load of links by other traffic."""

        def fixed_path(key: FlowKey) -> Path | None:
            flow = self._seen.flow_of(key)
            if flow is None or flow in self._assigned:
                return None if flow is None else self._assigned[flow].path
            # Traffic of hosts at a drained switch stays on base routes, and still loads them.
            is_stuck = not drains.elements.keys().isdisjoint(self.network.ends(flow.src_host, flow.dst_host))
            return snapshot.paths[key].switches if is_stuck else None

        return demands_of(snapshot, self.network.topology, fixed_path)

    def _evacuate(self, snapshot: Snapshot, now_ns: int) -> list[Decision]:
        """Move all flows off dead links, to their backups where those are alive, and off drained ones."""
        avoided = self._avoided
        current = self._on_links(avoided.links, snapshot, now_ns)
        left = self._evacuation.leave(current, self._assigned.keys(), avoided, self._chooser(snapshot), now_ns)
        decisions = [replace(decision, reason=self._pins.told(decision.flow, decision.reason)) for decision in left]
        for decision in decisions:
            self._apply(decision)
        return decisions

    def _chooser(self, snapshot: Snapshot) -> Choose:
        """Return the choice of paths for flows that leave drained links: there is time to weigh them."""

        def choose(flows: Collection[FlowSpec], now_ns: int) -> list[Decision]:
            self._decider.locate(self.current(snapshot, now_ns))
            return self._decider.leave(flows, now_ns)

        return choose

    def _on_links(self, links: Set[LinkKey], snapshot: Snapshot, now_ns: int) -> Mapping[FlowSpec, Assignment]:
        """Return the managed flows whose paths cross any of these links between switches."""
        if not links:
            return {}
        return self._ours(self.current(snapshot, now_ns).on_links(self.network.table.flags(links)))

    def _come_back(self, snapshot: Snapshot, now_ns: int) -> list[Decision]:
        """Move flows back to the paths that they left, when the links there are in use again."""
        if not self._evacuation.is_waiting and not self._pins.paths:
            return []
        located = self.current(snapshot, now_ns)
        waiting = (*self._pins.paths, *self._evacuation.waiting)
        current = self._ours({flow: located[flow] for flow in waiting if flow in located})
        paths = {flow: assignment.path for flow, assignment in current.items()}
        pinned = list(self._pins.returning(paths, self._evacuation.is_usable, now_ns))
        for decision in pinned:
            self._evacuation.forget(decision.flow)
            self._apply(decision)
        back = self._evacuation.come_back(current, now_ns)
        for decision, is_explicit in back:
            self._apply(decision)
            if not is_explicit:
                self._assigned.pop(decision.flow, None)
        return [*pinned, *(decision for decision, _ in back)]

    def _ours(self, current: Mapping[FlowSpec, Assignment]) -> Mapping[FlowSpec, Assignment]:
        """Return the flows whose paths are decided here: if traffic is engineered, only those that are pinned."""
        if self.engineer is None:
            return current
        return {flow: assignment for flow, assignment in current.items() if flow in self._pins.paths}

    def _publish(self, decisions: Sequence[Decision], changes: Sequence[Rebalance] = ()) -> RoundResult:
        """Turn applied decisions into a new set of routes, and record both."""
        self.counters["moves"] += sum(decision.old_path != decision.new_path for decision in decisions)
        self.counters["rebalances"] += len(changes)
        self.decisions.extend(decisions)
        self.rebalances.extend(changes)
        # Renewals raise the lease's revision faster than routes change, so no token's versions reach the next one's.
        self.routes = self._route_set(max(self.routes.version + 1, self._token << VERSIONS_BITS))
        self._save(decisions, changes)
        return RoundResult(self.routes, tuple(decisions), tuple(changes))

    def _route_set(self, version: int) -> RouteSet:
        weighted = self._balancer.weighted if self.engineer is None else self.engineer.weighted
        drained = tuple(sorted(self._drains.links, key=str))
        explicit, pins = explicit_routes(self._assigned), explicit_routes(self._pins.paths)
        return RouteSet(version, explicit, weighted, pins, drained, token=self._token)

    def current(self, snapshot: Snapshot, now_ns: int) -> LocatedFlows:
        """Return every managed flow with its current path, as far as known."""
        explicit = {flow: entry.path for flow, entry in self._assigned.items()}
        pins = {flow: entry.path for flow, entry in self._pins.paths.items()}
        seen, is_engineered = self._seen.rows(snapshot), self.engineer is not None
        return locate(
            self._managed,
            seen,
            explicit,
            pins,
            self._moved_ns,
            self._members.listed,
            now_ns,
            is_engineered=is_engineered,
        )

    def why(self, flow: FlowSpec, now_ns: int) -> Explanation:
        """Explain a flow's present path by the last snapshot; raise PathError for an unmanaged flow."""
        snapshot = self._snapshot
        if snapshot is None:
            raise PathError("decisions cannot be explained before the first snapshot")
        current = self.current(snapshot, now_ns)
        if flow not in current:
            raise PathError(self._why_not(flow))
        self._decider.locate(current)
        verdict = self._decider.explain(flow, now_ns)
        if verdict.moves:
            seen = f"{self._decider.rounds_wished(flow)} of the {self.settings.confirm_rounds} rounds to confirm a move"
            verdict = replace(verdict, reason=f"{verdict.reason} (in {seen})")
        path = verdict.present.switches
        engineer = None if flow in self._pins.paths else self.engineer
        reason = self._with_weights(flow, verdict) if engineer is None else engineer.explain(path)
        if not self._pins.holds(flow, path):
            reason = self._pins.told(flow, reason)
        moves = [decision for decision in reversed(self.decisions) if decision.flow == flow][:_EXPLAINED_MOVES]
        pin = self._pins.paths.get(flow)
        pinned = () if pin is None else pin.path
        figures = verdict.present, verdict.candidates, verdict.rate_bps
        return Explanation(flow, *figures, reason, tuple(moves), pinned=pinned)

    def _with_weights(self, flow: FlowSpec, verdict: Verdict) -> str:
        """Return a verdict's reason, and the weights that a flow without an explicit path meets."""
        weights = {(route.switch, route.destination): route.next_hops for route in self._balancer.weighted}
        met = "" if flow in self._assigned else weights_on(verdict.present.switches, weights)
        return f"{verdict.reason}; weights along its path: {met}" if met else verdict.reason

    def _why_not(self, flow: FlowSpec) -> str:
        """Return why a flow cannot be explained."""
        topology = self.network.topology
        for host in (flow.src_host, flow.dst_host):
            if host not in topology.host:
                return f"topology {topology.name} has no host {host!r}"
        name, (src, dst) = f"flow {flow.src_host}->{flow.dst_host}", self.network.ends(flow.src_host, flow.dst_host)
        if src == dst:
            return f"{name} stays within switch {src}: there is no path to choose"
        if flow in self._managed:
            return f"{name} has no path: its switches are not connected"
        where = "telemetry has not seen it" if not self._members.listed else "it is not listed in the settings"
        return f"{name} is not managed: {where}"

    def history(self, query: HistoryQuery) -> History:
        """Return the decisions that a query selects, from the store; raise PathError where it cannot be read."""
        decisions = () if self._store is None else tuple(self._store.decisions(query))
        rounds = () if self.engineer is None else tuple(reversed(self.engineer.rounds))
        return History(decisions, rounds, self._changes_of(query))

    def _changes_of(self, query: HistoryQuery) -> tuple[Rebalance, ...]:
        """Return the changes of weights that a query selects; none if it selects by source."""
        edge = None if query.dst is None else self.network.topology.attachment.get(query.dst)
        if self._store is None or query.src is not None or (query.dst is not None and edge is None):
            return ()
        return tuple(self._store.rebalances(query, None if edge is None else edge.node))

    def _save(self, decisions: Sequence[Decision], changes: Sequence[Rebalance]) -> None:
        """Save what must survive; traffic moves even if that fails, which is counted and reported."""
        if self._store is None:
            return
        try:
            self._store.save(
                self.routes.version,
                self._assigned,
                decisions,
                self.routes.weighted,
                changes,
                pins=self._pins.paths,
                drains=self._drains.elements,
            )
        except PathError as error:
            self.counters["saves_failed"] += 1
            self.last_problem = str(error)

    def _restore(self, engineering: EngineeringSettings | None, clock: Clock | None) -> RouteSet:
        """Restore the saved state that still fits, and begin engineering; return the routes to continue from."""
        version, explicit, weighted, lost = 0, dict[FlowSpec, Assigned](), tuple[WeightedRoute, ...](), 0
        if self._store is not None:
            version, explicit, weighted = self._store.load()
            newest_first = self._store.decisions(HistoryQuery(limit=RECENT_DECISIONS))
            # The deque has the oldest first, and drops from that end.
            self.decisions.extend(reversed(newest_first))
            self._evacuation.restore(newest_first)
            lost = self._pins.restore(self._store.pins(), self._members.manages)
            saved = self._store.drains()
            self._drains = Drains.restored(self.network.topology, saved)
            lost += len(saved) - len(self._drains.elements)
        pinned = {flow: entry for flow, entry in explicit.items() if flow in self._pins.paths}
        self._restore_paths(explicit if engineering is None else pinned)
        if engineering is None:
            self._balancer = Balancer(self.network, self.settings, weighted)
        else:
            # Drop other explicit paths: nothing would manage them, not even when one of their links dies.
            fitting = possible(weighted, self.network.topology)
            self.engineer = TrafficEngineer(self.network.topology, engineering, fitting, clock)
        served = self._route_set(version)
        dropped = len(explicit) - len(served.routes) + len(weighted) - len(served.weighted) + lost
        self.counters["saved_routes_dropped"] += dropped
        # The set served may differ from the saved one, and a version must never denote two sets.
        return served if dropped == 0 else self._route_set(version + 1)

    def _restore_paths(self, saved: Mapping[FlowSpec, Assigned]) -> None:
        """Restore the saved paths that the topology still has, of flows that are still managed."""
        for flow, entry in saved.items():
            if self._members.manages(flow) and self._pins.is_path(flow, entry.path):
                self._assigned[flow] = entry
                self._moved_ns[flow] = entry.since_ns
                self._seen.name(flow)

    def _path(self, flow: FlowSpec, seen: Path | None) -> Path | None:
        """Return the assigned path, else the only base path, else the last one seen, else the first base path.

        Where traffic is engineered no base path is the only one. `locate` does the same for all flows at once.
        """
        if flow in self._assigned:
            return self._assigned[flow].path
        src, dst = self.network.ends(flow.src_host, flow.dst_host)
        base = self.network.base(src, dst)
        if base is None or (base[1] and (self.engineer is None or seen is None)):
            return None if base is None else base[0]
        return seen if seen is not None and self._is_path(seen, src, dst) else base[0]

    def _is_path(self, path: Path, src: str, dst: str) -> bool:
        return bool(path) and (path[0], path[-1]) == (src, dst) and self.network.has_path(path)

    def _apply(self, decision: Decision) -> None:
        self._moved_ns[decision.flow] = decision.time_ns
        base = self.network.base(decision.new_path[0], decision.new_path[-1])
        if base == (decision.new_path, True) and not self._pins.holds(decision.flow, decision.new_path):
            self._assigned.pop(decision.flow, None)
        else:
            self._assigned[decision.flow] = Assigned(decision.new_path, decision.time_ns)
