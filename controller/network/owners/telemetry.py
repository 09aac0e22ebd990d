"""Telemetry of all switches, and its changes: in stages, if the mark of INT packets changes.

A sink whose mark differs from that of a packet's source passes the packet to its host with INT in it. So the mark
changes only while no such packet is in flight: first no switch starts INT in packets (quiet), then those in flight
arrive (drain), then every switch gets the new mark (mark), and only then telemetry restarts (in force). A stage ends
when every switch has confirmed it; an absent one delays the change, because its behaviour is unknown. If a switch
refuses the change, all return to the previous telemetry, by the same stages. No session, no clock.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from finsy import P4TableAction, P4TableEntry

from controller.network.owners.base import ObservedState, Refusal, StagedOwner, Verdict
from controller.network.reconcile import diff, is_reset
from controller.network.tables.base import NO_COLLECTORS, WATCH_ALL, check_room, report_routes, telemetry_entities
from controller.network.tables.entities import Batch, Entities, Entity, EntityKey, Kind, index, same
from controller.network.tables.routing import FAMILIES
from controller.network.tables.telemetry.int_domain import DEFAULT_DOMAIN, IntDomain
from controller.network.tables.telemetry.int_watch import Watch, travels, watchlist_entities
from controller.network.tables.telemetry.reporting import NO_REPORTING, Reporting
from dataplane.clock import NS_PER_S
from dataplane.topology.values import CollectorAddress, LinkKey, Topology
from dataplane.wire.marking import Marking

LOGGER = logging.getLogger("millrace.controller")

_MARKS: Final = frozenset({"int_marker", "int_tunnels"})
_DOMAIN: Final = _MARKS | {"port_roles", "egress_ports"}
_WATCHLISTS: Final = frozenset(family.watchlist for family in FAMILIES)
_TABLES: Final = (
    _DOMAIN
    | _WATCHLISTS
    | {"node", "report_target", "collector", "gather", "drop_reports", "queue_watch"}
    | {"ipv4_drop_watch", "ipv6_drop_watch", "other_drop_watch", "ipv4_flow_filter", "ipv6_flow_filter"}
)
_LONGEST_FRAME_BITS: Final = 9216 * 8


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Desired measurements and reports of the switches, and the marking of packets with telemetry."""

    watches: tuple[Watch, ...] = WATCH_ALL
    reporting: Reporting = NO_REPORTING
    domain: IntDomain = DEFAULT_DOMAIN


class Stage(StrEnum):
    """Stage of a change."""

    QUIET = "no packet begins to carry INT"
    DRAIN = "packets with INT arrive"
    MARK = "switches get the new mark"
    IN_FORCE = "in force"


