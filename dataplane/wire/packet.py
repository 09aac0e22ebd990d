"""Whole frames: building and parsing the UDP and TCP frames of hosts."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from dataplane.errors import WireError
from dataplane.wire import ethernet, ipv4, ipv6, tcp, udp, vlan
from dataplane.wire.checksum import internet_checksum, pseudo_header
from dataplane.wire.ethernet import ETHER_IPV4, ETHER_IPV6, ETHER_VLAN, Ethernet
from dataplane.wire.fields import IpAddress
from dataplane.wire.ipv4 import DONT_FRAGMENT, PROTOCOL_TCP, PROTOCOL_UDP, Ipv4
from dataplane.wire.ipv6 import Ipv6
from dataplane.wire.vlan import Vlan


@dataclass(frozen=True, slots=True)
class UdpFrame:
    """A received frame that holds a whole UDP datagram; `checksum_ok` is true for a correct or (IPv4) absent one."""

    ethernet: Ethernet
    vlan: Vlan | None
    ip: Ipv4 | Ipv6
    src_port: int
    dst_port: int
    payload: bytes
    checksum_ok: bool


@dataclass(frozen=True, slots=True)
class TcpFrame:
    """A received frame that holds a whole TCP segment; `checksum_ok` says whether its checksum is correct."""

    ip: Ipv4 | Ipv6
    header: tcp.Tcp
    payload: bytes
    checksum_ok: bool


def udp_frame(
    *,
    src_mac: int,
    dst_mac: int,
    src: IpAddress,
    dst: IpAddress,
    src_port: int,
    dst_port: int,
    payload: bytes,
    dscp: int = 0,
    ttl: int = 64,
    vlan_id: int | None = None,
) -> bytes:
    """Return an Ethernet frame with a UDP datagram over IPv4 or IPv6, with correct lengths and checksums."""
    segment = udp.segment(src, dst, src_port, dst_port, payload)
    packet = ip_packet(src, dst, PROTOCOL_UDP, segment, dscp=dscp, ttl=ttl)
    return link_header(src_mac, dst_mac, src.version, vlan_id) + packet


def tcp_frame(
    *,
    src_mac: int,
    dst_mac: int,
    src: IpAddress,
    dst: IpAddress,
    header: tcp.Tcp,
    payload: bytes,
    dscp: int = 0,
    ecn: int = 0,
    ttl: int = 64,
    vlan_id: int | None = None,
) -> bytes:
    """Return an Ethernet frame with a TCP segment over IPv4 or IPv6, with correct lengths and checksums."""
    segment = tcp.segment(src, dst, header, payload)
    packet = ip_packet(src, dst, PROTOCOL_TCP, segment, dscp=dscp, ecn=ecn, ttl=ttl)
    return link_header(src_mac, dst_mac, src.version, vlan_id) + packet


def link_header(src_mac: int, dst_mac: int, ip_version: int, vlan_id: int | None = None) -> bytes:
    """Return the Ethernet header, and the VLAN tag if any, of an IP packet."""
    ether_type = ETHER_IPV4 if ip_version == 4 else ETHER_IPV6
    if vlan_id is None:
        return Ethernet(dst_mac, src_mac, ether_type).encode()
    tag = Vlan(priority=0, drop_eligible=False, vlan_id=vlan_id, ether_type=ether_type)
    return Ethernet(dst_mac, src_mac, ETHER_VLAN).encode() + tag.encode()


def ip_packet(
    src: IpAddress, dst: IpAddress, protocol: int, segment: bytes, *, dscp: int = 0, ecn: int = 0, ttl: int = 64
) -> bytes:
    """Return an IPv4 (don't fragment) or IPv6 packet around a segment; both addresses are of one family."""
    if isinstance(src, IPv4Address) and isinstance(dst, IPv4Address):
        total = ipv4.MIN_SIZE + len(segment)
        header = Ipv4(src, dst, protocol, total, dscp=dscp, ecn=ecn, flags=DONT_FRAGMENT, ttl=ttl)
        return header.checked().encode() + segment
    if isinstance(src, IPv6Address) and isinstance(dst, IPv6Address):
        return Ipv6(src, dst, protocol, len(segment), dscp=dscp, ecn=ecn, hop_limit=ttl).encode() + segment
    raise WireError("ip", f"source {src} and destination {dst} are of different families")


def decode_udp_frame(frame: bytes) -> UdpFrame | None:
    """Return the UDP datagram of a received frame, None for other traffic; raise WireError for a malformed header."""
    link = ethernet.decode(frame)
    offset, ether_type, tag = link.size, link.ether_type, None
    if ether_type == ETHER_VLAN:
        tag = vlan.decode(frame, offset)
        offset, ether_type = offset + tag.size, tag.ether_type
    ip = _ip_header(frame, offset, ether_type, PROTOCOL_UDP)
    if ip is None:
        return None
    offset += ip.size
    header = udp.decode(frame, offset)
    datagram = frame[offset : offset + header.length]
    if len(datagram) < header.length:
        raise WireError(udp.HEADER, f"length {header.length}, but {len(datagram)} bytes are there", offset=offset)
    payload = datagram[udp.SIZE :]
    return UdpFrame(link, tag, ip, header.src_port, header.dst_port, payload, _udp_checksum_ok(ip, header, datagram))


def decode_tcp_frame(frame: bytes) -> TcpFrame | None:
    """Return the TCP segment of a received frame without a VLAN tag, None for other traffic; WireError as above."""
    link = ethernet.decode(frame)
    ip = _ip_header(frame, link.size, link.ether_type, PROTOCOL_TCP)
    if ip is None:
        return None
    offset = link.size + ip.size
    length = ip.total_length - ip.size if isinstance(ip, Ipv4) else ip.payload_length
    segment = frame[offset : offset + length]
    if len(segment) < length:
        raise WireError(tcp.HEADER, f"length {length}, but {len(segment)} bytes are there", offset=offset)
    header = tcp.decode(segment)
    sound = internet_checksum(pseudo_header(ip.src, ip.dst, PROTOCOL_TCP, length) + segment) == 0
    return TcpFrame(ip, header, segment[header.size :], sound)


def _ip_header(frame: bytes, offset: int, ether_type: int, protocol: int) -> Ipv4 | Ipv6 | None:
    """Return the header of a packet if it is whole and of a protocol, else None."""
    if ether_type == ETHER_IPV4:
        header = ipv4.decode(frame, offset)
        # Later fragments have no transport header, and the first lacks part of the payload.
        whole = header.fragment_offset == 0 and not header.flags & 1
        return header if whole and header.protocol == protocol else None
    if ether_type == ETHER_IPV6:
        other = ipv6.decode(frame, offset)
        return other if other.next_header == protocol else None
    return None


def _udp_checksum_ok(ip: Ipv4 | Ipv6, header: udp.Udp, datagram: bytes) -> bool:
    if header.checksum == 0:
        return isinstance(ip, Ipv4)
    return internet_checksum(pseudo_header(ip.src, ip.dst, PROTOCOL_UDP, len(datagram)) + datagram) == 0
