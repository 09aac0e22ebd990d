"""The truncated packet inside a telemetry report: its flow and its INT headers, or its IFA or IOAM trace.

IP header with options or extension headers, TCP or UDP header with options, a tunnel's header; then, if the packet is
marked, INT (`inner_int`). The packet may end anywhere after the required parts.

Flow: that of the packet as its source sent it. Headers that an INT source inserted (a UDP header with NPT 2, a GRE
header with G) are skipped; a tunnel that existed before is the flow itself, since switches route the tunnel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from dataplane.errors import WireError
from dataplane.wire import ethernet, ifa, inner_int, ioam, ipv4, ipv6, probe_marker, tcp, udp, vlan
from dataplane.wire.domain_metadata import FABRIC, SEQUENCE
from dataplane.wire.ethernet import ETHER_IPV4, ETHER_IPV6, ETHER_VLAN
from dataplane.wire.fields import IpAddress, need
from dataplane.wire.gre import PROTOCOL_GRE
from dataplane.wire.inner_int import VXLAN_UDP_PORT, IntPart, Shim
from dataplane.wire.int_md import IntMd
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.int_mx import IntMx
from dataplane.wire.int_shim import IntShim, NextProtocol
from dataplane.wire.int_shim_gre import ETHER_BRIDGED, GreShim
from dataplane.wire.int_shim_vxlan_gpe import VxlanGpeShim
from dataplane.wire.ipv4 import PROTOCOL_TCP, PROTOCOL_UDP
from dataplane.wire.marking import UNMARKED, Marking
from dataplane.wire.tcp import Tcp
from dataplane.wire.udp import Udp

HEADER: Final = "inner packet"

_PROTOCOL_IPV4: Final = 4
_PROTOCOL_IPV6: Final = 41

# IPv6 extension headers that may precede TCP or UDP (RFC 8200, section 4.1); the second byte of all but the fragment
# header is their length, in units of 8 bytes without the first 8.
_EXTENSIONS: Final = frozenset({0, 43, 60})
_HOP_BY_HOP: Final = 0
_FRAGMENT: Final = 44


@dataclass(frozen=True, slots=True)
class InnerPacket:
    """The original packet's 5-tuple (ports 0 if absent) and its INT stack, newest hop first.

    `packet_id` distinguishes packets of a flow and is the same at every hop, in 63 bits: IPv4 identification (low 15),
    TCP sequence number or the one that our domain's source gave a UDP packet (32), L4 checksum as the source sent it
    (16); 0 for parts that the packet lacks. `ip_bytes` is the length of the whole IP packet without INT's headers,
    according to the IP header. `hops` may also be of IFA or IOAM; `cut_trace` says that some are missing from these.
    """

    src: IpAddress
    dst: IpAddress
    protocol: int
    src_port: int
    dst_port: int
    packet_id: int
    ip_bytes: int
    shim: Shim | None = None
    int_md: IntMd | None = None
    hops: tuple[HopMetadata, ...] = ()
    int_mx: IntMx | None = None
    cut_trace: bool = False


@dataclass(frozen=True, slots=True)
class _Network:
    """Fields of the IP header, and the offset of its payload; only the first fragment has ports."""

    src: IpAddress
    dst: IpAddress
    protocol: int
    dscp: int
    identification: int
    ip_bytes: int
    payload_at: int
    has_ports: bool


def decode_ethernet(data: bytes, marking: Marking, offset: int = 0) -> InnerPacket:
    """Return a truncated frame's flow and hops; raise WireError if it is malformed or not IP."""
    link = ethernet.decode(data, offset)
    offset, ether_type = offset + link.size, link.ether_type
    if ether_type == ETHER_VLAN:
        tag = vlan.decode(data, offset)
        offset, ether_type = offset + tag.size, tag.ether_type
    if ether_type == ETHER_IPV4:
        return decode_ipv4(data, marking, offset)
    if ether_type == ETHER_IPV6:
        return decode_ipv6(data, marking, offset)
    raise WireError(HEADER, f"EtherType {ether_type:#06x} is not IP", offset=offset)


def decode_ipv4(data: bytes, marking: Marking, offset: int = 0) -> InnerPacket:
    """Return a truncated IPv4 packet's flow and hops; raise WireError if it is malformed."""
    ip = ipv4.decode(data, offset)
    at, has_ports = offset + ip.size, ip.fragment_offset == 0
    network = _Network(ip.src, ip.dst, ip.protocol, ip.dscp, ip.identification, ip.total_length, at, has_ports)
    return _decode_transport(data, network, marking)


