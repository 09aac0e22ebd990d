"""Reports of switches besides the telemetry of watched flows, and filters of the latter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

import msgspec
from finsy import P4TableAction, P4TableEntry

from controller.network.tables.entities import Entity
from controller.network.tables.flow_match import FlowRule, flow_match
from controller.network.tables.routing import FAMILIES
from controller.network.tables.telemetry.drop_watch import DropWatch, drop_watch_entities
from controller.network.tables.telemetry.gather import NO_GATHERING, Gathering, gather_entities
from controller.network.tables.telemetry.queue_watch import QueueWatch, queue_watch_entities
from dataplane.config import Strict
from dataplane.topology.values import Topology

NS_PER_US = 1_000
LONGEST_REFRESH_NS = 0xFFFFFFFF * NS_PER_US


class FlowFilter(FlowRule, frozen=True):
    """One rule: of these flows a switch reports the first packet, changes, and one packet in each refresh time.

    Another ingress or egress port is a change, and a latency that differs from the last one reported by a quantum.
    """

    section: ClassVar[str] = "flow filters"

    latency_quantum_ns: Annotated[int, msgspec.Meta(ge=1, le=0xFFFFFFFF)] = 100_000
    """A latency that differs from the last one reported by less is not a change."""
    refresh_ns: Annotated[int, msgspec.Meta(ge=NS_PER_US, le=LONGEST_REFRESH_NS)] = 1_000_000_000
    """A flow without changes is reported again after this time, by whole microseconds."""


def flow_filter_entities(topology: Topology, filters: Sequence[FlowFilter]) -> Iterator[Entity]:
    """Yield the filters of one switch (all have the same); the first rule that matches wins.

    Raise ControllerError for a rule that names a host which the topology does not have.
    """
    for index, rule in enumerate(filters):
        for family in FAMILIES:
            match = flow_match(topology, rule, family, rule.protocol)
            if match is not None:
                action = P4TableAction(
                    "filter_reports", quantum_ns=rule.latency_quantum_ns, refresh_us=rule.refresh_ns // NS_PER_US
                )
                table = f"ipv{family.version}_flow_filter"
                yield P4TableEntry(table, match=match, action=action, priority=len(filters) - index)


class Reporting(Strict, frozen=True):
    """Reports that a switch sends on its own, and filters of those that flows request."""

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
