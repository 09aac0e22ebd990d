"""The truncated packet inside a telemetry report: whose flow it is, and the INT-MD stack it carries.

IP header with options or extension headers, TCP or UDP header with options, then, where the packet is marked, INT shim,
INT-MD header and stack (INT v2.1, section 5.7.2). The packet may end anywhere behind what is needed for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.errors import WireError
from dataplane.wire import ethernet, int_md, int_shim, ipv4, ipv6, tcp, udp, vlan
from dataplane.wire.checksum import ones_complement_sum
from dataplane.wire.ethernet import ETHER_IPV4, ETHER_IPV6, ETHER_VLAN
from dataplane.wire.fields import IpAddress, need
from dataplane.wire.int_md import IntMd
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.int_shim import IntShim, IntType, NextProtocol
from dataplane.wire.ipv4 import PROTOCOL_TCP, PROTOCOL_UDP
from dataplane.wire.tcp import Tcp
from dataplane.wire.udp import Udp

HEADER: Final = "inner packet"

INT_DSCP: Final = 0x17
"""The DSCP by which our programs mark INT packets, the specification's example value."""

# IPv6 extension headers that may stand before TCP or UDP (RFC 8200, section 4.1); all but the fragment header have
# their length, in 8 bytes without the first 8, in the second byte.
_EXTENSIONS: Final = frozenset({0, 43, 60})
_FRAGMENT: Final = 44


@dataclass(frozen=True, slots=True)
class Marking:
    """How an INT domain marks its packets (INT v2.1, section 5.7.2): DSCP and UDP destination port, None for unused."""

    dscp: int | None = INT_DSCP
    udp_port: int | None = None


