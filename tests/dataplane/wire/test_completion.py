"""Reports of complete items."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    (individual,) = packet.reports
    assert individual.main is not None
    assert completion.in_report(individual.main) == SAID
    assert packet.encode() == golden()


def test_words_are_what_was_said() -> None:
    assert completion.decode(SAID.encode()) == SAID
    for size in range(completion.SIZE):
        with pytest.raises(WireError):
            completion.decode(SAID.encode()[:size])
    with pytest.raises(WireError, match="reserved"):
        completion.decode(b"\0\0\0\1" + bytes(12))


def test_a_report_about_something_else_says_nothing_of_items() -> None:
    (individual,) = report.decode(golden().replace(bytes.fromhex("4d52"), bytes.fromhex("4d53"))).reports
    assert individual.main is not None
    assert completion.in_report(individual.main) is None


WORDS = {name: st.integers(0, 2**16 - 1) for name in ("job", "repeated", "ahead")}
COMPLETIONS = st.builds(
    Completion,
    **WORDS,
    item=st.integers(0, 2**32 - 1),
    last_child=st.integers(0, 255),
    wait_us=st.integers(0, 2**32 - 1),
    leaf=st.booleans(),
)


def test_they_are_these_bytes() -> None:
    assert SAID.encode().hex() == "001e058000000804000003e800010002"


@given(COMPLETIONS)
def test_all_come_back(record: Completion) -> None:
    assert completion.decode(b"??" + record.encode() + b"more", 2) == record


def test_a_flipped_bit_is_refused_or_says_something_else() -> None:
    encoded = int.from_bytes(SAID.encode(), "big")
    refused = 0
    for bit in range(8 * completion.SIZE):
        with contextlib.suppress(WireError):
            assert completion.decode((encoded ^ 1 << bit).to_bytes(completion.SIZE, "big")) != SAID
            continue
        refused += 1
    assert refused == 7, "the bits that are to be zero"


@given(st.binary(max_size=40), st.integers(0, 30))
def test_no_bytes_do_more_than_be_refused(data: bytes, offset: int) -> None:
    with contextlib.suppress(WireError):
        assert completion.decode(data, offset).encode() == data[offset : offset + completion.SIZE]


@pytest.mark.parametrize(
    "wrong", [{"job": 1 << 16}, {"item": -1}, {"last_child": 256}, {"wait_us": 1 << 32}, {"ahead": 1 << 16}], ids=str
)
def test_what_does_not_fit_is_not_encoded(wrong: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        replace(SAID, **wrong).encode()