def decode_ipv6(data: bytes, marking: Marking, offset: int = 0) -> InnerPacket:
    """Return a truncated IPv6 packet's flow and hops; raise WireError if it is malformed."""
    ip = ipv6.decode(data, offset)
    protocol, at, has_ports, trace, trace_bytes = ip.next_header, offset + ip.size, True, None, 0
    while protocol in _EXTENSIONS or protocol == _FRAGMENT:
        need("ipv6 extension", data, at, 8)
        length = 8
        if protocol == _FRAGMENT:
            # Only the first fragment has ports; the lowest three bits are no part of the offset.
            has_ports = has_ports and int.from_bytes(data[at + 2 : at + 4], "big") >> 3 == 0
        else:
            # The length counts units of 8 bytes beyond the first (RFC 8200, section 4).
            length = 8 * (data[at + 1] + 1)
            need("ipv6 extension", data, at, length)
        if protocol == _HOP_BY_HOP and marking.ioam_namespace is not None and trace is None:
            trace = ioam.find(data, at + 2, at + length, marking.ioam_namespace, marking.ioam_timestamps)
            trace_bytes = length if trace is not None else 0
        protocol, at = data[at], at + length
    ip_bytes = max(0, ipv6.SIZE + ip.payload_length - trace_bytes)
    network = _Network(ip.src, ip.dst, protocol, ip.dscp, 0, ip_bytes, at, has_ports)
    found = _decode_transport(data, network, marking)
    if trace is None or found.hops or found.int_mx is not None:
        return found
    return replace(found, hops=trace.hops, cut_trace=trace.overflow)


def _decode_transport(data: bytes, network: _Network, marking: Marking) -> InnerPacket:
    protocol, at = network.protocol, network.payload_at
    if network.has_ports and protocol == marking.ifa_protocol and ifa.is_at(data, at):
        return _with_ifa(data, network)
    if network.has_ports and protocol == PROTOCOL_GRE and marking.gre_protocol is not None:
        return _with_gre(data, network, inner_int.behind_gre(data, at, marking.gre_protocol))
    if not network.has_ports or protocol not in (PROTOCOL_TCP, PROTOCOL_UDP):
        return _plain(network, None)
    header = _transport(data, protocol, at)
    part = _find_int(data, network, header, marking)
    if part is None:
        return _plain(network, header)
    if isinstance(part.shim, IntShim) and part.shim.next_protocol is NextProtocol.NEW_UDP:
        return _with_new_udp(data, network, part, part.shim.original_protocol)
    return _with_int(data, network, header, part)


def _find_int(data: bytes, network: _Network, header: Tcp | Udp, marking: Marking) -> IntPart | None:
    at = network.payload_at + header.size
    udp_port = header.dst_port if isinstance(header, Udp) else None
    if udp_port is not None and udp_port == marking.udp_port:
        return inner_int.behind_transport(data, at)
    if probe_marker.is_at(data, at, marking.probe_marker):
        return inner_int.behind_transport(data, at, marker=True)
    if marking.marks_dscp(network.dscp):
        return inner_int.behind_transport(data, at)
    if udp_port is not None and udp_port == marking.vxlan_gpe_port:
        return inner_int.behind_vxlan(data, at)
    if udp_port is not None and udp_port == marking.geneve_port:
        return inner_int.in_geneve(data, at)
    return None


def _plain(network: _Network, header: Tcp | Udp | None) -> InnerPacket:
    src_port, dst_port = (header.src_port, header.dst_port) if header else (0, 0)
    packet_id = _packet_id(network.identification, header, header.checksum if header else 0)
    return InnerPacket(network.src, network.dst, network.protocol, src_port, dst_port, packet_id, network.ip_bytes)


