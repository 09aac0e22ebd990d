"""One packet for each way of being dropped before it is routed."""

from __future__ import annotations

from typing import NamedTuple

from scapy.compat import raw
from scapy.layers.inet import IP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

from tests.p4.entries import HOST_PORT, UP_PORT
from tests.p4.frames import HOST_MAC, Shape, build
from tests.p4.telemetry import IntHeaders, with_int


class DropCase(NamedTuple):
    """The counter expected to count a frame received on a port."""

    counter: str
    port: int
    frame: bytes


MARKED = with_int(build(), IntHeaders(0x8000, 4, bytes(8)))


def edit(frame: bytes, offset: int, value: bytes) -> bytes:
    return frame[:offset] + value + frame[offset + len(value) :]


def with_ip(frame: bytes, **fields: int) -> bytes:
    """Return the frame with other IPv4 fields and a valid checksum."""
    packet = Ether(frame)
    for name, value in fields.items():
        setattr(packet[IP], name, value)
    del packet[IP].chksum
    return raw(packet)


IPV6 = build(Shape(version=6))
TCP_FRAME = build(Shape(l4="tcp", l4_options=True))
CASES: dict[str, DropCase] = {
    "arp": DropCase("drop_unknown_ethertype", HOST_PORT, raw(Ether(src=HOST_MAC, type=0x806) / ARP() / Raw(bytes(20)))),
    "second-vlan-tag": DropCase(
        "drop_unknown_ethertype",
        UP_PORT,
        bytes(12) + bytes.fromhex("8100002a8100002b0800") + bytes(40),
    ),
    "ipv4-checksum": DropCase("drop_bad_ipv4_checksum", HOST_PORT, edit(build(), 24, b"\xab\xcd")),
    "ipv4-options-checksum": DropCase(
        "drop_bad_ipv4_checksum",
        HOST_PORT,
        edit(build(Shape(ip_options=True)), 36, b"\xab\xcd"),
    ),
    "ttl-1": DropCase("drop_ttl_expired", UP_PORT, build(ttl=1)),
    "ttl-0": DropCase("drop_ttl_expired", UP_PORT, build(ttl=0)),
    "hop-limit-1": DropCase("drop_ttl_expired", HOST_PORT, build(Shape(version=6), ttl=1)),
    "no-route": DropCase("drop_no_route", UP_PORT, with_ip(build(), dst=0xC0000201)),
    "no-route-ipv6": DropCase("drop_no_route", UP_PORT, edit(IPV6, 38, b"\x20\x01")),
    "int-at-edge": DropCase("drop_int_at_edge", HOST_PORT, MARKED),
    "mark-at-edge-without-int": DropCase("drop_int_at_edge", HOST_PORT, build(Shape(dscp=0x17, payload=b""))),
    "mark-at-edge-ipv6": DropCase("drop_int_at_edge", HOST_PORT, build(Shape(version=6, l4="tcp", dscp=0x17))),
    "ipv4-version": DropCase("drop_parser_error", UP_PORT, edit(build(), 14, b"\x55")),
    "ipv4-ihl": DropCase("drop_parser_error", UP_PORT, edit(build(), 14, b"\x44")),
    "ipv4-total-length": DropCase("drop_parser_error", UP_PORT, with_ip(build(), len=19)),
    "ipv6-version": DropCase("drop_parser_error", UP_PORT, edit(IPV6, 14, b"\x45")),
    "tcp-offset": DropCase("drop_parser_error", UP_PORT, edit(TCP_FRAME, 46, b"\x40")),
    "tcp-options-cut": DropCase("drop_parser_error", UP_PORT, TCP_FRAME[:60]),
    "ethernet-cut": DropCase("drop_parser_error", UP_PORT, build()[:13]),
    "ipv4-cut": DropCase("drop_parser_error", UP_PORT, build()[:33]),
    "ipv6-cut": DropCase("drop_parser_error", UP_PORT, IPV6[:53]),
    "udp-cut": DropCase("drop_parser_error", UP_PORT, build()[:41]),
    "shim-cut": DropCase("drop_parser_error", UP_PORT, MARKED[:45]),
    "md-cut": DropCase("drop_parser_error", UP_PORT, MARKED[:57]),
    "stack-cut": DropCase("drop_parser_error", UP_PORT, MARKED[:65]),
    "int-beyond-udp": DropCase("drop_int_malformed", UP_PORT, edit(MARKED, 38, (8 + 4 + 20 - 1).to_bytes(2, "big"))),
    "int-beyond-ip": DropCase("drop_int_malformed", UP_PORT, with_ip(MARKED, len=20 + 8 + 4 + 20 - 1)),
    "int-beyond-tcp": DropCase(
        "drop_int_malformed",
        UP_PORT,
        with_ip(with_int(build(Shape(l4="tcp")), IntHeaders(0x8000, 4, bytes(8))), len=20 + 20 + 4 + 20 - 1),
    ),
    "int-beyond-ipv6": DropCase(
        "drop_int_malformed",
        UP_PORT,
        edit(with_int(IPV6, IntHeaders(0x8000, 4, bytes(8))), 18, (8 + 24 - 1).to_bytes(2, "big")),
    ),
}
