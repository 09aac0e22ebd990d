"""Marks that an INT domain may use: the table entries, and marked packets built from scratch from plain ones."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Protocol

from tests.p4.entries import DefaultAction, Item
from tests.p4.telemetry import IntHeaders, decode_int

TCP, UDP, GRE = 6, 17, 47
VXLAN_PORT, VXLAN_GPE_PORT = 4789, 4790
GRE_INT, VXLAN_INT = 0x88B5, 0x82


@dataclass(frozen=True, slots=True)
class Parts:
    """A frame up to IP, the IP header, and what IP carries."""

    link: bytes
    ip: bytes
    body: bytes

    @property
    def protocol(self) -> int:
        """Return the protocol of the body."""
        return self.ip[9] if self.ip[0] >> 4 == 4 else self.ip[6]

    @property
    def head_bytes(self) -> int:
        """Return the length of TCP with its options, or of UDP."""
        return int(self.body[12] >> 4 << 2) if self.protocol == TCP else 8

    @property
    def tunnel_bytes(self) -> int:
        """Return the length of GRE with its options, or of UDP and VXLAN."""
        if self.protocol != GRE:
            return 16
        return 4 + 4 * len([bit for bit in (7, 5, 4) if self.body[0] >> bit & 1])


def cut(frame: bytes) -> Parts:
    """Return a frame's parts."""
    at = 18 if frame[12:14] == b"\x81\x00" else 14
    end = at + (4 * (frame[at] & 15) if frame[at] >> 4 == 4 else 40)
    return Parts(frame[:at], frame[at:end], frame[end:])


