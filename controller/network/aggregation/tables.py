"""Table entries of switches for aggregation: their jobs, and what jobs need of a fabric.

Routes to the addresses of other switches, no telemetry inside packets of sums, congestion marks, and item reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from finsy import P4TableEntry

from controller.network.aggregation.job_migration import hops_without
from controller.network.aggregation.jobs import Jobs, number_of
from controller.network.aggregation.settings import AggregationSettings
from controller.network.base_paths import NextHops, next_hops
from controller.network.tables.aggregation import CELLS_REGISTER, congestion_entity, report_entity, unwatched_entities
from controller.network.tables.entities import Entities, Entity, EntityKey, Kind, index, key_of, same
from controller.network.tables.routing import IPV4, route_match, switch_route_entities
from dataplane.topology.addressing import switch_ipv4
from dataplane.topology.values import LinkKey, Topology

_TABLES = frozenset(
    ("congestion", "aggregation_reports", "aggregation_replicas", "aggregation_peers", "aggregation_jobs")
)
_LONGEST_QUEUE = (1 << 19) - 1


class AggregationTables:
    """Aggregation tables of a fabric; `jobs` are the desired ones."""

    def __init__(self, topology: Topology, settings: AggregationSettings, newest: int = 0) -> None:
        """Begin without jobs, with the number after `newest`; raise ControllerError for impossible settings."""
        settings.check()
        self.topology, self.settings = topology, settings
        self.dead: frozenset[LinkKey] = frozenset()
        """Links to avoid: those that switches report as down, and those that telemetry finds dead."""
        self._down: frozenset[LinkKey] = frozenset()
        self._measured: frozenset[LinkKey] = frozenset()
        hops: NextHops = next_hops(topology)
        self.hops, self._base, self._routes_by_destination = hops, hops, hops
        self.jobs = Jobs(topology, self.hops, newest)
        self._routes = frozenset(_route(int(switch_ipv4(node.node_id))) for node in topology.switches)
        self._fixed: dict[str, Entities] = {}

    def avoid(self, *, down: Set[LinkKey] | None = None, measured: Set[LinkKey] | None = None) -> bool:
        """Avoid dead links if there is another path; return whether that changes anything.

        `down` are links that switches report as down, `measured` those that telemetry finds dead; an omitted one is
        kept. Without another path routes are kept: a link may be taken for dead because nothing is heard of it.
        """
        self._down = self._down if down is None else frozenset(down)
        self._measured = self._measured if measured is None else frozenset(measured)
        dead = self._down | self._measured
        if dead == self.dead:
            return False
        self.dead, self.hops = dead, hops_without(self.topology, dead)
        self._fixed.clear()
        self._routes_by_destination = {end: {**ways, **self.hops[end]} for end, ways in self._base.items()}
        self.jobs.reroute(self.hops, self._routes_by_destination)
        return True

    def fixed(self, switch: str) -> Entities:
        """Return a switch's desired entities that do not depend on jobs."""
        if switch not in self._fixed:
            self._fixed[switch] = index(self._always(switch))
        return self._fixed[switch]

    def everything(self) -> Iterator[Entity]:
        """Yield entities of the kinds that a program must support."""
        yield from self.fixed(self.topology.switches[0].name).values()
        yield report_entity(1, 1, 0)

    def wanted(self, switch: str) -> Entities:
        """Return a switch's desired entities, of jobs as far as their cells are clear."""
        jobs = self.jobs.entities(switch)
        return {**self.fixed(switch), **jobs, **index(self._reports(jobs))}

    def owns(self, key: EntityKey) -> bool:
        """Return whether this owner alone writes an entity."""
        return key.table in _TABLES or key.table == CELLS_REGISTER or key.kind is Kind.MULTICAST or key in self._routes

    def lacking(self, number: int, switch: str, held: Entities) -> EntityKey | None:
        """Return the first difference between a switch and what a job needs there; None if there is none."""
        is_running = any(job.number == number for job in self.jobs.running)
        wanted = self.jobs.entities_of(number).get(switch, {}) if is_running else {}
        for key, entity in reversed([*wanted.items()]):
            if key not in held or not same(held[key], entity):
                return key
        return next(
            (key for key in held if number_of(key) == number and key not in wanted and self._is_jobs(key)), None
        )

    @staticmethod
    def _is_jobs(key: EntityKey) -> bool:
        return key.table in _TABLES and key.table != "aggregation_reports"

    def _reports(self, jobs: Entities) -> Iterator[Entity]:
        if self.topology.collector is None or not (self.settings.report_every or self.settings.report_slow_us):
            return
        # If no item is to be reported for its number, one in 4,294,967,296 still is.
        every = self.settings.report_every or 1 << 32
        for key in jobs:
            number = number_of(key)
            if key.table == "aggregation_jobs" and number is not None:
                yield report_entity(number, every, self.settings.report_slow_us)

    def _always(self, switch: str) -> Iterator[Entity]:
        yield from unwatched_entities()
        yield from switch_route_entities(self.topology, self._routes_by_destination, switch)
        yield self._congestion(switch)

    def _congestion(self, switch: str) -> Entity:
        frames = self.settings.mark_from_frames
        if frames is None:
            queues = (link.queue_frames for key, link in self.topology.directed_links.items() if key.src == switch)
            frames = max(1, min(queues, default=1) // 4)
        return congestion_entity(min(frames, _LONGEST_QUEUE))


def _route(address: int) -> EntityKey:
    return key_of(P4TableEntry(IPV4.routes, match=route_match(IPV4, address)))
