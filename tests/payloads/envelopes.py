"""Envelopes of payloads: IPv4 and IPv6, TCP and UDP, tunnels, fragments, and lengths that disagree.

Beside what switches parse, what else of the standards hosts have on their wires: two VLAN tags, MPLS, PPPoE, IPv6
extension headers, IP in IP, GRE in UDP, IPsec, SCTP (tests/payloads/inside.py makes their headers).
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass

from dataplane.topology.addressing import gateway_mac
from dataplane.topology.values import HostNode, Topology
from tests.payloads import inside
from tests.payloads.inside import checksum

TCP, UDP, GRE = 6, 17, 47
VXLAN_PORT, GPE_PORT, GENEVE_PORT, GRE_PORT = 4789, 4790, 6081, 4754
AGGREGATION_PORT, STORE_PORT = 19777, 19778
KINDS = ("udp",) * 6 + ("tcp",) * 6 + ("gre", "gre", "vxlan", "gpe", "geneve", "gre in udp", "other", "other")
UDP_KINDS = ("udp", "vxlan", "gpe", "geneve", "gre in udp")
TUNNEL_PORTS = {"vxlan": VXLAN_PORT, "gpe": GPE_PORT, "geneve": GENEVE_PORT, "gre in udp": GRE_PORT}
PARSED_PORTS = (53, VXLAN_PORT, VXLAN_PORT - 1, GPE_PORT, GENEVE_PORT, AGGREGATION_PORT, STORE_PORT, 32766)
OTHER_PORTS = (443, 500, 1701, 2152, 3544, 4500, 4755, 4791, 6635)
"""QUIC, IKE, L2TP, GTP-U, Teredo, ESP in UDP, GRE in DTLS, RoCE v2, MPLS in UDP: payload to a switch."""
PORTS = (5000, GRE_PORT, *PARSED_PORTS, *OTHER_PORTS)
OTHERS = (1, 50, 58, 59, 89, 132, *inside.BEHIND_IP)
EXTENSIONS = (0, 43, 44, 51, 60)
VLAN_TAG, SERVICE_TAG = b"\x81\0\xa0\x2a", b"\x88\xa8\x20\x07"
TWO_TAGS = (SERVICE_TAG + VLAN_TAG, VLAN_TAG + b"\x81\0\0\x07", b"\x91\0\0\x07" + VLAN_TAG)


@dataclass(frozen=True, slots=True)
class Envelope:
    """Headers around a payload; the L4 `checksum` is valid (None) or these 16 bits.

    `tags` are VLAN tags and `shim` what else stands before IP, with its EtherType; `extensions` are of IPv6. `lie` is
    added to the UDP length; IP's own length says `short` bytes less than there are. `fragment` are flags and offset as
    IPv4 has them; `cut` bytes are missing at the frame's end.
    """

    version: int = 4
    kind: str = "udp"
    src_port: int = 5000
    dst_port: int = 5001
    checksum: int | None = None
    tags: bytes = b""
    shim: bytes = b""
    extensions: tuple[int, ...] = ()
    ip_options: int = 0
    tcp_options: bytes = b""
    protocol: int = UDP
    fragment: int = 0
    lie: int = 0
    short: int = 0
    padding: int = 0
    cut: int = 0
    dscp: int = 0
    tunnel: bytes = b""


def draw(rng: random.Random, marks: tuple[int, ...] = ()) -> Envelope:
    """Return an envelope; `marks` are DSCP values that packets may have besides 0."""
    kind = rng.choice(KINDS)
    version = rng.choice((4, 4, 6))
    rare = rng.random() < 0.15
    protocol = rng.choice(OTHERS if version == 4 or not rare else EXTENSIONS)
    return Envelope(
        version=version,
        kind=kind,
        src_port=rng.choice(PORTS) if rng.random() < 0.3 else rng.randrange(1024, 0x10000),
        dst_port=rng.choice(PORTS) if rng.random() < 0.4 else rng.randrange(1024, 0x10000),
        checksum=rng.choice((None, None, 0, 0, 0xFFFF, rng.getrandbits(16))),
        tags=_tags(rng),
        shim=rng.choice(inside.BEFORE_IP)(rng) if rng.random() < 0.02 else b"",
        extensions=_extensions(rng) if version == 6 and rng.random() < 0.25 else (),
        ip_options=rng.choice((0, 0, 0, 0, 1, 10)) if version == 4 else 0,
        tcp_options=inside.tcp_options(rng),
        protocol=protocol,
        fragment=rng.choice((0x2000, 0x2001, 0x0001, 0x00B9, 0x4000, 0x8000)) if rare and version == 4 else 0,
        lie=rng.choice((-0x1000, -8, -1, 1, 4, 8, 0x1000)) if rng.random() < 0.1 else 0,
        short=rng.choice((1, 4, 8, 20, 28, 64, 0xFFFF)) if rng.random() < 0.05 else 0,
        padding=rng.choice((0, 0, 0, 2, 18, 46)),
        cut=rng.choice((1, 4, 16, 20, 40)) if rng.random() < 0.02 else 0,
        dscp=rng.choice((0, 0, 0, 10, 46, *marks)),
        tunnel=inside.BEHIND_IP[protocol](rng)
        if kind == "other" and protocol in inside.BEHIND_IP
        else _tunnel(rng, kind),
    )


def draw_named(rng: random.Random) -> Envelope:
    """Return an envelope in which aggregating and storing switches look for their headers before INT."""
    ports = rng.choice(((5000, STORE_PORT), (STORE_PORT, 5000), (5000, AGGREGATION_PORT)))
    return Envelope(src_port=ports[0], dst_port=ports[1], checksum=0, tags=VLAN_TAG if rng.random() < 0.3 else b"")


def _tags(rng: random.Random) -> bytes:
    if rng.random() < 0.02:
        return rng.choice(TWO_TAGS)
    return rng.choice((VLAN_TAG, VLAN_TAG, VLAN_TAG, SERVICE_TAG)) if rng.random() < 0.2 else b""


def _extensions(rng: random.Random) -> tuple[int, ...]:
    return tuple(rng.choice(EXTENSIONS) for _ in range(rng.choice((1, 1, 2, 4))))


def _tunnel(rng: random.Random, kind: str) -> bytes:
    vni = rng.randbytes(3) + b"\0"
    if kind in ("gre", "gre in udp"):
        flags = rng.choice((0, 0x80, 0x20, 0x10, 0xA0, 0xB0, 0x40))
        options = 4 * sum(flags >> bit & 1 for bit in (7, 5, 4))
        protocol = rng.choice((0x0800, 0x6558, 0x86DD, 0x88B5))
        return struct.pack("!BBH", flags, rng.choice((0, 0, 0, 1)), protocol) + rng.randbytes(options)
    if kind == "vxlan":
        return bytes((8, 0, 0, rng.choice((0, 0, 0, 1)))) + vni
    if kind == "gpe":
        return bytes((rng.choice((8, 12, 12, 14)), 0, 0, rng.choice((1, 3, 4, 0x82)))) + vni
    if kind == "geneve":
        option = struct.pack("!HBB", 0x0103, 1, 4) + bytes.fromhex("20000808") + rng.randbytes(12)
        return struct.pack("!BBH", rng.choice((0, 5)), 0, 0x6558) + vni + option
    return b""


def frame(topology: Topology, src: HostNode, dst: HostNode, envelope: Envelope, payload: bytes) -> bytes:
    """Return the frame as the host sends it to its switch; IPv4's own checksum is right."""
    return frame_to(gateway_mac(topology, src.name), src, dst, envelope, payload)


