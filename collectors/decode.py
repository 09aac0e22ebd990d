"""A report's UDP payload to measured packets: pure, no state; `numbering` makes hop records of them.

Reports are of INT v2.1 in every mode: stacked (the sink adds its own metadata to the report, or to the stack), or one
hop each (our hop-by-hop domain, MX, XD).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from collectors.values import FlowKey
from dataplane.wire import inner, report, report_tlv
from dataplane.wire.inner import InnerPacket
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.marking import Marking
from dataplane.wire.report import Report
from dataplane.wire.report_group import ReportGroup
from dataplane.wire.report_individual import InnerType, ReportType
from dataplane.wire.report_int import IntReport
from dataplane.wire.report_tlv import TlvType

HOP_BY_HOP_DOMAIN: Final = 0x4D52
"""The INT domain in which each hop reports and strips; its flag stands in DSFlags and in the report's DSMdstatus."""

HOP_BY_HOP: Final = 0x8000
LAST_HOP: Final = 0x4000
REMAINING_HOPS: Final = 0x00FF


@dataclass(frozen=True, slots=True)
class MeasuredHop:
    """One hop's own words and who it is."""

    node_id: int | None
    metadata: HopMetadata


@dataclass(frozen=True, slots=True)
class MeasuredPacket:
    """What one individual report says of one packet; `hops` in travelling order.

    `remaining_hops` is the hop count left after the only hop of a hop-by-hop report, None otherwise; `last_hop` says
    that the path ends with `hops`; `missing_hops` that some hops on the way added nothing.
    """

    flow: FlowKey
    packet_id: int
    ip_bytes: int
    hops: tuple[MeasuredHop, ...]
    remaining_hops: int | None
    last_hop: bool
    missing_hops: bool
    dropped: bool


@dataclass(frozen=True, slots=True)
class DecodedReport:
    """A report packet; `skipped` counts individual reports that name no flow (no truncated IP packet, IOAM)."""

    group: ReportGroup
    packets: tuple[MeasuredPacket, ...]
    skipped: int


def decode(payload: bytes, marking: Marking) -> DecodedReport:
    """Return what a report's UDP payload says; raise WireError when any part of it is malformed."""
    packet = report.decode(payload)
    found = tuple(
        _measured(packet.group, one, truncated)
        for one in packet.reports
        if (truncated := _truncated_packet(one, marking)) is not None
    )
    return DecodedReport(packet.group, found, len(packet.reports) - len(found))


def _truncated_packet(one: Report, marking: Marking) -> InnerPacket | None:
    if one.report_type is ReportType.IOAM:
        return None
    match one.inner_type:
        case InnerType.IPV4:
            return inner.decode_ipv4(one.inner, marking)
        case InnerType.IPV6:
            return inner.decode_ipv6(one.inner, marking)
        case InnerType.ETHERNET:
            return inner.decode_ethernet(one.inner, marking)
        case InnerType.TLV:
            return next(_packets_of_tlvs(one.inner, marking), None)
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


def _measured(group: ReportGroup, one: Report, truncated: InnerPacket) -> MeasuredPacket:
    hops = tuple(MeasuredHop(hop.node_id, hop) for hop in reversed(truncated.hops))
    main = one.main
    # A sink may push its metadata on the stack instead (INT v2.1, section 5.8): then the stack's newest hop is its own.
    if main is not None and (main.bits or not hops or hops[-1].node_id != group.node_id):
        hops += (MeasuredHop(group.node_id, main.metadata),)
    remaining = _remaining_hops(main)
    header = truncated.int_md
    stacked = header is not None and remaining is None and not one.intermediate
    return MeasuredPacket(
        flow=FlowKey(truncated.src, truncated.dst, truncated.protocol, truncated.src_port, truncated.dst_port),
        packet_id=truncated.packet_id,
        ip_bytes=truncated.ip_bytes,
        hops=hops,
        remaining_hops=remaining,
        last_hop=stacked or (remaining is not None and main is not None and bool(main.domain_status & LAST_HOP)),
        missing_hops=header is not None and (header.hop_count_exceeded or header.mtu_exceeded),
        dropped=one.dropped,
    )


def _remaining_hops(main: IntReport | None) -> int | None:
    if main is None or main.domain_id != HOP_BY_HOP_DOMAIN or not main.domain_status & HOP_BY_HOP:
        return None
    return main.domain_status & REMAINING_HOPS
