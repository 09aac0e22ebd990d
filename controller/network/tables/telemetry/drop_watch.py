"""Rules for reports of drops: `drop_reports` (p4/ingress/drop.p4) and the drop watches (p4/egress/drop_watch.p4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

import msgspec
from finsy import P4TableAction, P4TableEntry, P4TableMatch

from controller.common.errors import ControllerError
from controller.network.tables.entities import Entity
from controller.network.tables.flow_match import FlowRule, flow_match
from controller.network.tables.routing import FAMILIES
from dataplane.topology.values import Topology
from dataplane.wire.drop_reasons import DropReason

NAMES = tuple(reason.name.lower() for reason in DropReason)
WATCH_IDS = 1024
"""Cells of the switch's registers of quotas."""
_ALL = ""


class DropWatch(FlowRule, frozen=True):
    """One rule: drops of these flows, for these reasons, are reported; omitted fields match everything."""

    section: ClassVar[str] = "drop watches"

    reasons: tuple[str, ...] = ()
    """Names of drop reasons, such as no_route; none means all."""
    quota: Annotated[int, msgspec.Meta(ge=0, le=0xFFFFFFFF)] = 100
    """Reports that each switch sends of this rule in a window of 1.05 s (2^20 us) and family; 0: as many as drops."""


def watches_full_queues(watches: Sequence[DropWatch]) -> bool:
    """Return whether a rule covers packets that a full queue refused."""
    return any(not watch.reasons or DropReason.QUEUE_FULL.name.lower() in watch.reasons for watch in watches)


def drop_watch_entities(topology: Topology, watches: Sequence[DropWatch]) -> Iterator[Entity]:
    """Yield the entries that make one switch report drops, none without rules. The first rule that matches wins.

    Raise ControllerError for a rule with an unknown host or reason, and for too many rules.
    """
    rules = [(watch, reason) for watch in watches for reason in watch.reasons or (_ALL,)]
    if not rules:
        return
    if len(rules) * 3 > WATCH_IDS:
        raise ControllerError(f"{DropWatch.section}: {len(rules)} rules, but a switch has room for {WATCH_IDS // 3}")
    yield P4TableEntry("drop_reports", action=P4TableAction("report_drops"), is_default_action=True)
    for index, (watch, reason) in enumerate(rules):
        for offset, (table, match) in enumerate(_matches(topology, watch)):
            if match is not None:
                match.update(_reason_match(reason))
                action = P4TableAction("watch_drops", watch_id=index * 3 + offset, quota=watch.quota)
                yield P4TableEntry(table, match=match, action=action, priority=len(rules) - index)


def _matches(topology: Topology, watch: DropWatch) -> Iterator[tuple[str, P4TableMatch | None]]:
    for family in FAMILIES:
        yield f"ipv{family.version}_drop_watch", flow_match(topology, watch, family, watch.protocol)
    names_flow = any((watch.src, watch.dst, watch.protocol is not None, watch.src_port, watch.dst_port))
    yield "other_drop_watch", None if names_flow else P4TableMatch()


def _reason_match(reason: str) -> P4TableMatch:
    if reason == _ALL:
        return P4TableMatch()
    if reason not in NAMES:
        raise ControllerError(f"{DropWatch.section}: unknown drop reason {reason!r}; known: {', '.join(NAMES)}")
    return P4TableMatch(reason=(DropReason[reason.upper()], 0xFF))