@dataclass(frozen=True, slots=True)
class InnerPacket:
    """The original packet's 5-tuple (ports 0 where there are none) and its INT stack, newest hop first.

    `packet_id` tells packets of a flow apart and is the same at every hop, in 63 bits: IPv4 identification (low 15),
    TCP sequence number (32), L4 checksum without what INT headers add to it (16); 0 for what the packet lacks.
    `ip_bytes` is the whole IP packet's length without INT's headers, as the IP header has it.
    """

    src: IpAddress
    dst: IpAddress
    protocol: int
    src_port: int
    dst_port: int
    packet_id: int
    ip_bytes: int
    shim: IntShim | None = None
    int_md: IntMd | None = None
    hops: tuple[HopMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class _Network:
    """What the IP header says, and where its payload starts; a fragment but the first has no ports."""

    src: IpAddress
    dst: IpAddress
    protocol: int
    dscp: int
    identification: int
    ip_bytes: int
    payload_at: int
    has_ports: bool


def decode_ethernet(data: bytes, marking: Marking) -> InnerPacket:
    """Return a truncated frame's flow and hops; raise WireError when it is malformed or not IP."""
    link = ethernet.decode(data)
    offset, ether_type = link.size, link.ether_type
    if ether_type == ETHER_VLAN:
        tag = vlan.decode(data, offset)
        offset, ether_type = offset + tag.size, tag.ether_type
    if ether_type == ETHER_IPV4:
        return decode_ipv4(data, marking, offset)
    if ether_type == ETHER_IPV6:
        return decode_ipv6(data, marking, offset)
    raise WireError(HEADER, f"EtherType {ether_type:#06x} is not IP", offset=offset)


def decode_ipv4(data: bytes, marking: Marking, offset: int = 0) -> InnerPacket:
    """Return a truncated IPv4 packet's flow and hops; raise WireError when it is malformed."""
    ip = ipv4.decode(data, offset)
    at, has_ports = offset + ip.size, ip.fragment_offset == 0
    network = _Network(ip.src, ip.dst, ip.protocol, ip.dscp, ip.identification, ip.total_length, at, has_ports)
    return _decode_transport(data, network, marking)


def decode_ipv6(data: bytes, marking: Marking, offset: int = 0) -> InnerPacket:
    """Return a truncated IPv6 packet's flow and hops; raise WireError when it is malformed."""
    ip = ipv6.decode(data, offset)
    protocol, at, has_ports = ip.next_header, offset + ip.size, True
    while protocol in _EXTENSIONS or protocol == _FRAGMENT:
        need("ipv6 extension", data, at, 8)
        length = 8
        if protocol == _FRAGMENT:
            has_ports = has_ports and int.from_bytes(data[at + 2 : at + 4], "big") >> 3 == 0
        else:
            length = 8 * (data[at + 1] + 1)
            need("ipv6 extension", data, at, length)
        protocol, at = data[at], at + length
    ip_bytes = ipv6.SIZE + ip.payload_length
    return _decode_transport(data, _Network(ip.src, ip.dst, protocol, ip.dscp, 0, ip_bytes, at, has_ports), marking)


def _decode_transport(data: bytes, network: _Network, marking: Marking) -> InnerPacket:
    src, dst, protocol, at = network.src, network.dst, network.protocol, network.payload_at
    if not network.has_ports or protocol not in (PROTOCOL_TCP, PROTOCOL_UDP):
        return InnerPacket(src, dst, protocol, 0, 0, _packet_id(network.identification), network.ip_bytes)
    header = _transport(data, protocol, at)
    by_port = protocol == PROTOCOL_UDP and header.dst_port == marking.udp_port
    if not by_port and network.dscp != marking.dscp:
        packet_id = _packet_id(network.identification, header)
        return InnerPacket(src, dst, protocol, header.src_port, header.dst_port, packet_id, network.ip_bytes)
    int_at = at + header.size
    shim, int_header, hops, after = _decode_int(data, int_at)
    src_port, dst_port = header.src_port, header.dst_port
    packet_id = _packet_id(network.identification, header, data[int_at:after])
    if shim.next_protocol is NextProtocol.UDP_PAYLOAD:
        dst_port = shim.original_udp_port
    elif shim.next_protocol is NextProtocol.NEW_UDP:
        protocol, src_port, dst_port = shim.original_protocol, 0, 0
        if protocol in (PROTOCOL_TCP, PROTOCOL_UDP):
            original = _transport(data, protocol, after)
            src_port, dst_port = original.src_port, original.dst_port
            packet_id = _packet_id(network.identification, original)
    ip_bytes = max(0, network.ip_bytes - (after - int_at))
    return InnerPacket(src, dst, protocol, src_port, dst_port, packet_id, ip_bytes, shim, int_header, hops)


def _transport(data: bytes, protocol: int, at: int) -> Tcp | Udp:
    return tcp.decode(data, at) if protocol == PROTOCOL_TCP else udp.decode(data, at)


def _packet_id(identification: int, header: Tcp | Udp | None = None, int_bytes: bytes = b"") -> int:
    sequence = header.sequence if isinstance(header, Tcp) else 0
    checksum = header.checksum if header else 0
    if checksum:
        # The checksum is minus the sum of everything; adding INT's bytes back leaves what the source's packet had.
        checksum = (checksum + ones_complement_sum(int_bytes)) % 0xFFFF
    return (identification & 0x7FFF) << 48 | sequence << 16 | checksum


def _decode_int(data: bytes, at: int) -> tuple[IntShim, IntMd | None, tuple[HopMetadata, ...], int]:
    """Return shim, INT-MD header and hops, and where what follows them starts; other INT types have no hops."""
    shim = int_shim.decode(data, at)
    start, end = at + shim.size, at + shim.size + 4 * shim.length_words
    need(int_shim.HEADER, data, start, 4 * shim.length_words)
    if shim.int_type is not IntType.MD:
        return shim, None, (), end
    header = int_md.decode(data[:end], start)
    stack_at = start + header.size
    return shim, header, int_md.decode_stack(header, data[:end], stack_at, end - stack_at), end
