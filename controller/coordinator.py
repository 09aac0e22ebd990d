"""What every switch should hold, what it is known to hold, and what to write next; no session, no clock.

Both drivers of it (the daemon over gRPC, the virtual controller in one process) do the same: hand over what they read
from a switch, send what `connected` and `next_step` return, and report what became of it. Everything is level
triggered: the next step follows from what is wanted and what is held now, whatever happened in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import pairwise

from controller.aggregation.layer import AggregationLayer
from controller.intents import RouteSet
from controller.reconcile import apply, chunks, diff
from controller.route_plan import RouteLayer, is_route_layer, merged
from controller.tables.aggregation import clearing, unwatched_entities
from controller.tables.base import COMPANIONS_TABLES, WATCH_ALL, check_room
from controller.tables.entities import Batch, Entities, EntityKey, Kind, Update, index
from controller.tables.flow_paths import FLOW_TABLES, flow_path_entities
from controller.tables.int_domain import DEFAULT_DOMAIN, IntDomain
from controller.tables.int_watch import Watch, watchlist_entities
from controller.tables.reporting import NO_REPORTING, Reporting
from controller.telemetry_change import Telemetry, TelemetryChange
from controller.update_plan import Step, UpdatePlan, plan, restorable
from dataplane.fabric.topology import LinkKey, Topology

_MAX_STRIKES = 2
"""One refusal may come from a wrong belief about what the switch holds, which reading it again mends."""


class Coordinator:
    """The tables of a whole fabric, wanted and held."""

    def __init__(
        self,
        topology: Topology,
        watches: Sequence[Watch] = WATCH_ALL,
        reporting: Reporting = NO_REPORTING,
        domain: IntDomain = DEFAULT_DOMAIN,
        aggregation: AggregationLayer | None = None,
    ) -> None:
        """Begin with nothing held; with `aggregation` the switches' program is to be the one that adds up."""
        self.topology = topology
        self.aggregation = aggregation
        self._check_watches(watches)
        self.routes: RouteSet | None = None
        self._routes = RouteLayer(topology)
        self.telemetry = TelemetryChange(topology, Telemetry(tuple(watches), reporting, domain))
        self._desired: dict[str, Entities] = {}
        self._held: dict[str, Entities] = {}
        self._live: set[str] = set()
        self._strikes: dict[EntityKey, int] = {}
        self.down: frozenset[LinkKey] = frozenset()
        """The links that are known to be dead."""
        self._detours = False

    def configure(self, watches: Sequence[Watch], reporting: Reporting, domain: IntDomain = DEFAULT_DOMAIN) -> None:
        """Want other telemetry from now on; raise ControllerError, and change nothing, if it does not fit the topology.

        What `connected` returns next brings a switch there, without touching anything else, or, while `telemetry` has
        another stage before it, to that stage.
        """
        self._check_watches(watches)
        self.telemetry.want(Telemetry(tuple(watches), reporting, domain))

    def avoid(self, down: Set[LinkKey]) -> bool:
        """Keep off these links from now on, both ways; return whether they are others than before.

        Base routes take other ways where there are any, by the steps that follow; reports do, by `report_updates`.
        """
        if down == self.down:
            return False
        self.down, self._detours = frozenset(down), True
        self._routes.avoid(down)
        self.telemetry.avoid(down)
        if self.routes is not None:
            self._desired = dict(flow_path_entities(self.topology, self._alive(self.routes)))
        return True

    def report_updates(self, switch: str) -> list[Batch]:
        """Return what has a switch's reports keep off dead links, in the order of sending."""
        wanted, held = self.telemetry.report_routes(switch), self.held(switch)
        return diff(wanted, {key: held[key] for key in wanted if key in held})

    @property
    def base(self) -> dict[str, Entities]:
        """What the topology and the wanted telemetry imply for each switch."""
        return self.telemetry.base

    @property
    def live(self) -> frozenset[str]:
        """The switches whose tables are known and can be written."""
        return frozenset(self._live)

    @property
    def refused(self) -> frozenset[EntityKey]:
        """Flow entries and groups that a switch refused repeatedly; they wait for other routes or for its return."""
        return frozenset(key for key, strikes in self._strikes.items() if strikes >= _MAX_STRIKES)

    def held(self, switch: str) -> Entities:
        """Return what a switch is known to hold, nothing for one never seen."""
        return self._held.get(switch, {})

    def want(self, routes: RouteSet) -> None:
        """Take the newest full set of routes; raise ControllerError, and change nothing, if one of them cannot be."""
        desired = dict(flow_path_entities(self.topology, self._alive(routes)))
        self._routes.want(routes.weighted)
        self._desired, self.routes = desired, routes
        self._strikes.clear()

    def _alive(self, routes: RouteSet) -> RouteSet:
        """Leave out explicit paths over dead links: base routes lead around those, also while nobody decides."""
        if not self.down:
            return routes
        kept = (route for route in routes.routes if self.down.isdisjoint(_links(route.switches)))
        return replace(routes, routes=tuple(kept))

    def connected(self, switch: str, actual: Entities) -> list[Batch]:
        """Take what was read from a switch and return what makes it right, paths and routes where that is safe.

        Explicit paths whose way onward is not in place yet, those that nobody wants any more, and routes that say
        something else are left as they are: the steps that follow change them in an order that is safe across switches.
        """
        actual = {key: entity for key, entity in actual.items() if key.table not in COMPANIONS_TABLES}
        wanted = self.telemetry.entities(switch, actual, self.held(switch))
        fixed = {key: entity for key, entity in wanted.items() if not is_route_layer(key)}
        self._held[switch] = actual
        flows = {key: entity for key, entity in actual.items() if _is_flow(key)}
        onward = restorable(self.topology, switch, self._desired, self._flows_held(self._live))
        flows.update((key, entity) for key, entity in onward.items() if key not in self._strikes)
        others = {name: entities for name, entities in self._held.items() if name != switch}
        routes = self._routes.restored(switch, actual, others, self._strikes.keys())
        sums: Entities = {}
        if self.aggregation is not None:
            self.aggregation.jobs.met(actual)
            sums = self.aggregation.wanted(switch)
        return diff({**fixed, **routes, **flows, **sums}, actual)

    def reconciled(self, switch: str) -> None:
        """Note that all that `connected` returned is acknowledged: from now on steps may use the switch."""
        self._live.add(switch)
        self.telemetry.confirm(switch)
        self.brought(switch)

    def lost(self, switch: str) -> None:
        """Note that a switch is gone, or that nobody knows what it holds."""
        self._live.discard(switch)

    def acknowledged(self, switch: str, updates: Iterable[Update]) -> None:
        """Note that updates took effect."""
        self._held[switch] = apply(self.held(switch), updates)

    def refuse(self, updates: Sequence[Update]) -> bool:
        """Note that a switch refused updates, and return whether all of them were about explicit paths or weights.

        After two refusals a flow stays as it is, on every switch, and so do the routes that want a group.
        """
        optional = [update.key for update in updates if _is_flow(update.key) or self._routes.is_weighted(update.key)]
        for key in optional:
            self._strikes[key] = self._strikes.get(key, 0) + 1
        return bool(updates) and len(optional) == len(updates)

    def clearings(self, switch: str) -> dict[int, list[Batch]]:
        """Return what clears a switch's cells for jobs that get them now, by job; say `cleared` when acknowledged."""
        if self.aggregation is None:
            return {}
        blocks = self.aggregation.jobs.to_clear(switch)
        return {number: chunks(list(clearing(block))) for number, block in blocks.items()}

    def cleared(self, number: int, switch: str) -> None:
        """Note that a switch's cells for a job are empty."""
        if self.aggregation is not None and number in self.aggregation.jobs.to_clear(switch):
            self.aggregation.jobs.cleared(number, switch)

    @property
    def has_repeated_numbers(self) -> bool:
        """Whether a job may have the number of one before it."""
        return self.aggregation is not None and self.aggregation.jobs.has_repeated_numbers

    def sums(self, switch: str) -> list[Batch]:
        """Return what brings a switch to what is wanted for the sake of sums, in the order of sending."""
        if self.aggregation is None:
            return []
        return diff(self.aggregation.wanted(switch), self.aggregation.ours(switch, self.held(switch)))

    def brought(self, switch: str) -> None:
        """Note that what `sums` returned is acknowledged: cells of jobs that have ended are free there."""
        if self.aggregation is not None and switch in self._live:
            self.aggregation.jobs.held(switch, self.held(switch))

    def forgive(self) -> None:
        """Let what was refused be tried again: a switch has returned, possibly with room or another program."""
        self._strikes.clear()

    def plan(self) -> UpdatePlan:
        """Return the steps from here to the wanted routes; none as long as nobody has said which routes are wanted."""
        refused = self.refused
        if self.routes is None:
            # Explicit paths and weights may be wanted that nobody has told of yet; dead links are left all the same.
            return self._routes.plan(self._held, self._live, refused) if self._detours else UpdatePlan((), frozenset())
        flows = plan(self.topology, self._desired, self._flows_held(self._held), self._live, refused)
        return merged((self._routes.plan(self._held, self._live, refused), flows))

    def next_step(self) -> Step | None:
        """Return what may be sent now, None when nothing is left that can be done."""
        steps = self.plan().steps
        return steps[0] if steps else None

    def _check_watches(self, watches: Sequence[Watch]) -> None:
        """Raise ControllerError for more rules than there is room for beside those that leave out packets of sums."""
        if self.aggregation is not None:
            rules = watchlist_entities(self.topology, watches, at_edge=True)
            check_room(index((*rules, *unwatched_entities())))

    def _flows_held(self, switches: Iterable[str]) -> Mapping[str, Entities]:
        return {
            switch: {key: entity for key, entity in self._held[switch].items() if _is_flow(key)} for switch in switches
        }


def _links(path: Sequence[str]) -> Iterator[LinkKey]:
    return (LinkKey(*pair) for pair in pairwise(path))


def _is_flow(key: EntityKey) -> bool:
    return key.kind is Kind.ENTRY and key.table in FLOW_TABLES
