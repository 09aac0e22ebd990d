"""Every drop has a name, and nothing else is counted under it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scapy.compat import raw
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from tests.p4.drop_cases import CASES, IPV6, MARKED, TCP_FRAME, DropCase
from tests.p4.entries import HOST_PORT, UP_PORT, CloneTo, Watch, sink, source, transit
from tests.p4.frames import DST4, HOST_MAC, ROUTER_MAC, SRC4, build
from tests.p4.targets import Target, pass_through
from tests.waiting import wait_until

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
    "drop_report_at_edge",
    "drop_source_spoofed",
)


def check_counted(target: Target, expected: dict[str, int]) -> None:
    """Compare the drop counters that are not zero; another process's may come a moment later than its last frame."""

    def counts() -> dict[str, int]:
        return {name: number for name in DROPS if (number := target.count(name))}

    wait_until(lambda: counts() == expected, counts)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_drop(target: Target, case: DropCase) -> None:
    if len(case.frame) < target.shortest_frame:
        pytest.skip(f"a frame of {len(case.frame)} bytes cannot reach {target.name}")
    assert pass_through(target, source(Watch(sample_every=1, watch_id=9)), case.port, case.frame, expect=0) == []
    check_counted(target, {case.counter: 1})


def test_every_truncation_of_an_int_packet_is_accounted_for(target: Target) -> None:
    """A packet that ends inside its headers is dropped by name; a truncated payload is the hosts' concern."""
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


def test_packet_is_restored_without_a_clone_session(target: Target) -> None:
    sent = pass_through(target, replace(sink(), reports=False), UP_PORT, MARKED, expect=1)
    assert [port for port, _ in sent] == [HOST_PORT]
    check_counted(target, {})


def test_a_fragment_with_the_mark_is_not_taken_apart(target: Target) -> None:
    frame = raw(Ether(src=HOST_MAC, dst=ROUTER_MAC) / IP(src=SRC4, dst=DST4, tos=0x5C, frag=3, proto=17) / UDP())
    assert len(pass_through(target, transit(), UP_PORT, frame, expect=1)) == 1
