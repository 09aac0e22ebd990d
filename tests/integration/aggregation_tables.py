"""What the switches of a fabric are to hold while jobs are added up in them, without any daemon."""

from __future__ import annotations

from collections.abc import Sequence

from collectors.state import NetworkStateBuilder
from controller.aggregation.jobs import Jobs, RunningJob
from controller.base_paths import next_hops
from controller.intents import Worker
from controller.tables.aggregation import unwatched_entities
from controller.tables.base import base_entities
from controller.tables.entities import Entities, index
from controller.tables.routing import switch_route_entities
from dataplane.clock import Clock
from dataplane.fabric.topology import Topology

FIRST_PORT = 20_000
"""UDP port of a job's first worker."""


class AggregationTables:
    """Jobs, and all entries that they and ordinary forwarding need."""

    def __init__(self, topology: Topology, clock: Clock) -> None:
        hops = next_hops(topology)
        self.jobs = Jobs(topology, hops)
        self._state = NetworkStateBuilder(topology, clock)
        self._base = {
            switch: index([*entities.values(), *switch_route_entities(topology, hops, switch), *unwatched_entities()])
            for switch, entities in base_entities(topology).items()
        }

    def create(
        self, hosts: Sequence[str], *, window: int, capacity: int | None = None, server: Worker | None = None
    ) -> RunningJob:
        """Place a job over hosts, all of them members; `capacity` is their number unless it is given."""
        workers = [Worker(host, FIRST_PORT + place) for place, host in enumerate(hosts)]
        most = len(workers) if capacity is None else capacity
        return self.jobs.create(workers, self._state.snapshot(), window=window, capacity=most, server=server)

    def wanted(self) -> dict[str, Entities]:
        """Return what every switch is to hold now, cells being clear."""
        found = {switch: dict(entities) for switch, entities in self._base.items()}
        for job in self.jobs.running:
            for switch, entities in self.jobs.entities_of(job.number).items():
                found[switch].update(entities)
        return dict(found)
