"""INT source: selection and sampling of packets, and their instructions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from scapy.compat import raw
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from tests.p4.entries import (
    DOWN_PORT,
    HOP_BY_HOP,
    HOST_PORT,
    NEXT_HOP_MAC,
    SWITCH_MAC,
    UP_PORT,
    Entry,
    Role,
    Watch,
    source,
)
from tests.p4.frames import DST4, HOST_MAC, PAYLOAD, ROUTER_MAC, SRC4, Shape, build, routed
from tests.p4.targets import Target, frame_on, pass_through
from tests.p4.telemetry import HOP_BY_HOP_FLAG, INT_DSCP, OUR_DOMAIN, IntHeaders, hop_words, read_int, with_int


def is_marked(frame: bytes) -> bool:
    return bool(Ether(frame)[IP].tos >> 2 == INT_DSCP)


@pytest.mark.parametrize(
    ("sample_every", "pattern"),
    [(1, "1111111"), (0, "1111111"), (2, "1010101"), (3, "1001001"), (7, "10000001000000100")],
)
def test_samples_exactly_one_in_n(target: Target, sample_every: int, pattern: str) -> None:
    # Registers outlive the reset, so each case has its own watch and cell.
    watch = Watch(0x8000, sample_every=sample_every, watch_id=1000 + sample_every)
    frames = [build(Shape(payload=bytes([number]))) for number in range(len(pattern))]
    sent = pass_through(target, source(watch), HOST_PORT, *frames, expect=len(pattern))
    assert "".join("01"[is_marked(frame)] for _, frame in sent) == pattern
    assert target.count("int_sourced") == pattern.count("1")


def test_watches_are_sampled_apart(target: Target) -> None:
    entries = [
        Entry("ipv4_watchlist", {"dst_port": (port, 0xFFFF)}, "watch", (2000 + port, 2, 0x8000, 8, 0, 0, 0), priority=1)
        for port in (1, 2)
    ]
    frames = [build(dst_port=port) for port in (1, 2, 2, 1, 3)]
    sent = pass_through(target, Role(101, DOWN_PORT, extra=tuple(entries)), HOST_PORT, *frames, expect=5)
    assert [is_marked(frame) for _, frame in sent] == [True, True, False, False, False]


MATCHES = [
    ({"src_addr": (0x0A000001, 0xFFFFFFFF)}, True),
    ({"src_addr": (0x0A000002, 0xFFFFFFFF)}, False),
    ({"dst_addr": (0x0A000900, 0xFFFFFF00)}, True),
    ({"protocol": (6, 0xFF)}, False),
    ({"protocol": (17, 0xFF), "src_port": (4000, 0xFFFF), "dst_port": (5000, 0xFFFF)}, True),
    ({"dst_port": (0x1380, 0xFFF0)}, True),
    ({"dst_port": (0x1370, 0xFFF0)}, False),
]


@pytest.mark.parametrize(("match", "hit"), MATCHES)
def test_watchlist_matches_with_masks(target: Target, match: dict[str, tuple[int, int]], hit: bool) -> None:
    entry = Entry("ipv4_watchlist", match, "watch", (1, 1, 0x8000, 8, 0, 0, 0), priority=1)
    sent = pass_through(target, Role(101, DOWN_PORT, extra=(entry,)), HOST_PORT, build(), expect=1)
    assert is_marked(frame_on(sent, DOWN_PORT)) is hit


def test_the_watch_with_the_highest_priority_decides(target: Target) -> None:
    entries = tuple(
        Entry("ipv4_watchlist", {"protocol": (17, mask)}, "watch", (1, 1, instructions, 8, 0, 0, 0), priority=priority)
        for mask, instructions, priority in ((0xFF, 0x8000, 5), (0x11, 0x4000, 9))
    )
    sent = pass_through(target, Role(101, DOWN_PORT, extra=entries), HOST_PORT, build(), expect=1)
    assert read_int(frame_on(sent, DOWN_PORT)).instructions == 0x4000


@pytest.mark.parametrize("instructions", [0x8000, 0xC000, 0x0C00, 0x7F00, 0x80FF, 0x0001, 0xFFFF, 0x0000])
def test_header_of_the_source(target: Target, instructions: int) -> None:
    watch = Watch(instructions, max_hops=3, watch_id=3)
    sent = frame_on(pass_through(target, source(watch), HOST_PORT, build(), expect=1), DOWN_PORT)
    headers = read_int(sent)
    expected = IntHeaders(instructions, remaining_hops=2, stack=headers.stack)
    plain = routed(build(), src_mac=SWITCH_MAC, dst_mac=NEXT_HOP_MAC)
    assert sent.hex() == with_int(plain, expected).hex()
    assert headers.hop_ml == hop_words(instructions) == len(headers.stack) // 4


def test_hop_by_hop_header_has_the_domain_and_no_stack(target: Target) -> None:
    watch = Watch(0xF000, max_hops=3, mode=HOP_BY_HOP)
    sent = pass_through(target, source(watch), HOST_PORT, build(), expect=2)
    expected = IntHeaders(0xF000, 2, domain_id=OUR_DOMAIN, domain_flags=HOP_BY_HOP_FLAG)
    plain = routed(build(), src_mac=SWITCH_MAC, dst_mac=NEXT_HOP_MAC)
    assert frame_on(sent, DOWN_PORT).hex() == with_int(plain, expected).hex()


def test_zero_hops_start_nothing(target: Target) -> None:
    sent = pass_through(target, source(Watch(max_hops=0)), HOST_PORT, build(), expect=1)
    assert frame_on(sent, DOWN_PORT) == routed(build(), src_mac=SWITCH_MAC, dst_mac=NEXT_HOP_MAC)


def test_only_edge_ports_are_watched(target: Target) -> None:
    sent = pass_through(target, source(Watch()), UP_PORT, build(), expect=1)
    assert frame_on(sent, DOWN_PORT) == routed(build(), src_mac=SWITCH_MAC, dst_mac=NEXT_HOP_MAC)
    assert target.count("int_sourced") == 0


def without_int() -> Sequence[bytes]:
    ethernet = Ether(src=HOST_MAC, dst=ROUTER_MAC)
    fragment = Raw(PAYLOAD[:56])
    return [
        raw(ethernet / IP(src=SRC4, dst=DST4) / ICMP(id=1, seq=2) / fragment),
        raw(
            ethernet
            / IP(src=SRC4, dst=DST4, flags="MF")
            / UDP(sport=4000, dport=5000, len=500, chksum=0x1234)
            / fragment
        ),
        raw(ethernet / IP(src=SRC4, dst=DST4, flags="MF") / TCP(sport=4000, chksum=0x1234) / fragment),
        raw(ethernet / IP(src=SRC4, dst=DST4, frag=5, proto=17) / fragment),
        raw(ethernet / IP(src=SRC4, dst=DST4, proto=132) / fragment),
        # 0xffff is 0 in one's complement: the sink would restore the wrong spelling.
        raw(ethernet / IP(src=SRC4, dst=DST4) / TCP(sport=4000, dport=5000, chksum=0xFFFF) / fragment),
    ]


WITHOUT_INT = ["icmp", "first-udp-fragment", "first-tcp-fragment", "last-fragment", "sctp", "tcp-ffff"]


@pytest.mark.parametrize("frame", without_int(), ids=WITHOUT_INT)
def test_what_cannot_carry_int_passes_untouched(target: Target, frame: bytes) -> None:
    sent = pass_through(target, source(Watch()), HOST_PORT, frame, expect=1)
    assert frame_on(sent, DOWN_PORT).hex() == routed(frame, src_mac=SWITCH_MAC, dst_mac=NEXT_HOP_MAC).hex()
