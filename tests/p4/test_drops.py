"""Every drop has a name, and nothing else is counted under it."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from scapy.compat import raw
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

from tests.p4.entries import HOST_PORT, UP_PORT, CloneTo, Watch, sink, source, transit
from tests.p4.frames import DST4, HOST_MAC, ROUTER_MAC, SRC4, Shape, build
from tests.p4.targets import Target, pass_through
from tests.p4.telemetry import IntHeaders, with_int

DROPS = (
    "drop_parser_error",
    "drop_unknown_ethertype",
    "drop_bad_ipv4_checksum",
    "drop_int_at_edge",
    "drop_int_malformed",
    "drop_ttl_expired",
    "drop_no_route",
    "drop_int_discard",
    "drop_report_without_target",
)
_COUNTED_WITHIN_S = 2.0
MARKED = with_int(build(), IntHeaders(0x8000, 4, bytes(8)))


def edit(frame: bytes, offset: int, value: bytes) -> bytes:
    return frame[:offset] + value + frame[offset + len(value) :]


def with_ip(frame: bytes, **fields: int) -> bytes:
    """Return the frame with other IPv4 fields and their right checksum."""
    packet = Ether(frame)
    for name, value in fields.items():
        setattr(packet[IP], name, value)
    del packet[IP].chksum
    return raw(packet)


IPV6 = build(Shape(version=6))
TCP_FRAME = build(Shape(l4="tcp", l4_options=True))
CASES: dict[str, tuple[str, int, bytes]] = {
    "arp": ("drop_unknown_ethertype", HOST_PORT, raw(Ether(src=HOST_MAC, type=0x806) / ARP() / Raw(bytes(20)))),
    "second-vlan-tag": (
        "drop_unknown_ethertype",
        UP_PORT,
        bytes(12) + bytes.fromhex("8100002a8100002b0800") + bytes(40),
    ),
    "ipv4-checksum": ("drop_bad_ipv4_checksum", HOST_PORT, edit(build(), 24, b"\xab\xcd")),
    "ipv4-options-checksum": (
        "drop_bad_ipv4_checksum",
        HOST_PORT,
        edit(build(Shape(ip_options=True)), 36, b"\xab\xcd"),
    ),
    "ttl-1": ("drop_ttl_expired", UP_PORT, build(ttl=1)),
    "ttl-0": ("drop_ttl_expired", UP_PORT, build(ttl=0)),
    "hop-limit-1": ("drop_ttl_expired", HOST_PORT, build(Shape(version=6), ttl=1)),
    "no-route": ("drop_no_route", UP_PORT, with_ip(build(), dst=0xC0000201)),
    "no-route-ipv6": ("drop_no_route", UP_PORT, edit(IPV6, 38, b"\x20\x01")),
    "int-at-edge": ("drop_int_at_edge", HOST_PORT, MARKED),
    "mark-at-edge-without-int": ("drop_int_at_edge", HOST_PORT, build(Shape(dscp=0x17, payload=b""))),
    "mark-at-edge-ipv6": ("drop_int_at_edge", HOST_PORT, build(Shape(version=6, l4="tcp", dscp=0x17))),
    "ipv4-version": ("drop_parser_error", UP_PORT, edit(build(), 14, b"\x55")),
    "ipv4-ihl": ("drop_parser_error", UP_PORT, edit(build(), 14, b"\x44")),
    "ipv4-total-length": ("drop_parser_error", UP_PORT, with_ip(build(), len=19)),
    "ipv6-version": ("drop_parser_error", UP_PORT, edit(IPV6, 14, b"\x45")),
    "tcp-offset": ("drop_parser_error", UP_PORT, edit(TCP_FRAME, 46, b"\x40")),
    "tcp-options-cut": ("drop_parser_error", UP_PORT, TCP_FRAME[:60]),
    "ethernet-cut": ("drop_parser_error", UP_PORT, build()[:13]),
    "ipv4-cut": ("drop_parser_error", UP_PORT, build()[:33]),
    "ipv6-cut": ("drop_parser_error", UP_PORT, IPV6[:53]),
    "udp-cut": ("drop_parser_error", UP_PORT, build()[:41]),
    "shim-cut": ("drop_parser_error", UP_PORT, MARKED[:45]),
    "md-cut": ("drop_parser_error", UP_PORT, MARKED[:57]),
    "stack-cut": ("drop_parser_error", UP_PORT, MARKED[:65]),
    "int-beyond-udp": ("drop_int_malformed", UP_PORT, edit(MARKED, 38, (8 + 4 + 20 - 1).to_bytes(2, "big"))),
    "int-beyond-ip": ("drop_int_malformed", UP_PORT, with_ip(MARKED, len=20 + 8 + 4 + 20 - 1)),
    "int-beyond-tcp": (
        "drop_int_malformed",
        UP_PORT,
        with_ip(with_int(build(Shape(l4="tcp")), IntHeaders(0x8000, 4, bytes(8))), len=20 + 20 + 4 + 20 - 1),
    ),
    "int-beyond-ipv6": (
        "drop_int_malformed",
        UP_PORT,
        edit(with_int(IPV6, IntHeaders(0x8000, 4)), 18, (8 + 16 - 1).to_bytes(2, "big")),
    ),
}


def check_counted(target: Target, expected: dict[str, int]) -> None:
    """Compare the drop counters that are not zero; another process's may come a moment later than its last frame."""
    give_up = time.monotonic() + _COUNTED_WITHIN_S
    while (counts := {name: number for name in DROPS if (number := target.count(name))}) != expected:
        assert time.monotonic() < give_up, counts
        time.sleep(0.001)