def _with_int(data: bytes, network: _Network, header: Tcp | Udp, part: IntPart) -> InnerPacket:
    """Return a packet with INT in its L4 payload, with the source's original port and checksum."""
    dst_port = header.dst_port
    if isinstance(header, Udp) and isinstance(part.shim, IntShim):
        changed = part.shim.next_protocol is NextProtocol.UDP_PAYLOAD
        dst_port = part.shim.original_udp_port if changed else dst_port
    elif isinstance(part.shim, VxlanGpeShim) and part.shim.was_vxlan:
        dst_port = VXLAN_UDP_PORT
    checksum = header.checksum
    # In UDP, 0 means that the sender computed none.
    if checksum:
        # A checksum is minus the sum of everything; the length is in the pseudo header and in UDP's header.
        lengths = part.size * (2 if isinstance(header, Udp) else 1)
        checksum = (checksum + part.total_sum(data) + lengths + header.dst_port - dst_port) % 0xFFFF
    packet_id = _packet_id(network.identification, header, checksum) | _source_sequence(header, part) << 16
    size = max(0, network.ip_bytes - part.size)
    src, dst, protocol = network.src, network.dst, network.protocol
    bare = InnerPacket(src, dst, protocol, header.src_port, dst_port, packet_id, size)
    return _carrying(bare, part)


def _with_new_udp(data: bytes, network: _Network, part: IntPart, protocol: int) -> InnerPacket:
    """Return the packet that INT and its UDP header were inserted into: the one behind them."""
    if protocol == _PROTOCOL_IPV4:
        return _carrying(decode_ipv4(data, UNMARKED, part.end), part)
    if protocol == _PROTOCOL_IPV6:
        return _carrying(decode_ipv6(data, UNMARKED, part.end), part)
    size = max(0, network.ip_bytes - udp.SIZE - part.size)
    original = replace(network, protocol=protocol, payload_at=part.end, ip_bytes=size)
    return _carrying(_decode_transport(data, original, UNMARKED), part)


def _with_ifa(data: bytes, network: _Network) -> InnerPacket:
    """Return a packet with IFA's header in front of L4's, and behind it the metadata."""
    told = ifa.decode(data, network.payload_at)
    at = network.payload_at + ifa.SIZE
    bare = replace(network, protocol=told.protocol, payload_at=at, ip_bytes=max(0, network.ip_bytes - ifa.SIZE))
    if told.protocol not in (PROTOCOL_TCP, PROTOCOL_UDP) or told.has_tail_stamps:
        return _decode_transport(data, bare, UNMARKED)
    header = _transport(data, told.protocol, at)
    stack_bytes = ifa.stack_bytes(data, at + header.size)
    hops = ifa.decode_stack(data, at + header.size)
    packet = _plain(replace(bare, ip_bytes=max(0, bare.ip_bytes - stack_bytes)), header)
    return replace(packet, hops=hops, cut_trace=told.is_fragment)


def _with_gre(data: bytes, network: _Network, part: IntPart | None) -> InnerPacket:
    if part is None:
        return _plain(network, None)
    inserted = _behind_inserted_gre(data, part)
    size = max(0, network.ip_bytes - part.size)
    return _carrying(inserted or replace(_plain(network, None), ip_bytes=size), part)


def _behind_inserted_gre(data: bytes, part: IntPart) -> InnerPacket | None:
    """Return the packet that the INT source put GRE in front of, None if GRE was there before or the rest is cut."""
    if not isinstance(part.shim, GreShim) or not part.shim.gre_inserted:
        return None
    decode = {ETHER_IPV4: decode_ipv4, ETHER_IPV6: decode_ipv6, ETHER_BRIDGED: decode_ethernet}
    try:
        return decode[part.shim.next_protocol](data, UNMARKED, part.end)
    except (KeyError, WireError):
        return None


def _carrying(packet: InnerPacket, part: IntPart) -> InnerPacket:
    return replace(packet, shim=part.shim, int_md=part.int_md, hops=part.hops, int_mx=part.int_mx)


def _transport(data: bytes, protocol: int, at: int) -> Tcp | Udp:
    return tcp.decode(data, at) if protocol == PROTOCOL_TCP else udp.decode(data, at)


def _packet_id(identification: int, header: Tcp | Udp | None, checksum: int) -> int:
    sequence = header.sequence if isinstance(header, Tcp) else 0
    return (identification & 0x7FFF) << 48 | sequence << 16 | checksum


def _source_sequence(header: Tcp | Udp, part: IntPart) -> int:
    """Return our source's number of a packet, 0 if there is none or TCP has its own."""
    telemetry = part.int_mx or part.int_md
    if telemetry is None or isinstance(header, Tcp) or telemetry.domain_id != FABRIC.domain_id:
        return 0
    return int.from_bytes(part.source_word, "big") if telemetry.domain_instructions & SEQUENCE else 0
