"""Reports of switches besides the telemetry of watched flows, and filters of the latter."""

from __future__ import annotations

from collections.abc import Iterator

from controller.network.tables.entities import Entity
from controller.network.tables.telemetry.drop_watch import DropWatch, drop_watch_entities
from controller.network.tables.telemetry.flow_filter import FlowFilter, flow_filter_entities
from controller.network.tables.telemetry.gather import NO_GATHERING, Gathering, gather_entities
from controller.network.tables.telemetry.queue_watch import QueueWatch, queue_watch_entities
from dataplane.config import Strict
from dataplane.topology.values import Topology


class Reporting(Strict, frozen=True):
    """Reports that a switch sends on its own, and filters of those that flows ask for."""

    drops: tuple[DropWatch, ...] = ()
    """Drops to report, by the first rule that matches; default: none."""
    queues: tuple[QueueWatch, ...] = ()
    """Queues to watch for congestion, by the first rule that fits; default: none."""
    flows: tuple[FlowFilter, ...] = ()
    """Reports of watched flows to omit while nothing changes; default: every packet's report is sent."""
    gathering: Gathering = NO_GATHERING
    """Gathering of short reports into packets; default: one report per packet."""


NO_REPORTING = Reporting()


def reporting_entities(topology: Topology, switch: str, reporting: Reporting) -> Iterator[Entity]:
    """Yield the entries for one switch; raise ControllerError for a rule that does not fit the topology."""
    yield from drop_watch_entities(topology, reporting.drops)
    yield from queue_watch_entities(topology, switch, reporting.queues)
    yield from flow_filter_entities(topology, reporting.flows)
    yield from gather_entities(reporting.gathering)