def frame_to(mac: int, src: HostNode, dst: HostNode, envelope: Envelope, payload: bytes) -> bytes:
    """Return the frame as the host sends it to a switch port of that MAC address."""
    body, protocol = _body(src, dst, envelope, payload)
    link = mac.to_bytes(6, "big") + src.mac.to_bytes(6, "big") + envelope.tags
    size = max(0, len(body) - envelope.short)
    ip = _ipv4(src, dst, envelope, protocol, size) if envelope.version == 4 else b""
    if envelope.version == 6:
        body, protocol = inside.extended(envelope.extensions, protocol, body)
        size = max(0, len(body) - envelope.short)
        ip = struct.pack("!IHBB", 6 << 28 | envelope.dscp << 22 | 0x12345, size, protocol, 64)
        ip += b"".join(_addresses(src, dst, 6))
    packet = ip + body
    packet = packet[: len(packet) - min(envelope.cut, len(body))] if envelope.cut else packet + bytes(envelope.padding)
    return link + (envelope.shim or (b"\x08\0" if envelope.version == 4 else b"\x86\xdd")) + packet


def _ipv4(src: HostNode, dst: HostNode, envelope: Envelope, protocol: int, size: int) -> bytes:
    words = 5 + envelope.ip_options
    head = struct.pack(
        "!BBHHHBBH", 4 << 4 | words, envelope.dscp << 2 | 1, 4 * words + size, 7, envelope.fragment, 64, protocol, 0
    )
    head += src.ipv4.packed + dst.ipv4.packed + b"\x01" * (4 * envelope.ip_options)
    return head[:10] + checksum(head).to_bytes(2, "big") + head[12:]