class TelemetryOwner(StagedOwner):
    """Owns switches' identity, measurements and reports; if one refuses a change, all return to the previous telemetry.

    `number` grows whenever the desired state changes: all switches must then be reconciled again.
    """

    name = "telemetry"

    def __init__(self, topology: Topology, wanted: Telemetry, others: Sequence[Entity] = ()) -> None:
        """Begin with the desired telemetry; raise ControllerError if it does not fit the topology.

        `others` are other rules in tables of telemetry, at switches with hosts: room is left for them.
        """
        self._topology, self._wanted = topology, wanted
        self._others = index(others)
        self._down: Set[LinkKey] = frozenset()
        self._collectors = NO_COLLECTORS
        self._report_routes: Mapping[str, Entities] = {}
        self.base = self._entities(wanted)
        """Each switch's tables in the final stage."""
        self._stage, self.number = Stage.IN_FORCE, 0
        self._previous: Telemetry | None = None
        self._mark: Marking | None = wanted.domain.marking()
        self._is_drained = False
        self._met: set[str] = set()
        self._told: dict[str, int] = {}
        self._missing: set[str] = set()
        self._enter(Stage.IN_FORCE)

    @property
    def stage(self) -> Stage:
        """Stage of the change."""
        return self._stage

    @property
    def missing(self) -> frozenset[str]:
        """The switches that have yet to confirm the stage."""
        return frozenset(self._missing)

    @property
    def is_settled(self) -> bool:
        """Return whether every switch has confirmed the desired state."""
        return self.stage is Stage.IN_FORCE and not self._missing

    @property
    def pause_ns(self) -> int | None:
        """Longest flight of packets with INT, while the change waits for them; None otherwise."""
        return longest_flight_ns(self._topology) if self.stage is Stage.DRAIN else None

    def owns(self, key: EntityKey) -> bool:
        """Return whether an entity is in a table of telemetry and not another owner's rule, or a session of reports."""
        return key.kind is Kind.CLONE or (key.table in _TABLES and key not in self._others)

    def wanted(self, switch: str) -> Entities:
        """Return a switch's tables in the final stage."""
        return self.base[switch]

    def want(self, wanted: Telemetry) -> None:
        """Apply other telemetry; raise ControllerError, and change nothing, if it does not fit the topology."""
        base = self._entities(wanted)
        previous = self._wanted if self._previous is None else self._previous
        self._take(wanted, base)
        self._previous = previous

    def refused(self, refusal: Refusal) -> Verdict:
        """Revert a change on all switches; a switch that refuses the previous telemetry cannot be used."""
        if not self._roll_back():
            return Verdict.INSISTS
        LOGGER.warning("telemetry settings rolled back: %s", refusal.problem)
        return Verdict.SPARED

    def _roll_back(self) -> bool:
        """Restore the previous telemetry, because a switch refused the change; return whether there was a change."""
        if self._previous is None:
            return False
        self._take(self._previous, self._entities(self._previous))
        self._previous = None
        return True

    def avoid(self, down: Set[LinkKey]) -> None:
        """Make reports avoid these links, where there is another path to the collector."""
        self._down = down
        self._send_reports()

    def report_to(self, collectors: Mapping[str, CollectorAddress]) -> None:
        """Send each switch's reports to its collector, by switch name; the topology's has those not named.

        Only switches whose collector is another are written to, and none is read for it.
        """
        self._collectors = collectors
        self._send_reports()

    def _send_reports(self) -> None:
        self._report_routes = report_routes(self._topology, self._wanted.reporting, self._down, self._collectors)
        for switch, entities in self._report_routes.items():
            self.base[switch] = {**self.base[switch], **entities}

    def next_batches(self, switch: str, known: ObservedState) -> list[Batch]:
        """Return the updates that make a switch's reports avoid dead links, and reach their collector."""
        wanted, held = self._report_routes.get(switch, {}), known.held.get(switch, {})
        return diff(wanted, {key: held[key] for key in wanted if key in held})

    def restored(self, switch: str, actual: Entities, known: ObservedState) -> Entities:
        """Return the entities that a switch with `actual`, and its previously known ones, should hold at this stage.

        A switch seen for the first time with a different mark, left by another controller, begins a change.
        """
        if switch not in self._met and _is_marked_otherwise(actual, self.base[switch]):
            self._mark = None
            self._take(self._wanted, self.base)
        self._met.add(switch)
        self._told[switch] = self.number
        wanted = self.base[switch]
        if self.stage is Stage.IN_FORCE:
            return wanted
        calm = {key: entity for key, entity in wanted.items() if not _lets_travel(key, entity)}
        if self.stage is Stage.MARK:
            return calm
        before = known.held.get(switch, {})
        marked = before if _is_empty(actual) else actual
        kept = {key: entity for key, entity in (marked or calm).items() if key.table in _DOMAIN}
        return {**{key: entity for key, entity in calm.items() if key.table not in _DOMAIN}, **kept}

    def confirmed(self, switch: str, held: Entities) -> None:
        """Note that a switch holds the result of `restored`; the last one ends the stage."""
        if self._told.get(switch) != self.number:
            return
        self._missing.discard(switch)
        if self._missing:
            return
        if self.stage is Stage.QUIET:
            self._enter(Stage.DRAIN)
        elif self.stage is Stage.MARK:
            self._mark, self._is_drained = self._wanted.domain.marking(), False
            self._enter(Stage.IN_FORCE)
        elif self.stage is Stage.IN_FORCE:
            self._previous = None

    def paused(self, number: int) -> None:
        """Note that all packets in flight at the change's `number` have arrived."""
        if self.stage is Stage.DRAIN and number == self.number:
            self._mark, self._is_drained = None, True
            self._enter(Stage.MARK)

    def _entities(self, wanted: Telemetry) -> dict[str, Entities]:
        if self._others:
            rules = watchlist_entities(self._topology, wanted.watches, at_edge=True)
            check_room(index((*rules, *self._others.values())))
        return telemetry_entities(
            self._topology, wanted.watches, wanted.reporting, wanted.domain, self._down, self._collectors
        )

    def _take(self, wanted: Telemetry, base: dict[str, Entities]) -> None:
        # All switches are reconciled for these, including the paths of their reports.
        self._wanted, self.base, self._report_routes = wanted, base, {}
        if self._mark == wanted.domain.marking():
            self._enter(Stage.IN_FORCE)
        else:
            self._enter(Stage.MARK if self._is_drained else Stage.QUIET)

    def _enter(self, stage: Stage) -> None:
        self._stage = stage
        self.number += 1
        self._missing = {node.name for node in self._topology.switches}


def longest_flight_ns(topology: Topology) -> int:
    """Return the longest flight of a packet of the highest priority: every queue that it meets is full.

    It crosses no switch twice, so at most one link more than there are switches; the slowest ones are assumed.
    """
    each = sorted(
        (
            link.delay_ns + (link.queue_frames + 1) * _LONGEST_FRAME_BITS * NS_PER_S // link.rate_bps
            for link in topology.directed_links.values()
        ),
        reverse=True,
    )
    return sum(each[: len(topology.switches) + 1])


def _lets_travel(key: EntityKey, entity: Entity) -> bool:
    """Return whether a watchlist entry starts INT in packets."""
    if key.table not in _WATCHLISTS or not isinstance(entity, P4TableEntry):
        return False
    return not isinstance(entity.action, P4TableAction) or travels(entity.action)


def _is_marked_otherwise(actual: Entities, wanted: Entities) -> bool:
    """Return whether a switch that is not new marks INT packets differently from the desired mark."""
    if _is_empty(actual):
        return False
    held, right = (_marks(entities) for entities in (actual, wanted))
    return held.keys() != right.keys() or any(not same(held[key], right[key]) for key in held)


def _marks(entities: Entities) -> dict[EntityKey, Entity]:
    return {key: entity for key, entity in entities.items() if key.table in _MARKS and not is_reset(entity)}


def _is_empty(actual: Entities) -> bool:
    """Return whether a switch has no node id yet."""
    return all(key.table != "node" or is_reset(entity) for key, entity in actual.items())
