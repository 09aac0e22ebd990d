"""A report's UDP payload to measured and dropped packets: pure, no state; `numbering` makes records of them.

Reports are of INT v2.1 in every mode: stacked (the sink adds its own metadata to the report, or to the stack),
intermediate, or one hop each (our hop-by-hop domain, MX, XD); besides, drop reports, congested queues' reports, and
those of items that a switch has added up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from collectors.values import FlowKey, RecordKind
from dataplane.errors import WireError
from dataplane.wire import completion, inner, report, report_tlv
from dataplane.wire.completion import Completion
from dataplane.wire.domain_metadata import FABRIC
from dataplane.wire.drop_reasons import DropReason
from dataplane.wire.inner import InnerPacket
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.marking import UNMARKED, Marking
from dataplane.wire.report import Report
from dataplane.wire.report_group import ReportGroup
from dataplane.wire.report_individual import InnerType, ReportType
from dataplane.wire.report_int import IntReport
from dataplane.wire.report_tlv import TlvType

HOP_BY_HOP_DOMAIN: Final = FABRIC.domain_id
"""The INT domain in which each hop reports and strips; its flag stands in DSFlags and in the report's DSMdstatus."""

HOP_BY_HOP: Final = 0x8000
LAST_HOP: Final = 0x4000
REMAINING_HOPS: Final = 0x00FF


@dataclass(frozen=True, slots=True)
class MeasuredHop:
    """Metadata words of one hop, and its identity."""

    node_id: int | None
    metadata: HopMetadata


@dataclass(frozen=True, slots=True)
class MeasuredPacket:
    """One packet as an individual report describes it; `hops` in travelling order.

    `remaining_hops` is the hop count left after the only hop of a hop-by-hop report, None otherwise; `last_hop` says
    that the path ends with `hops`; `missing_hops` that some hops on the way are missing from them.
    """

    flow: FlowKey
    packet_id: int
    ip_bytes: int
    hops: tuple[MeasuredHop, ...]
    kind: RecordKind
    remaining_hops: int | None
    last_hop: bool
    missing_hops: bool


@dataclass(frozen=True, slots=True)
class MeasuredDrop:
    """A packet that the reporter dropped, and its report of it; `flow` is None where the packet does not show it."""

    flow: FlowKey | None
    metadata: HopMetadata
    tracked: bool


@dataclass(frozen=True, slots=True)
class MeasuredItem:
    """An item that a switch has added up, as it reports it; the last contribution came from `child`."""

    said: Completion
    child: IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class DecodedReport:
    """A report packet; `skipped` counts individual reports that name no flow (no truncated IP packet, IOAM).

    `reserved` counts those of types that the specification keeps for later.
    """

    group: ReportGroup
    packets: tuple[MeasuredPacket, ...]
    drops: tuple[MeasuredDrop, ...]
    skipped: int
    reserved: int = 0
    items: tuple[MeasuredItem, ...] = ()


def decode(payload: bytes, marking: Marking) -> DecodedReport:
    """Return the contents of a report's UDP payload; raise WireError when any part of it is malformed.

    Only a dropped packet may be malformed: that may be why it was dropped.
    """
    packet = report.decode(payload)
    packets: list[MeasuredPacket] = []
    drops: list[MeasuredDrop] = []
    items: list[MeasuredItem] = []
    skipped = 0
    for individual in packet.reports:
        truncated = (
            _dropped_packet(individual, marking) if individual.dropped else _truncated_packet(individual, marking)
        )
        if individual.dropped:
            drops.append(MeasuredDrop(_flow(truncated) if truncated else None, _own(individual), individual.tracked))
        elif truncated is None:
            skipped += 1
        if truncated is not None and (completion := _completion(individual, truncated)) is not None:
            items.append(MeasuredItem(completion, truncated.src))
        elif truncated is not None and (measured := _measured(packet.group, individual, truncated)) is not None:
            packets.append(measured)
    return DecodedReport(packet.group, tuple(packets), tuple(drops), skipped, packet.reserved, tuple(items))


def _dropped_packet(report: Report, marking: Marking) -> InnerPacket | None:
    """Return the valid part of a dropped packet: with its INT headers, without them, or None."""
    for how in (marking, UNMARKED):
        try:
            return _truncated_packet(report, how)
        except WireError:
            continue
    return None


