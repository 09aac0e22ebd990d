"""Reports of complete items."""

from __future__ import annotations

import pytest

from dataplane.errors import WireError
from dataplane.wire import completion, report
from dataplane.wire.completion import Completion

GROUP = "20 000007 00000065"  # version 2, hardware 0, number 7, node 101
INDIVIDUAL = """
    14 10 07 20               # RepType 1 = INT, InType 4 = IPv4; 16 words: 2 fixed, 7 of metadata, 7 of the packet; F
    4800 4d52 2000 0000       # interfaces and ingress time; our domain, COMPLETION
    0002 ffff                 # in by port 2, out by none: each copy has its own
    0000000000bc614e          # 12345678 ns
    001e 05 80                # job 30, last child 5, at a leaf
    00000804                  # item 2052
    000003e8                  # 1000 us from the first contribution to the last
    0001 0002                 # one repeated; two newer items open
    45000044 00000000 4011 0000 0a000601 0ac80001  4a3d 4d41 0030 0000
"""
SAID = Completion(job=30, item=2052, last_child=5, wait_us=1000, repeated=1, ahead=2, leaf=True)


def golden() -> bytes:
    lines = (GROUP, *INDIVIDUAL.splitlines())
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))


def test_a_golden_report_is_read() -> None:
    packet = report.decode(golden())
    (one,) = packet.reports
    assert one.main is not None
    assert completion.in_report(one.main) == SAID
    assert packet.encode() == golden()


def test_words_are_what_was_said() -> None:
    assert completion.decode(SAID.encode()) == SAID
    for size in range(completion.SIZE):
        with pytest.raises(WireError):
            completion.decode(SAID.encode()[:size])
    with pytest.raises(WireError, match="reserved"):
        completion.decode(b"\0\0\0\1" + bytes(12))


def test_a_report_about_something_else_says_nothing_of_items() -> None:
    (one,) = report.decode(golden().replace(bytes.fromhex("4d52"), bytes.fromhex("4d53"))).reports
    assert one.main is not None
    assert completion.in_report(one.main) is None
