"""INT inside packets, under every mark and encapsulation: the original flow, packet id and size, and the hops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.errors import WireError
from dataplane.wire import probe_marker, tcp, udp
from dataplane.wire.fields import IpAddress
from dataplane.wire.geneve import Geneve, GeneveOption
from dataplane.wire.gre import PROTOCOL_GRE, Gre
from dataplane.wire.inner import InnerPacket, decode_ethernet, decode_ipv4, decode_ipv6
from dataplane.wire.int_md import IntMd, encode_stack
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.int_mx import IntMx
from dataplane.wire.int_shim import IntShim, IntType, NextProtocol
from dataplane.wire.int_shim_gre import ETHER_BRIDGED, ETHER_INT, GreShim
from dataplane.wire.int_shim_vxlan_gpe import VxlanGpeShim
from dataplane.wire.marking import Marking
from dataplane.wire.packet import ip_packet, link_header
from dataplane.wire.vxlan_gpe import NEXT_ETHERNET, NEXT_INT, VxlanGpe

V4: tuple[IpAddress, IpAddress] = (IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"))
V6: tuple[IpAddress, IpAddress] = (IPv6Address("2001:db8::1"), IPv6Address("2001:db8::2"))
PORT, PROBE, DSCP_BIT = 0x5678, 0x1122334455667788, 0x20

HOPS = (HopMetadata(node_id=2, queue_id=0, queue_occupancy=9), HopMetadata(node_id=1, queue_id=0, queue_occupancy=3))
MD = IntMd(2, 6, 0x9000)
INT_MD = MD.encode() + encode_stack(MD, HOPS)
MX = IntMx(0x9000, 0x4D52, 0x8000, 0, (77).to_bytes(4, "big"))


def decode(packet: bytes, marking: Marking) -> InnerPacket:
    return decode_ipv4(packet, marking) if packet[0] >> 4 == 4 else decode_ipv6(packet, marking)


@dataclass(frozen=True)
class Sent:
    """A TCP or UDP packet as sent, and with INT and recomputed checksums."""

    addresses: tuple[IpAddress, IpAddress]
    over_tcp: bool
    payload: bytes
    dst_port: int = 6001

    def build(self, payload: bytes, *, dst_port: int | None = None, dscp: int = 0) -> bytes:
        return ip_packet(*self.addresses, 6 if self.over_tcp else 17, self.segment(payload, dst_port), dscp=dscp)

    def segment(self, payload: bytes, dst_port: int | None = None) -> bytes:
        port = self.dst_port if dst_port is None else dst_port
        if self.over_tcp:
            return tcp.segment(*self.addresses, tcp.Tcp(5000, port, sequence=0x01020304, options=bytes(8)), payload)
        return udp.segment(*self.addresses, 5000, port, payload)

    def plain(self) -> bytes:
        return self.build(self.payload)

    def shim(self, following: NextProtocol, body: bytes = INT_MD) -> bytes:
        port = self.dst_port if following is NextProtocol.UDP_PAYLOAD else 0
        kind = IntType.MD if body is INT_MD else IntType.MX
        protocol = 6 if self.over_tcp else 17
        return IntShim(
            kind,
            len(body) // 4,
            following,
            original_udp_port=port,
            original_protocol=protocol if following is NextProtocol.NEW_UDP else 0,
        ).encode()

    def by_dscp(self) -> bytes:
        return self.build(self.shim(NextProtocol.UNCHANGED) + INT_MD + self.payload, dscp=0x17)

    def by_dscp_bit(self) -> bytes:
        return self.build(self.shim(NextProtocol.UNCHANGED) + INT_MD + self.payload, dscp=DSCP_BIT | 0x0A)

    def by_probe_marker(self) -> bytes:
        return self.build(
            probe_marker.encode(PROBE) + self.shim(NextProtocol.UNCHANGED) + INT_MD + self.payload, dscp=0x17
        )

    def by_port(self) -> bytes:
        if self.over_tcp:
            return self.behind_new_udp()
        return self.build(self.shim(NextProtocol.UDP_PAYLOAD) + INT_MD + self.payload, dst_port=PORT)

    def behind_new_udp(self) -> bytes:
        body = self.shim(NextProtocol.NEW_UDP) + INT_MD + self.segment(self.payload)
        header = udp.Udp(0xABCD, PORT, udp.SIZE + len(body)).encode()
        return ip_packet(*self.addresses, 17, header + body)


MARKINGS: list[tuple[Callable[[Sent], bytes], Marking]] = [
    (Sent.by_dscp, Marking()),
    (Sent.by_dscp_bit, Marking(dscp=DSCP_BIT, dscp_mask=DSCP_BIT)),
    (Sent.by_probe_marker, Marking(dscp=None, probe_marker=PROBE)),
    (Sent.by_port, Marking(dscp=None, udp_port=PORT)),
    (Sent.behind_new_udp, Marking(dscp=None, udp_port=PORT)),
]


@pytest.mark.parametrize(("mark", "marking"), MARKINGS)
@pytest.mark.parametrize("addresses", [V4, V6])
@pytest.mark.parametrize("over_tcp", [False, True])
@settings(max_examples=15)
@given(payload=st.binary(max_size=21))
def test_a_marked_packet_is_the_packet_that_was_sent_with_hops(
    mark: Callable[[Sent], bytes],
    marking: Marking,
    addresses: tuple[IpAddress, IpAddress],
    over_tcp: bool,
    payload: bytes,
) -> None:
    sent = Sent(addresses, over_tcp, payload)
    plain, decoded = decode(sent.plain(), marking), decode(mark(sent), marking)
    assert (decoded.src, decoded.dst, decoded.protocol, decoded.src_port, decoded.dst_port) == (
        *addresses,
        6 if over_tcp else 17,
        5000,
        6001,
    )
    assert decoded.packet_id == plain.packet_id != 0
    assert decoded.ip_bytes == plain.ip_bytes == len(sent.plain())
    assert decoded.hops == HOPS
    assert decoded.int_md == MD
    assert plain.shim is None


def test_mx_header_has_no_hops_and_its_sequence_is_the_packet_id() -> None:
    sent = Sent(V6, over_tcp=False, payload=b"")
    data = sent.build(sent.shim(NextProtocol.UNCHANGED, MX.encode()) + MX.encode(), dscp=0x17)
    decoded = decode(data, Marking())
    assert (decoded.int_mx, decoded.hops, decoded.int_md) == (MX, (), None)
    assert decoded.packet_id >> 16 == 77


@pytest.mark.parametrize("hop_words", [1, 3])
def test_source_only_words_of_our_domain_are_no_hop(hop_words: int) -> None:
    instructions = 0x8000 if hop_words == 1 else 0xB000
    header = IntMd(hop_words, 5, instructions, 0x4D52, 0x8000)
    stack = bytes(4 * hop_words * 2) + (7).to_bytes(4, "big")
    body = header.encode() + stack
    shim = IntShim(IntType.MD, len(body) // 4)
    decoded = decode(Sent(V4, over_tcp=False, payload=b"").build(shim.encode() + body, dscp=0x17), Marking())
    assert len(decoded.hops) == 2
    assert decoded.hops[-1].domain == (7).to_bytes(4, "big")


def test_behind_a_new_udp_header_a_whole_ip_packet_may_stand() -> None:
    """INT v2.1, section 6.7: the source put IP, UDP and INT before an IP packet."""
    original = Sent(V6, over_tcp=True, payload=b"x")
    shim = IntShim(IntType.MD, len(INT_MD) // 4, NextProtocol.NEW_UDP, original_protocol=41)
    body = shim.encode() + INT_MD + original.plain()
    outer = ip_packet(*V4, 17, udp.Udp(1, PORT, udp.SIZE + len(body)).encode() + body)
    decoded = decode(outer, Marking(udp_port=PORT))
    plain = decode(original.plain(), Marking())
    assert (decoded.src, decoded.dst, decoded.dst_port, decoded.packet_id) == (*V6, 6001, plain.packet_id)
    assert (decoded.ip_bytes, decoded.hops) == (plain.ip_bytes, HOPS)


@pytest.mark.parametrize("inserted", [False, True])
@pytest.mark.parametrize("following", [0x0800, ETHER_BRIDGED])
def test_only_gre_inserted_by_the_source_is_looked_through(inserted: bool, following: int) -> None:
    original = Sent(V4, over_tcp=False, payload=b"inner")
    inner_bytes = original.plain() if following == 0x0800 else link_header(1, 2, 4) + original.plain()
    shim = GreShim(IntType.MD, len(INT_MD) // 4, following, gre_inserted=inserted)
    body = Gre(ETHER_INT, key=5).encode() + shim.encode() + INT_MD
    outer = ip_packet(IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2"), PROTOCOL_GRE, body + inner_bytes)
    decoded = decode(outer, Marking())
    assert decoded.hops == HOPS
    if inserted:
        plain = decode(original.plain(), Marking())
        assert (decoded.src, decoded.dst_port, decoded.packet_id) == (V4[0], 6001, plain.packet_id)
        assert decoded.ip_bytes == len(original.plain())
        decoded = decode(outer[: len(outer) - len(inner_bytes)], Marking())  # the report stops behind INT
    assert (str(decoded.src), decoded.protocol, decoded.dst_port) == ("192.0.2.1", PROTOCOL_GRE, 0)
    assert decoded.ip_bytes == len(outer) - len(shim.encode()) - len(INT_MD)


@pytest.mark.parametrize("was_vxlan", [False, True])
@pytest.mark.parametrize("destination_header", [False, True])
@pytest.mark.parametrize("addresses", [V4, V6])
def test_vxlan_tunnel_is_the_flow_with_its_original_checksum(
    was_vxlan: bool, destination_header: bool, addresses: tuple[IpAddress, IpAddress]
) -> None:
    frame = link_header(1, 2, 4) + Sent(V4, over_tcp=False, payload=b"tenant").plain()
    port = 4789 if was_vxlan else 4790
    before = Sent(addresses, over_tcp=False, payload=b"", dst_port=port)
    plain = before.build(VxlanGpe(100, None if was_vxlan else NEXT_ETHERNET).encode() + frame)
    last = VxlanGpeShim(IntType.MD, len(INT_MD) // 4, NEXT_ETHERNET, was_vxlan=was_vxlan)
    int_bytes = last.encode() + INT_MD
    if destination_header:
        first = VxlanGpeShim(IntType.MD, len(INT_MD) // 4, NEXT_INT, was_vxlan=was_vxlan)
        last = VxlanGpeShim(IntType.DESTINATION, 1, NEXT_ETHERNET, was_vxlan=was_vxlan)
        int_bytes = first.encode() + INT_MD + last.encode() + b"dest"
    marked = before.build(VxlanGpe(100, NEXT_INT).encode() + int_bytes + frame, dst_port=4790)
    decoded, expected = decode(marked, Marking()), decode(plain, Marking())
    assert (decoded.dst_port, decoded.packet_id, decoded.ip_bytes) == (port, expected.packet_id, len(plain))
    assert decoded.hops == HOPS


def test_int_in_a_geneve_option_is_found_behind_other_options() -> None:
    frame = link_header(1, 2, 4) + Sent(V4, over_tcp=False, payload=b"tenant").plain()
    before = Sent(V6, over_tcp=False, payload=b"", dst_port=6081)
    other = GeneveOption(0xFFF0, 1, b"1234")
    plain = before.build(Geneve(7, ETHER_BRIDGED, (other,)).encode() + frame)
    option = GeneveOption(0x0103, IntType.MD, INT_MD)
    marked = before.build(Geneve(7, ETHER_BRIDGED, (other, option)).encode() + frame)
    decoded, expected = decode(marked, Marking()), decode(plain, Marking())
    assert (decoded.dst_port, decoded.packet_id, decoded.ip_bytes) == (6081, expected.packet_id, len(plain))
    assert (decoded.hops, expected.hops) == (HOPS, ())


@pytest.mark.parametrize(("port", "protocol"), [(4790, 17), (6081, 17), (0, PROTOCOL_GRE)])
def test_tunnel_without_int_or_cut_short_is_its_own_flow(port: int, protocol: int) -> None:
    bodies = {4790: VxlanGpe(1).encode(), 6081: Geneve(1, 0x6558).encode(), 0: Gre(0x6558).encode()}
    for size in range(len(bodies[port]) + 1):
        body = bodies[port][:size]
        segment = body if protocol == PROTOCOL_GRE else udp.segment(*V4, 9, port, body)
        decoded = decode(ip_packet(*V4, protocol, segment), Marking())
        assert (decoded.protocol, decoded.dst_port, decoded.shim) == (protocol, port, None)


@pytest.mark.parametrize("over_tcp", [False, True])
@pytest.mark.parametrize(("mark", "marking"), MARKINGS)
def test_every_truncation_before_the_end_of_int_is_a_wire_error(
    mark: Callable[[Sent], bytes], marking: Marking, over_tcp: bool
) -> None:
    sent = Sent(V4, over_tcp=over_tcp, payload=b"")
    data = mark(sent)
    after_marker = 28 + (20 if over_tcp else 0) + 8 if marking.probe_marker else 0
    for size in range(after_marker, len(data)):
        with pytest.raises(WireError):
            decode_ipv4(data[:size], marking)


@given(st.data())
def test_damaged_packets_decode_or_raise_wire_error(data: st.DataObject) -> None:
    mark, marking = data.draw(st.sampled_from(MARKINGS))
    sent = Sent(data.draw(st.sampled_from([V4, V6])), data.draw(st.booleans()), b"payload")
    packet = bytearray(mark(sent))
    for at in data.draw(st.lists(st.integers(0, len(packet) - 1), min_size=1, max_size=3)):
        packet[at] ^= data.draw(st.integers(1, 255))
    try:
        decoded = decode_ethernet(link_header(1, 2, sent.addresses[0].version) + bytes(packet), marking)
    except WireError:
        return
    assert 0 <= decoded.packet_id < 1 << 63
