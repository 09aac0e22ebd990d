"""The fields of a frame, and the key built from them, in plain Python."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import TypeAlias

from dataplane.nic.flows.fields import FIELDS, FRAME_WORD, KEY_WORDS, MOST_EXTENSIONS, MOST_TAGS, Layer

FieldValue: TypeAlias = int | IPv4Address | IPv6Address

TAG_TYPES = (0x8100, 0x88A8, 0x9100)
TCP, UDP = 6, 17
HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION_OPTIONS = 0, 43, 44, 51, 60
EXTENSIONS = (HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION_OPTIONS)


def read_fields(frame: bytes, queue: int = 0) -> dict[str, FieldValue]:
    """Return the frame's fields by name; a truncated header yields none."""
    fields: dict[str, FieldValue] = {"frame.length": len(frame), "nic.queue": queue & 0xFFFF}
    if len(frame) < 14:
        return fields
    fields["eth.dst"], fields["eth.src"] = _number(frame, 0, 6), _number(frame, 6, 6)
    offset = 12
    for tag in range(MOST_TAGS):
        if _number(frame, offset, 2) not in TAG_TYPES or len(frame) < offset + 6:
            break
        if tag == 0:
            control = _number(frame, offset + 2, 2)
            fields["vlan.pcp"], fields["vlan.id"] = control >> 13, control & 0xFFF
        offset += 4
    fields["eth.type"] = _number(frame, offset, 2)
    packet = frame[offset + 2 :]
    if fields["eth.type"] == 0x0800:
        fields |= _read_ipv4(packet)
    elif fields["eth.type"] == 0x86DD:
        fields |= _read_ipv6(packet)
    return fields


def _number(data: bytes, offset: int, nbytes: int) -> int:
    return int.from_bytes(data[offset : offset + nbytes], "big")


def _read_ipv4(packet: bytes) -> dict[str, FieldValue]:
    """Return the fields of an IPv4 packet; a header length below 20 bytes yields none."""
    if len(packet) < 20 or packet[0] >> 4 != 4 or packet[0] & 0xF < 5:
        return {}
    fields: dict[str, FieldValue] = {
        "ip.version": 4,
        "ip.dscp": packet[1] >> 2,
        "ip.ecn": packet[1] & 3,
        "ip.fragment": int(_number(packet, 6, 2) & 0x3FFF != 0),
        "ip.ttl": packet[8],
        "ip.protocol": packet[9],
        "ip.src": IPv4Address(packet[12:16]),
        "ip.dst": IPv4Address(packet[16:20]),
    }
    if not fields["ip.fragment"]:
        total = _number(packet, 2, 2) or len(packet)
        fields |= _read_transport(packet[(packet[0] & 0xF) * 4 : total], packet[9])
    return fields


def _read_ipv6(packet: bytes) -> dict[str, FieldValue]:
    """Return the fields of an IPv6 packet."""
    if len(packet) < 40 or packet[0] >> 4 != 6:
        return {}
    service = _number(packet, 0, 4) >> 20 & 0xFF
    total = 40 + _number(packet, 4, 2) if _number(packet, 4, 2) else len(packet)
    protocol, is_fragment, payload = _step_over_extensions(packet[6], packet[40:total])
    fields: dict[str, FieldValue] = {
        "ip.version": 6,
        "ip.dscp": service >> 2,
        "ip.ecn": service & 3,
        "ip.fragment": int(is_fragment),
        "ip.ttl": packet[7],
        "ip.protocol": protocol,
        "ip.src": IPv6Address(packet[8:24]),
        "ip.dst": IPv6Address(packet[24:40]),
    }
    return fields if is_fragment else fields | _read_transport(payload, protocol)


def _step_over_extensions(header: int, payload: bytes) -> tuple[int, bool, bytes]:
    """Return the protocol after the extension headers, whether it is fragmented, and the remaining bytes."""
    for _ in range(MOST_EXTENSIONS):
        if header not in EXTENSIONS or len(payload) < 8:
            break
        following = payload[0]
        if header == FRAGMENT:
            if _number(payload, 2, 2) & 0xFFF9:
                return following, True, payload[8:]
            size = 8
        elif header == AUTHENTICATION:
            size = (payload[1] + 2) * 4
        else:
            size = (payload[1] + 1) * 8
        header, payload = following, payload[size:]
    return header, False, payload


def _read_transport(segment: bytes, protocol: int) -> dict[str, FieldValue]:
    if protocol == UDP and len(segment) >= 8:
        return {"udp.src": _number(segment, 0, 2), "udp.dst": _number(segment, 2, 2)}
    if protocol == TCP and len(segment) >= 20:
        return {"tcp.src": _number(segment, 0, 2), "tcp.dst": _number(segment, 2, 2), "tcp.flags": segment[13]}
    return {}


def key_words(fields: Mapping[str, FieldValue]) -> list[int]:
    """Return the words of the key that has these fields."""
    layers = Layer(0)
    key = 0
    for name, value in fields.items():
        key |= int(value) << FIELDS[name].first_bit
        layers |= FIELDS[name].layers
    key |= layers << FRAME_WORD * 64
    return [key >> 64 * word & (1 << 64) - 1 for word in range(KEY_WORDS)]
