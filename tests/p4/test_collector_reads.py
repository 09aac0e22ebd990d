"""Reports of the P4 program under every mark, as the collector decodes them: flow, packet, size and hops."""

from __future__ import annotations

import pytest

from collectors.decode import reports as decode
from collectors.decode.reports import MeasuredPacket
from collectors.values import FlowKey, RecordKind
from dataplane.wire.inner import decode_ethernet
from dataplane.wire.marking import UNMARKED, Marking
from dataplane.wire.packet import decode_udp_frame
from tests.p4.entries import HOP_BY_HOP, MD, MX, XD, Watch
from tests.p4.markers import ByDscp, ByProbe, ByUdpPort, InTunnel, Marker
from tests.p4.targets import Target
from tests.p4.test_modes import CASES, FEW, INSTRUCTIONS, walk

KINDS = {MD: RecordKind.STACK, HOP_BY_HOP: RecordKind.HOP_BY_HOP, MX: RecordKind.MX, XD: RecordKind.XD}
MANY = (*FEW, "port-gre", "vxlan-no-checksum")


def marking_of(marker: Marker) -> Marking:
    """Return a mark as collector settings."""
    match marker:
        case ByDscp():
            return Marking(dscp=marker.dscp, dscp_mask=marker.mask)
        case ByProbe():
            return Marking(dscp=None, probe_marker=marker.marker)
        case ByUdpPort():
            return Marking(dscp=None, udp_port=marker.port)
        case InTunnel():
            return Marking(dscp=None, gre_protocol=marker.gre_protocol)
        case _:
            raise AssertionError(marker)


def packets_of(target: Target, marker: Marker, watch: Watch, original: bytes) -> list[MeasuredPacket]:
    """Return the collector's view of every report about a packet over three switches."""
    packets: list[MeasuredPacket] = []
    for _, reports in walk(target, marker, watch, original):
        for frame in reports:
            datagram = decode_udp_frame(frame)
            assert datagram is not None
            decoded = decode.decode(datagram.payload, marking_of(marker))
            assert (decoded.drops, decoded.skipped) == ((), 0)
            packets += decoded.packets
    return packets


SOURCE_NUMBER = 0x8000


@pytest.mark.parametrize("instructions", [0x8000, INSTRUCTIONS])
@pytest.mark.parametrize("mode", [MD, HOP_BY_HOP, MX])
@pytest.mark.parametrize("name", ["dscp-udp", "port-tcp", "vxlan-no-checksum"])
def test_packet_numbered_by_its_source_is_one_at_every_hop(
    target: Target, mode: int, name: str, instructions: int
) -> None:
    marker, original = CASES[name]
    watch = Watch(instructions, mode=mode, domain_instructions=SOURCE_NUMBER, watch_id=31)
    packets = packets_of(target, marker, watch, original)
    assert [hop.node_id for packet in packets for hop in packet.hops] == [101, 102, 103]
    assert len({packet.packet_id for packet in packets}) == 1


CHOSEN = [(mode, name) for mode in (MD, MX) for name in MANY]
CHOSEN += [(HOP_BY_HOP, name) for name in ("port-tcp-ipv6", "vxlan", "gre-all-ipv6")]
CHOSEN += [(XD, name) for name in ("dscp-udp", "dscp-bit-ipv6", "vxlan-as-udp")]


@pytest.mark.parametrize(("mode", "name"), CHOSEN)
def test_reports_of_a_marked_packet_are_of_the_hosts_flow(target: Target, mode: int, name: str) -> None:
    marker, original = CASES[name]
    sent = decode_ethernet(original, UNMARKED)
    packets = packets_of(target, marker, Watch(INSTRUCTIONS, mode=mode), original)
    nodes = [[hop.node_id for hop in packet.hops] for packet in packets]
    assert nodes == ([[101, 102, 103]] if mode == MD else [[101], [102], [103]])
    for packet in packets:
        assert packet.flow == FlowKey(sent.src, sent.dst, sent.protocol, sent.src_port, sent.dst_port)
        assert (packet.packet_id, packet.ip_bytes) == (sent.packet_id, sent.ip_bytes)
        assert packet.kind is KINDS[mode]