def _truncated_packet(report: Report, marking: Marking) -> InnerPacket | None:
    if report.report_type is ReportType.IOAM:
        return None
    match report.inner_type:
        case InnerType.IPV4:
            return inner.decode_ipv4(report.inner, marking)
        case InnerType.IPV6:
            return inner.decode_ipv6(report.inner, marking)
        case InnerType.ETHERNET:
            return inner.decode_ethernet(report.inner, marking)
        case InnerType.TLV:
            return next(_packets_of_tlvs(report.inner, marking), None)
        case InnerType.NONE | InnerType.DOMAIN:
            return None


def _packets_of_tlvs(data: bytes, marking: Marking) -> Iterator[InnerPacket]:
    for tlv in report_tlv.decode_all(data):
        match tlv.tlv_type:
            case TlvType.IPV4:
                yield inner.decode_ipv4(tlv.value, marking)
            case TlvType.IPV6:
                yield inner.decode_ipv6(tlv.value, marking)
            case TlvType.ETHERNET:
                yield inner.decode_ethernet(tlv.value, marking)
            case TlvType.DOMAIN:
                continue


def _completion(report: Report, truncated: InnerPacket) -> Completion | None:
    """Return the completion of an item that a report states, None if the report is about its packet."""
    if (
        report.main is None
        or report.dropped
        or _kind(report, truncated, _remaining_hops(report.main)) is not RecordKind.XD
    ):
        return None
    return completion.in_report(report.main)


def _measured(group: ReportGroup, report: Report, truncated: InnerPacket) -> MeasuredPacket | None:
    """Return the packet and hops that a report measures, None for a drop report without other hops."""
    remaining = _remaining_hops(report.main)
    kind = _kind(report, truncated, remaining)
    lost = report.dropped and _own(report).drop_reason != DropReason.INT_DISCARD
    if lost and not (report.tracked and truncated.hops and kind is RecordKind.STACK):
        return None
    header = truncated.int_md
    last_hop = remaining is not None and report.main is not None and bool(report.main.domain_status & LAST_HOP)
    return MeasuredPacket(
        flow=_flow(truncated),
        packet_id=truncated.packet_id,
        ip_bytes=truncated.ip_bytes,
        hops=_hops(group, report.main if not lost else None, truncated, kind),
        kind=kind,
        remaining_hops=remaining if kind is RecordKind.HOP_BY_HOP else None,
        last_hop=not lost and (last_hop or kind is RecordKind.STACK),
        missing_hops=lost
        or truncated.cut_trace
        or (header is not None and (header.hop_count_exceeded or header.mtu_exceeded)),
    )


def _kind(report: Report, truncated: InnerPacket, remaining: int | None) -> RecordKind:
    if report.congested and not report.tracked:
        return RecordKind.QUEUE
    if remaining is not None:
        return RecordKind.HOP_BY_HOP
    if truncated.int_mx is not None:
        return RecordKind.MX
    if truncated.int_md is None and not truncated.hops:
        return RecordKind.XD
    return RecordKind.INTERMEDIATE if report.intermediate else RecordKind.STACK


def _hops(
    group: ReportGroup, main: IntReport | None, truncated: InnerPacket, kind: RecordKind
) -> tuple[MeasuredHop, ...]:
    stacked = kind in (RecordKind.STACK, RecordKind.INTERMEDIATE)
    # The stack has the newest hop first, and records go in travelling order.
    hops = tuple(MeasuredHop(hop.node_id, hop) for hop in reversed(truncated.hops)) if stacked else ()
    # A sink may push its metadata on the stack instead (INT v2.1, section 5.8): then the stack's newest hop is its own.
    if main is not None and (main.bits or not hops or hops[-1].node_id != group.node_id):
        hops += (MeasuredHop(group.node_id, main.metadata),)
    return hops


def _own(report: Report) -> HopMetadata:
    return HopMetadata() if report.main is None else report.main.metadata


def _flow(packet: InnerPacket) -> FlowKey:
    return FlowKey(packet.src, packet.dst, packet.protocol, packet.src_port, packet.dst_port)


def _remaining_hops(main: IntReport | None) -> int | None:
    if main is None or main.domain_id != HOP_BY_HOP_DOMAIN or not main.domain_status & HOP_BY_HOP:
        return None
    return main.domain_status & REMAINING_HOPS
