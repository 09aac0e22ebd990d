"""Filters for reports of flows without news: `ipv4_flow_filter`, `ipv6_flow_filter` (p4/egress/flow_filter.p4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

import msgspec
from finsy import P4TableAction, P4TableEntry

from controller.network.tables.entities import Entity
from controller.network.tables.flow_match import FlowRule, flow_match
from controller.network.tables.routing import FAMILIES
from dataplane.topology.values import Topology

NS_PER_US = 1_000
LONGEST_REFRESH_NS = 0xFFFFFFFF * NS_PER_US


class FlowFilter(FlowRule, frozen=True):
    """One rule: of these flows a switch reports the first packet, changes, and one packet in each refresh time.

    Another ingress or egress port is a change, and a latency that differs from the last one reported by a quantum.
    """

    section: ClassVar[str] = "flow filters"

    latency_quantum_ns: Annotated[int, msgspec.Meta(ge=1, le=0xFFFFFFFF)] = 100_000
    """A latency that differs from the last one reported by less is no change."""
    refresh_ns: Annotated[int, msgspec.Meta(ge=NS_PER_US, le=LONGEST_REFRESH_NS)] = 1_000_000_000
    """A flow without changes is reported again after this time, by whole microseconds."""


def flow_filter_entities(topology: Topology, filters: Sequence[FlowFilter]) -> Iterator[Entity]:
    """Yield the filters of one switch (all have the same); the first rule that matches wins.

    Raise ControllerError for a rule that names a host which the topology does not have.
    """
    for place, rule in enumerate(filters):
        for family in FAMILIES:
            match = flow_match(topology, rule, family, rule.protocol)
            if match is not None:
                action = P4TableAction(
                    "filter_reports", quantum_ns=rule.latency_quantum_ns, refresh_us=rule.refresh_ns // NS_PER_US
                )
                table = f"ipv{family.version}_flow_filter"
                yield P4TableEntry(table, match=match, action=action, priority=len(filters) - place)