def ones_sum(data: bytes) -> int:
    """Return the one's complement sum of 16-bit words (RFC 1071)."""
    data += bytes(len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def finish(parts: Parts, *, keep_checksum: bool = False) -> bytes:
    """Return the frame with lengths and checksums from scratch; a UDP checksum of zero stays."""
    ip, body = bytearray(parts.ip), bytearray(parts.body)
    if ip[0] >> 4 == 4:
        ip[2:4], ip[10:12] = (len(ip) + len(body)).to_bytes(2, "big"), bytes(2)
        ip[10:12] = (ones_sum(bytes(ip)) ^ 0xFFFF).to_bytes(2, "big")
        pseudo = bytes(ip[12:20]) + struct.pack("!HH", parts.protocol, len(body))
    else:
        ip[4:6] = len(body).to_bytes(2, "big")
        pseudo = bytes(ip[8:40]) + struct.pack("!HH", parts.protocol, len(body))
    if parts.protocol == UDP:
        body[4:6] = len(body).to_bytes(2, "big")
    at = {TCP: 16, UDP: 6, GRE: 4}.get(parts.protocol)
    has_checksum = {TCP: True, UDP: body[6:8] != b"\0\0", GRE: bool(body[0] >> 7)}.get(parts.protocol, False)
    if at is not None and has_checksum and not keep_checksum:
        body[at : at + 2] = bytes(2)
        checksum = ones_sum((b"" if parts.protocol == GRE else pseudo) + bytes(body)) ^ 0xFFFF
        body[at : at + 2] = (0xFFFF if checksum == 0 and parts.protocol == UDP else checksum).to_bytes(2, "big")
    return parts.link + bytes(ip) + bytes(body)


class Marker(Protocol):
    """One way to mark packets."""

    @property
    def items(self) -> tuple[Item, ...]:
        """Return the entries that set a switch to it."""
        ...

    def put(self, parts: Parts, headers: IntHeaders, source_port: int) -> Parts:
        """Return a packet with INT headers and mark; the port is a new UDP header's."""
        ...

    def place(self, parts: Parts) -> int:
        """Return where in a marked packet's body the shim is."""
        ...


def mark(marker: Marker, plain: bytes, headers: IntHeaders, *, like: bytes | None = None) -> bytes:
    """Return a plain frame marked and with INT headers, lengths and checksums right; new source ports as in `like`."""
    parts = cut(plain)
    body = cut(like).body if like is not None else b"\xc0\0"
    return finish(marker.put(parts, headers, int.from_bytes(body[:2], "big")))


def read(marker: Marker, frame: bytes) -> IntHeaders:
    """Return a marked frame's INT headers."""
    parts = cut(frame)
    return decode_int(parts.body[marker.place(parts) :])[0]


def _with_dscp(ip: bytes, dscp: int) -> bytes:
    if ip[0] >> 4 == 4:
        return ip[:1] + bytes([dscp << 2 | ip[1] & 3]) + ip[2:]
    traffic_class = dscp << 2 | (ip[1] >> 4) & 3
    return bytes([ip[0] & 0xF0 | traffic_class >> 4, (traffic_class & 15) << 4 | ip[1] & 15]) + ip[2:]


def _dscp(ip: bytes) -> int:
    return ip[1] >> 2 if ip[0] >> 4 == 4 else (ip[0] << 8 | ip[1]) >> 6 & 0x3F


def _with_protocol(ip: bytes, protocol: int) -> bytes:
    at = 9 if ip[0] >> 4 == 4 else 6
    return ip[:at] + bytes([protocol]) + ip[at + 1 :]


@dataclass(frozen=True, slots=True)
class ByDscp:
    """A DSCP value under a mask."""

    dscp: int = 0x17
    mask: int = 0x3F

    @property
    def items(self) -> tuple[Item, ...]:
        return (DefaultAction("int_marker", "mark_by_dscp", (self.dscp, self.mask)),)

    def put(self, parts: Parts, headers: IntHeaders, source_port: int) -> Parts:
        old = _dscp(parts.ip)
        at = parts.head_bytes
        shim = replace(headers, value=old << 2, npt=0).encode()
        ip = _with_dscp(parts.ip, old & ~self.mask | self.dscp)
        return Parts(parts.link, ip, parts.body[:at] + shim + parts.body[at:])

    def place(self, parts: Parts) -> int:
        return parts.head_bytes


@dataclass(frozen=True, slots=True)
class ByProbe:
    """A probe marker of 64 bits."""

    marker: int = 0xFEED_FACE_0BAD_CAFE

    @property
    def items(self) -> tuple[Item, ...]:
        return (DefaultAction("int_marker", "mark_by_probe", (self.marker,)),)

    def put(self, parts: Parts, headers: IntHeaders, source_port: int) -> Parts:
        at = parts.head_bytes
        data = self.marker.to_bytes(8, "big") + replace(headers, value=_dscp(parts.ip) << 2, npt=0).encode()
        return Parts(parts.link, parts.ip, parts.body[:at] + data + parts.body[at:])

    def place(self, parts: Parts) -> int:
        return parts.head_bytes + 8


@dataclass(frozen=True, slots=True)
class ByUdpPort:
    """A UDP destination port: NPT 1 for UDP, NPT 2 for the rest, or for all."""

    port: int = 5599
    always_new_udp: bool = False

    @property
    def items(self) -> tuple[Item, ...]:
        return (DefaultAction("int_marker", "mark_by_udp_port", (self.port, int(self.always_new_udp))),)

    def put(self, parts: Parts, headers: IntHeaders, source_port: int) -> Parts:
        if parts.protocol == UDP and not self.always_new_udp:
            shim = replace(headers, value=int.from_bytes(parts.body[2:4], "big"), npt=1).encode()
            body = parts.body[:2] + self.port.to_bytes(2, "big") + parts.body[4:8] + shim + parts.body[8:]
            return Parts(parts.link, parts.ip, body)
        data = replace(headers, value=parts.protocol, npt=2).encode() + parts.body
        udp = struct.pack("!HHHH", source_port, self.port, 0, 0)
        return Parts(parts.link, _with_protocol(parts.ip, UDP), udp + data)

    def place(self, parts: Parts) -> int:
        return 8


@dataclass(frozen=True, slots=True)
class InTunnel:
    """Behind GRE, or behind VXLAN-GPE, which VXLAN becomes."""

    gre_protocol: int = GRE_INT

    @property
    def items(self) -> tuple[Item, ...]:
        return (DefaultAction("int_tunnels", "carry_in_tunnels", (self.gre_protocol,)),)

    def put(self, parts: Parts, headers: IntHeaders, source_port: int) -> Parts:
        at, body = parts.tunnel_bytes, bytearray(parts.body)
        if parts.protocol == GRE:
            value = int.from_bytes(body[2:4], "big")
            body[2:4] = self.gre_protocol.to_bytes(2, "big")
        else:
            value = 0x8003 if body[2:4] == VXLAN_PORT.to_bytes(2, "big") else body[11]
            body[2:4] = VXLAN_GPE_PORT.to_bytes(2, "big")
            body[8] |= 4
            body[11] = VXLAN_INT
        shim = replace(headers, value=value, npt=0).encode()
        return Parts(parts.link, parts.ip, bytes(body[:at]) + shim + bytes(body[at:]))

    def place(self, parts: Parts) -> int:
        return parts.tunnel_bytes