@pytest.mark.parametrize(("counter", "port", "frame"), CASES.values(), ids=CASES.keys())
def test_drop(target: Target, counter: str, port: int, frame: bytes) -> None:
    if len(frame) < target.shortest_frame:
        pytest.skip(f"a frame of {len(frame)} bytes cannot reach {target.name}")
    assert pass_through(target, source(Watch(sample_every=1, watch_id=9)), port, frame, expect=0) == []
    check_counted(target, {counter: 1})


def test_every_truncation_of_an_int_packet_is_accounted_for(target: Target) -> None:
    """What ends inside its headers is dropped by name; a payload cut short is the hosts' affair."""
    headers_end = 14 + 20 + 8 + 4 + 12 + 8
    cut = [MARKED[:length] for length in range(target.shortest_frame, headers_end)]
    whole = [MARKED[:length] for length in range(headers_end, len(MARKED))]
    assert pass_through(target, transit(), UP_PORT, *cut, expect=0) == []
    # Ending right behind Ethernet with another type would be an unknown EtherType; this one promises IPv4.
    check_counted(target, {"drop_parser_error": len(cut)})
    sent = pass_through(target, transit(), UP_PORT, *whole, expect=len(whole))
    assert [len(frame) for _, frame in sent] == [len(frame) + 4 for frame in whole]
    check_counted(target, {})


def test_good_packets_are_not_counted(target: Target) -> None:
    for frame in (build(), IPV6, TCP_FRAME, MARKED):
        assert len(pass_through(target, transit(), UP_PORT, frame, expect=1)) == 1
        check_counted(target, {})


def test_a_report_without_target_is_dropped_by_name(target: Target) -> None:
    role = replace(sink(), reports=False, extra=(CloneTo(4),))
    assert [port for port, _ in pass_through(target, role, UP_PORT, MARKED, expect=1)] == [HOST_PORT]
    check_counted(target, {"drop_report_without_target": 1})


def test_without_a_clone_session_the_packet_is_restored_all_the_same(target: Target) -> None:
    sent = pass_through(target, replace(sink(), reports=False), UP_PORT, MARKED, expect=1)
    assert [port for port, _ in sent] == [HOST_PORT]
    check_counted(target, {})


def test_a_fragment_with_the_mark_is_not_taken_apart(target: Target) -> None:
    frame = raw(Ether(src=HOST_MAC, dst=ROUTER_MAC) / IP(src=SRC4, dst=DST4, tos=0x5C, frag=3, proto=17) / UDP())
    assert len(pass_through(target, transit(), UP_PORT, frame, expect=1)) == 1
