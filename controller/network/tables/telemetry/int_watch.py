"""Rules for telemetry of flows (rate, mode, content): `ipv4_watchlist`, `ipv6_watchlist` (p4/ingress/int_watch.p4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Final, Literal

import msgspec
from finsy import P4TableAction, P4TableEntry

from controller.network.tables.entities import Entity
from controller.network.tables.flow_match import FlowRule, flow_match
from controller.network.tables.routing import FAMILIES
from dataplane.topology.values import Topology

DEFAULT_INSTRUCTIONS = (0, 1, 2, 3, 4, 5, 7)
"""Node id, level 1 interfaces, hop latency, queue occupancy, both timestamps, transmit utilisation."""

_PROTOCOLS = (17, 6)
"""Protocols that carry INT under any marking."""

Mode = Literal["md", "hop-by-hop", "mx", "xd"]
"""Mode of telemetry: the data that travels with a packet, and the reporters."""

_MODES: Final[dict[Mode, int]] = {"md": 0, "hop-by-hop": 1, "mx": 2, "xd": 3}
_SOURCE_NUMBER, _FORWARDING = 0x8000, 0x4000


class Watch(FlowRule, frozen=True):
    """One rule of the watchlist; omitted fields match everything, an omitted protocol UDP and TCP."""

    section: ClassVar[str] = "watches"

    sample_every: Annotated[int, msgspec.Meta(ge=1, le=0xFFFFFFFF)] = 1
    """One packet in this many carries telemetry."""
    instructions: tuple[Annotated[int, msgspec.Meta(ge=0, le=15)], ...] = DEFAULT_INSTRUCTIONS
    """Instruction bits of INT v2.1 section 5.7 that each hop answers; bit 0 is the most significant of 16."""
    max_hops: Annotated[int, msgspec.Meta(ge=1, le=255)] = 16
    """Hops that may add metadata before the exceeded bit is set."""
    mode: Mode = "md"
    """md: hops add metadata, which the sink reports; hop-by-hop and mx: the instructions travel and each hop reports;
    xd: each hop reports by this rule, which every switch has, and nothing travels."""
    source_number: bool = False
    """The source numbers its packets, and every report of one has its number (not in xd)."""
    forwarding: bool = False
    """Each hop reports which table decided, and the packet's TTL."""
    discard: bool = False
    """The packets are probes: the sink drops them after its report."""


def travels(action: P4TableAction) -> bool:
    """Return whether a watchlist's action has INT headers travel with packets."""
    return action.args.get("mode") != _MODES["xd"]


def instruction_bitmap(bits: Sequence[int]) -> int:
    """Return instruction bits as the header's 16-bit field: bit 0 is 0x8000."""
    bitmap = 0
    for bit in bits:
        bitmap |= 0x8000 >> bit
    return bitmap


def watchlist_entities(topology: Topology, watches: Sequence[Watch], *, at_edge: bool) -> Iterator[Entity]:
    """Yield the rules for one switch; the first rule that matches wins. Switches without hosts need them only for xd.

    Raise ControllerError for a rule that names a host which the topology does not have.
    """
    if not at_edge and all(watch.mode != "xd" for watch in watches):
        return
    rules = [(watch, protocol) for watch in watches for protocol in _protocols(watch)]
    for index, (watch, protocol) in enumerate(rules):
        for offset, family in enumerate(FAMILIES):
            match = flow_match(topology, watch, family, protocol)
            if match is not None:
                # A watch id names the rule's sampling counter in the switch, so no two entries share one.
                action = _watch(watch, watch_id=index * len(FAMILIES) + offset)
                yield P4TableEntry(family.watchlist, match=match, action=action, priority=len(rules) - index)


def _protocols(watch: Watch) -> tuple[int, ...]:
    return _PROTOCOLS if watch.protocol is None else (watch.protocol,)


def _watch(watch: Watch, watch_id: int) -> P4TableAction:
    return P4TableAction(
        "watch",
        watch_id=watch_id,
        sample_every=watch.sample_every,
        instructions=instruction_bitmap(watch.instructions),
        max_hops=watch.max_hops,
        mode=_MODES[watch.mode],
        domain_instructions=_SOURCE_NUMBER * watch.source_number | _FORWARDING * watch.forwarding,
        discard=int(watch.discard),
    )
