"""The path server without process, feed or clock: snapshots in, sets of routes out, decisions kept and explained."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from collectors.values import FlowKey, LinkStatus, Snapshot
from controller.common.errors import PathError, StorageError
from controller.network.algorithms.link_table import Longs
from controller.network.intents import FlowSpec, Route, RouteSet, WeightedRoute
from controller.network.links.loss_failures import LossFailureDetector
from controller.network.paths.avoidance import Avoidance
from controller.network.paths.balancing.balancer import Balancer, weights_on
from controller.network.paths.balancing.values import Rebalance
from controller.network.paths.deciding.decide import Decision, Verdict
from controller.network.paths.deciding.decider import Decider
from controller.network.paths.deciding.graph import Network, Path
from controller.network.paths.deciding.located import LocatedFlows
from controller.network.paths.drains import Drains
from controller.network.paths.engineering.demands import possible
from controller.network.paths.engineering.engineer import TrafficEngineer
from controller.network.paths.engineering.settings import EngineeringSettings
from controller.network.paths.positions import FlowPositions
from controller.network.paths.records.pair_store import PairStore
from controller.network.paths.records.store import PathStore
from controller.network.paths.records.values import (
    Assigned,
    DrainChange,
    DrainEffect,
    DrainList,
    Explanation,
    History,
    HistoryQuery,
)
from controller.network.paths.round_result import RoundResult
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

    kind_of_positions: type[FlowPositions] = FlowPositions
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
        self.positions = self.kind_of_positions(
            self.network,
            settings,
            flows,
            self.counters,
            max_flows=max_flows,
            forget_after_ns=forget_after_ns,
            is_engineered=engineering is not None,
        )
        self._snapshot: Snapshot | None = None
        self._located: LocatedFlows | None = None
        self._prepared_for: Longs = np.zeros(0, np.int64)
        self._is_reported = False
        self._loss_failures = LossFailureDetector(settings.dead_loss, settings.dead_loss_samples)
        self._avoidance = Avoidance(self._decider, self.positions, return_after_ns=settings.return_after_ns)
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
        return len(self.positions.managed)

    def outgrows(self, grown: Mapping[FlowKey, float]) -> bool:
        """Return whether flows have grown since the last round beyond what a link can carry.

        `grown` has the increase of each in measured packets per second.
        """
        return any(self._outgrows_a_link(flow, more_hz) for flow, more_hz in grown.items())

    def _outgrows_a_link(self, key: FlowKey, more_hz: float) -> bool:
        """Return whether `more_hz` measured packets would push a link on a flow's path above its rate."""
        path = self.positions.expected(key)
        if path is None or len(path) < 2:
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
            self._avoidance.backups.prepare(paths)
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
            if not self._avoidance.backups.has(path):
                if is_enough():
                    return
                self._avoidance.backups.prepare((path,))
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
        forgotten = self.positions.follow(snapshot, now_ns)
        if not self._is_reported:
            # After a restart the controller's reports to the collector count, until it reports here.
            self._avoidance.watch(snapshot.statuses)
        self._avoidance.observe(snapshot)
        if self.is_following:
            self._follow(snapshot, now_ns)
            return None
        decisions = [*self._avoidance.leave(snapshot, now_ns), *self._avoidance.come_back(snapshot, now_ns)]
        if self.engineer is not None:
            engineered = self._engineer(self.engineer, snapshot, now_ns)
            return self._publish(decisions) if decisions or engineered or forgotten else None
        self._located = current = self.positions.current(snapshot, now_ns)
        self._decider.locate(current)
        more = self._decider.step(now_ns, confirming=not out_of_turn)
        for decision in more:
            self.positions.apply(decision)
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
        current = self.positions.current(snapshot, now_ns)
        self._decider.locate(current)
        self._decider.watch(now_ns)
        paths = current.paths()
        self._avoidance.backups.prepare(paths)
        self.network.prepare(((path[0], path[-1]) for path in paths), self.settings.candidates, _PREPARED_A_ROUND)

    def _adopt(self) -> None:
        """Take over what the other path server of the pair has saved, if it has; measurements stay."""
        if not isinstance(self._store, PairStore) or not self._store.refresh():
            return
        self.decisions.clear()
        self.rebalances.clear()
        self.positions.clear()
        self._avoidance.clear()
        self.routes = self._restore(self._engineering, self._clock)

    def link_changed(self, link: LinkKey, now_ns: int, *, up: bool) -> RoundResult | None:
        """Note that a link went down or came back; return the routes around it, None if no route changes.

        Raise PathError for a link that is not between switches. A link that goes down stays so until it is reported up.
        """
        if link not in self.network.table.link_number:
            raise PathError(f"topology {self.network.topology.name} has no link {link} between switches")
        if up:
            self._avoidance.reported.by_hand.discard(link)
            return None
        self._avoidance.reported.by_hand.add(link)
        if self._snapshot is None or self.is_following:
            return None
        return self._leave_dead_links(self._snapshot, now_ns)

    def links_noted(self, statuses: Mapping[LinkKey, LinkStatus], now_ns: int) -> RoundResult | None:
        """Take the controller's reports on all links; return the routes around those that went down.

        None if no route changes; links that are not between switches of the topology are left out. The reports hold
        until the next call.
        """
        self._is_reported = True
        went_down = self._avoidance.watch(statuses)
        if not went_down or self._snapshot is None or self.is_following:
            return None
        return self._leave_dead_links(self._snapshot, now_ns)

    def pin(self, flow: FlowSpec, path: Path, now_ns: int) -> RoundResult | None:
        """Pin a flow to a path until it is released; return the new routes, None if it was pinned there already.

        Raise NoSuchPathError for a path that is not the flow's, DeadPathError for one with a dead or drained link,
        PathError for a flow that cannot be managed.
        """
        positions, pins = self.positions, self.positions.pins
        positions.check(flow)
        if pins.holds(flow, path):
            return None
        present = positions.present(flow, self._snapshot, path)
        decision = pins.hold(flow, present, path, self._avoidance.unusable, now_ns)
        self._avoidance.stay(flow)
        positions.admit(flow, now_ns)
        positions.apply(decision)
        return self._publish([decision])

    def release(self, flow: FlowSpec, now_ns: int) -> RoundResult:
        """Return a flow to the decider, which moves it when it finds a better path; raise PathError if not pinned.

        It follows base or weighted routes at once if its path is one of the base paths, if traffic is engineered, and
        if it is managed only for its pin: it names ports, and the settings list no flows.
        """
        path = self.positions.pins.release(flow)
        self._avoidance.stay(flow)
        present, then = self.positions.let_go(flow, self._snapshot, path)
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
        avoidance, snapshot = self._avoidance, self._state(now_ns)
        avoidance.drains = after
        avoidance.observe(snapshot)
        decisions = avoidance.leave(snapshot, now_ns)
        if not change.drained:
            decisions += avoidance.come_back(snapshot, now_ns)
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
        return len(self._avoidance.drains.elements)

    def drains(self, now_ns: int) -> DrainList:
        """Return the drained elements and the flows that stay on them."""
        return self._avoidance.drained(self._state(now_ns), now_ns)

    def _state(self, now_ns: int) -> Snapshot:
        """Return the last snapshot; before the first, one that knows nothing."""
        return self._snapshot or Snapshot(now_ns, {}, {}, {})

    def _foreseen(self, change: DrainChange, now_ns: int) -> tuple[DrainEffect, Drains]:
        """Return a change's effect by the present state, and the drains after it."""
        snapshot = self._state(now_ns)
        effect, after = self._avoidance.foresee(change, snapshot, now_ns)
        if self.engineer is None:
            return effect, after
        demands, dead = self.positions.demands(snapshot, after.elements.keys()), self._decider.dead_links()
        now, then = self.engineer.foresee(*demands, dead, after.links, now_ns)
        effect = replace(effect, fullest_before=None, fullest_after=None)
        return replace(effect, utilisation_before=now, utilisation_after=then), after

    def _leave_dead_links(self, snapshot: Snapshot, now_ns: int) -> RoundResult | None:
        """Only evacuate dead links: the last snapshot was already evaluated when it arrived."""
        self._avoidance.observe(snapshot)
        decisions = self._avoidance.leave(snapshot, now_ns)
        if self.engineer is not None:
            engineered = self._engineer(self.engineer, snapshot, now_ns)
            return self._publish(decisions) if decisions or engineered else None
        changes = self._give_up_weights(now_ns)
        return self._publish(decisions, changes) if decisions or changes else None

    def _give_up_weights(self, now_ns: int) -> list[Rebalance]:
        """Change weights of groups that lead over links which are dead or drained."""
        avoided, known = self._avoidance.avoided, self._avoidance.reported.watched.keys()
        return self._balancer.avoid(avoided.dead, known, now_ns, avoided.drained)

    def _rebalance(self, snapshot: Snapshot, now_ns: int, *, moved: bool, confirming: bool) -> list[Rebalance]:
        """Change weights of groups: off dead links at once, otherwise where no flow moved that would have helped."""
        balancer, beliefs = self._balancer, self._decider.beliefs
        changes = self._give_up_weights(now_ns)
        if self.settings.balance.enabled and not changes:
            last_ns = now_ns if moved else self.positions.last_move_ns
            changes = balancer.step(
                beliefs,
                lambda forwarding: self.positions.measured_flows(snapshot, forwarding),
                now_ns,
                last_move_ns=last_ns,
                confirming=confirming,
            )
        if changes:
            self._decider.rebalanced(now_ns)
        return changes

    def _engineer(self, engineer: TrafficEngineer, snapshot: Snapshot, now_ns: int) -> bool:
        """Continue a round of traffic engineering; return whether weights have changed."""
        before = engineer.failed_rounds
        drains = self._avoidance.drains
        demands, pinned_bps = self.positions.demands(snapshot, drains.elements.keys())
        done = engineer.step(demands, self._decider.dead_links(), now_ns, pinned_bps, drains.links)
        if engineer.failed_rounds != before:
            self.counters["engineering_failed"] += 1
            self.last_problem = engineer.last_problem
        return done is not None

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
        drained = tuple(sorted(self._avoidance.drains.links, key=str))
        explicit, pins = _routes_of(self.positions.explicit), _routes_of(self.positions.pins.paths)
        return RouteSet(version, explicit, weighted, pins, drained, token=self._token)

    def why(self, flow: FlowSpec, now_ns: int) -> Explanation:
        """Explain a flow's present path by the last snapshot; raise PathError for an unmanaged flow."""
        snapshot = self._snapshot
        if snapshot is None:
            raise PathError("decisions cannot be explained before the first snapshot")
        current = self.positions.current(snapshot, now_ns)
        if flow not in current:
            raise PathError(self.positions.why_not(flow))
        self._decider.locate(current)
        verdict = self._decider.explain(flow, now_ns)
        if verdict.moves:
            seen = f"{self._decider.rounds_wished(flow)} of the {self.settings.confirm_rounds} rounds to confirm a move"
            verdict = replace(verdict, reason=f"{verdict.reason} (in {seen})")
        path, pins = verdict.present.switches, self.positions.pins
        engineer = None if flow in pins.paths else self.engineer
        reason = self._with_weights(flow, verdict) if engineer is None else engineer.explain(path)
        if not pins.holds(flow, path):
            reason = pins.told(flow, reason)
        moves = [decision for decision in reversed(self.decisions) if decision.flow == flow][:_EXPLAINED_MOVES]
        pin = pins.paths.get(flow)
        pinned = () if pin is None else pin.path
        figures = verdict.present, verdict.candidates, verdict.rate_bps
        return Explanation(flow, *figures, reason, tuple(moves), pinned=pinned)

    def _with_weights(self, flow: FlowSpec, verdict: Verdict) -> str:
        """Return a verdict's reason, and the weights that a flow without an explicit path meets."""
        weights = {(route.switch, route.destination): route.next_hops for route in self._balancer.weighted}
        met = "" if flow in self.positions.explicit else weights_on(verdict.present.switches, weights)
        return f"{verdict.reason}; weights along its path: {met}" if met else verdict.reason

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
                self.positions.explicit,
                decisions,
                self.routes.weighted,
                changes,
                pins=self.positions.pins.paths,
                drains=self._avoidance.drains.elements,
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
            lost = self.positions.restore(explicit, self._store.pins())
            lost += self._avoidance.restore(self._store.drains(), newest_first)
        if engineering is None:
            self._balancer = Balancer(self.network, self.settings, weighted)
        else:
            fitting = possible(weighted, self.network.topology)
            self.engineer = TrafficEngineer(self.network.topology, engineering, fitting, clock)
        served = self._route_set(version)
        dropped = len(explicit) - len(served.routes) + len(weighted) - len(served.weighted) + lost
        self.counters["saved_routes_dropped"] += dropped
        # The set served may differ from the saved one, and a version must never denote two sets.
        return served if dropped == 0 else self._route_set(version + 1)


def _routes_of(paths: Mapping[FlowSpec, Assigned]) -> tuple[Route, ...]:
    """Return a route for each flow with an explicit path, by source, destination, protocol and ports."""
    return tuple(Route(flow, entry.path) for flow, entry in sorted(paths.items(), key=_order))


def _order(item: tuple[FlowSpec, Assigned]) -> tuple[str, ...]:
    flow = item[0]
    return tuple(map(str, (flow.src_host, flow.dst_host, flow.protocol, flow.src_port, flow.dst_port)))