def _body(src: HostNode, dst: HostNode, envelope: Envelope, payload: bytes) -> tuple[bytes, int]:
    """Return IP's payload and protocol."""
    if envelope.kind == "gre":
        body = envelope.tunnel + payload
        if body[0] >> 7 and envelope.checksum is None:
            zeroed = body[:4] + bytes(2) + body[6:]
            body = body[:4] + checksum(zeroed).to_bytes(2, "big") + body[6:]
        return body, GRE
    if envelope.kind == "other":
        return envelope.tunnel + payload, envelope.protocol
    if envelope.kind == "tcp":
        offset = 5 + len(envelope.tcp_options) // 4
        fixed = (envelope.src_port, envelope.dst_port, 0x01020304, 0, offset << 4, 0x18, 500, 0, 0)
        head, at, protocol = struct.pack("!HHIIBBHHH", *fixed) + envelope.tcp_options, 16, TCP
    else:
        dst_port = TUNNEL_PORTS.get(envelope.kind, envelope.dst_port)
        length = 8 + len(envelope.tunnel) + len(payload) + envelope.lie & 0xFFFF
        head, at, protocol = struct.pack("!HHHH", envelope.src_port, dst_port, length, 0), 6, UDP
    body = head + envelope.tunnel + payload
    value = envelope.checksum
    if value is None:
        ends = _addresses(src, dst, envelope.version)
        value = checksum(b"".join(ends) + struct.pack("!HH", protocol, len(body)) + body)
        value = 0xFFFF if value == 0 and protocol == UDP else value
    return body[:at] + value.to_bytes(2, "big") + body[at + 2 :], protocol


def _addresses(src: HostNode, dst: HostNode, version: int) -> tuple[bytes, bytes]:
    if version == 4:
        return src.ipv4.packed, dst.ipv4.packed
    assert src.ipv6 is not None
    assert dst.ipv6 is not None
    return src.ipv6.packed, dst.ipv6.packed


def is_routable(envelope: Envelope) -> bool:
    """Return whether switches find IP in a frame: behind one 802.1Q tag, or none, and nothing else."""
    return envelope.tags in (b"", VLAN_TAG) and not envelope.shim


def routed(data: bytes, dst_mac: int, src_mac: int, hops: int) -> bytes:
    """Return a frame after this many routers: MAC addresses, TTL and IPv4's checksum change, no more.

    Frames other than IP are not routed: they are returned unchanged.
    """
    out = bytearray(dst_mac.to_bytes(6, "big") + src_mac.to_bytes(6, "big") + data[12:])
    at = 18 if out[12:14] == b"\x81\0" else 14
    if bytes(out[at - 2 : at]) not in (b"\x08\0", b"\x86\xdd"):
        return data
    if out[at] >> 4 == 4:
        end = at + 4 * (out[at] & 15)
        out[at + 8] -= hops
        out[at + 10 : at + 12] = bytes(2)
        out[at + 10 : at + 12] = checksum(bytes(out[at:end])).to_bytes(2, "big")
    else:
        out[at + 7] -= hops
    return bytes(out)


@dataclass(frozen=True, slots=True)
class Marked:
    """The marks of a domain that are in headers, which hosts may not use; `gre_protocol` where tunnels carry INT."""

    dscp: int = 0
    dscp_mask: int = 0
    udp_port: int | None = None
    gre_protocol: bytes | None = None


def may_be_dropped(envelope: Envelope, marked: Marked) -> bool:
    """Return whether a frame may be dropped: it has the domain's mark in a header, or its end is missing.

    What the payload says does not matter.
    """
    if envelope.cut or not is_routable(envelope):
        return True
    if envelope.dscp and marked.dscp_mask and envelope.dscp & marked.dscp_mask == marked.dscp:
        return True
    if envelope.kind == "gre":
        return marked.gre_protocol is not None and envelope.tunnel[2:4] == marked.gre_protocol
    if envelope.kind in UDP_KINDS and not envelope.fragment & 0x3FFF:
        port = TUNNEL_PORTS.get(envelope.kind, envelope.dst_port)
        if port == marked.udp_port:
            return True
        if port == GPE_PORT and marked.gre_protocol is not None:
            # Whatever else VXLAN-GPE is asked for, its next protocol is INT's; a payload to that port is a header.
            return envelope.kind != "gpe" or (envelope.tunnel[0] & 4 != 0 and envelope.tunnel[3] == 0x82)
    return False
