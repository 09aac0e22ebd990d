"""INT transit: words pushed by a hop, and when it must push none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.p4.entries import COLLECTOR_PORT, DOWN_PORT, HOST_PORT, NEXT_HOP_MAC, SWITCH_MAC, UP_PORT, sink, transit
from tests.p4.frames import Shape, assert_good, build, routed
from tests.p4.targets import Target, frame_on, pass_through
from tests.p4.telemetry import (
    OUR_DOMAIN,
    IntHeaders,
    bits_of,
    decode_report,
    hop_words,
    read_int,
    split_words,
    with_int,
)

PLAIN = build()
ROUTED = routed(PLAIN, src_mac=SWITCH_MAC, dst_mac=NEXT_HOP_MAC)


def through_transit(target: Target, headers: IntHeaders, plain: bytes = PLAIN) -> bytes:
    sent = pass_through(target, transit(), UP_PORT, with_int(plain, headers), expect=1)
    return frame_on(sent, DOWN_PORT)


@pytest.mark.parametrize("bit", range(16))
def test_every_instruction_bit_on_its_own(target: Target, bit: int) -> None:
    instructions = 0x8000 >> bit
    sent = through_transit(target, IntHeaders(instructions, 4))
    headers = read_int(sent)
    assert_good(sent)
    assert (headers.remaining_hops, len(headers.stack)) == (3, 8 if bit in (4, 5, 6) else 4)
    value = int.from_bytes(headers.stack, "big")
    known = {0: 102, 1: UP_PORT << 16 | DOWN_PORT, 3: 0, 6: UP_PORT << 32 | DOWN_PORT, 8: 0}
    assert value == known.get(bit, value)
    if 9 <= bit <= 14:
        assert value == 0xFFFFFFFF, "reserved"


def test_all_bits_lie_in_order(target: Target) -> None:
    headers = read_int(through_transit(target, IntHeaders(0xFFFF, 4)))
    values = split_words(0xFFFF, headers.stack)
    assert (values[0], values[1], values[6]) == (102, 0x20003, 0x2_0000_0003)
    assert values[5] - values[4] == values[2]
    assert values[8] == 0, "one buffer, empty"
    assert [values[bit] for bit in range(9, 15)] == [0xFFFFFFFF] * 6
    assert values[15] >> 16 == 0, "the complement of a 16-bit sum"


def test_no_hops_remain(target: Target) -> None:
    headers = IntHeaders(0xF000, 0, b"\1" * 16)
    sent = through_transit(target, headers)
    assert sent.hex() == with_int(ROUTED, replace(headers, hops_exceeded=1)).hex()
    assert target.count("int_hops_exceeded") == 1
    assert target.count("int_transit") == 0


def test_no_hops_remain_and_an_earlier_hop_said_so(target: Target) -> None:
    headers = IntHeaders(0xF000, 0, b"\1" * 16, hops_exceeded=1)
    assert through_transit(target, headers).hex() == with_int(ROUTED, headers).hex()


def test_the_last_hop_that_may_push(target: Target) -> None:
    sent = read_int(through_transit(target, IntHeaders(0x8000, 1, b"\0\0\0\1")))
    assert (sent.remaining_hops, sent.hops_exceeded, sent.stack) == (0, 0, b"\0\0\0\x66\0\0\0\1")


SKIPPED = {
    "hop-ml-too-long": IntHeaders(0x8000, 4, hop_ml=2),
    "hop-ml-too-short": IntHeaders(0xF000, 4, hop_ml=3),
    "hop-ml-zero": IntHeaders(0xF000, 4, hop_ml=0),
    "domain-instructions": IntHeaders(0x8000, 4, domain_id=0x1234, domain_instructions=1, hop_ml=2),
    "domain-instructions-of-the-default": IntHeaders(0x8000, 4, domain_instructions=0x8000, hop_ml=1),
    "stack-full": IntHeaders(0x8000, 4, bytes(4 * 252)),
    "stack-nearly-full": IntHeaders(0x0C00, 4, bytes(4 * 249)),
}


@pytest.mark.parametrize("headers", SKIPPED.values(), ids=SKIPPED.keys())
def test_a_hop_adds_all_or_nothing(target: Target, headers: IntHeaders) -> None:
    assert through_transit(target, headers).hex() == with_int(ROUTED, headers).hex()
    assert (target.count("int_skipped"), target.count("int_transit")) == (1, 0)


def test_the_stack_may_fill_up_to_255_words(target: Target) -> None:
    sent = through_transit(target, IntHeaders(0x0C00, 4, bytes(4 * 248)))
    assert len(read_int(sent).stack) == 4 * 252
    assert_good(sent)


def test_other_domains_without_instructions_are_served(target: Target) -> None:
    headers = IntHeaders(0x8000, 4, domain_id=0x1234, domain_flags=0x8000)
    expected = replace(headers, remaining_hops=3, stack=b"\0\0\0\x66")
    assert through_transit(target, headers).hex() == with_int(ROUTED, expected).hex()


def test_hop_by_hop_domain_without_its_flag_stacks(target: Target) -> None:
    headers = IntHeaders(0x8000, 4, domain_id=OUR_DOMAIN)
    assert read_int(through_transit(target, headers)).stack == b"\0\0\0\x66"


NOT_INT = {
    "type-destination": IntHeaders(0x8000, 4, type=2),
    "type-unknown": IntHeaders(0x8000, 4, type=4),
    "npt-1": IntHeaders(0x8000, 4, npt=1),
    "version-1": IntHeaders(0x8000, 4, version=1),
    "length-2": IntHeaders(0x8000, 4, length=2),
    "length-1": IntHeaders(0x8000, 4, length=1),
    "length-0": IntHeaders(0x8000, 4, length=0),
}


@pytest.mark.parametrize("headers", NOT_INT.values(), ids=NOT_INT.keys())
def test_what_only_looks_like_int_is_passed_on_whole(target: Target, headers: IntHeaders) -> None:
    assert through_transit(target, headers).hex() == with_int(ROUTED, headers).hex()
    sent = pass_through(target, sink(), UP_PORT, with_int(PLAIN, headers), expect=1)
    assert frame_on(sent, HOST_PORT).hex() == with_int(ROUTED, headers).hex()


@pytest.mark.parametrize("payload", [b"", b"\0", bytes(3)])
def test_udp_checksums_that_become_zero_are_written_as_ffff(target: Target, payload: bytes) -> None:
    """RFC 768: 0 would mean no checksum. A source port is searched that yields this sum."""
    headers = IntHeaders(0x8000, 4)
    after = replace(headers, remaining_hops=3, stack=b"\0\0\0\x66")
    for port in range(1, 0x10000):
        plain = build(Shape(payload=payload), src_port=port)
        if port == 1:
            first = with_int(plain, after)
            # The checksum counts down as the port counts up.
            port_of_zero = (int.from_bytes(first[40:42], "big") + 1) % 0xFFFF
            plain = build(Shape(payload=payload), src_port=port_of_zero)
            break
    expected = with_int(routed(plain, src_mac=SWITCH_MAC, dst_mac=NEXT_HOP_MAC), after)
    assert expected[40:42] == b"\xff\xff"
    assert through_transit(target, headers, plain).hex() == expected.hex()


def test_a_wrong_checksum_stays_wrong(target: Target) -> None:
    """The update is incremental: damaged packets must not become valid."""
    marked = bytearray(with_int(PLAIN, IntHeaders(0x8000, 4)))
    marked[-1] ^= 0x40
    sent = frame_on(pass_through(target, transit(), UP_PORT, bytes(marked), expect=1), DOWN_PORT)
    with pytest.raises(AssertionError, match="checksum"):
        assert_good(sent)
    restored = frame_on(pass_through(target, sink(), UP_PORT, sent, expect=2), HOST_PORT)
    damaged = bytearray(PLAIN)
    damaged[-1] ^= 0x40
    assert restored == routed(bytes(damaged), src_mac=SWITCH_MAC, dst_mac=NEXT_HOP_MAC, hops=2)


@pytest.mark.parametrize("words", [1, 100, 252])
def test_the_sink_takes_out_stacks_of_any_length(target: Target, words: int) -> None:
    headers = IntHeaders(0x8000, 4, bytes(range(256)) * 4)
    headers = replace(headers, stack=headers.stack[: 4 * words])
    sent = pass_through(target, sink(), UP_PORT, with_int(PLAIN, headers), expect=2)
    assert frame_on(sent, HOST_PORT) == ROUTED
    report = decode_report(frame_on(sent, COLLECTOR_PORT))
    assert report.inner_int().stack == headers.stack
    assert report.report_words == min(2 + 5 + 2 + 4 + words, 0xFF)


def test_sink_reports_the_requested_bits_whatever_hops_did(target: Target) -> None:
    """No hops remain, HopML disagrees, foreign instructions: none of it concerns the sink's own report."""
    headers = IntHeaders(0x61FF, 0, hop_ml=1, domain_id=0x1234, domain_instructions=3, hops_exceeded=1)
    sent = pass_through(target, sink(), UP_PORT, with_int(PLAIN, headers), expect=2)
    assert frame_on(sent, HOST_PORT) == ROUTED
    report = decode_report(frame_on(sent, COLLECTOR_PORT))
    assert (report.metadata_bits, list(report.metadata)) == (0x6180, bits_of(0x6180))
    assert (report.domain_id, report.domain_metadata_bits) == (0x1234, 0)
    assert report.inner_int() == replace(headers, length=3, value=0x28)
    assert hop_words(0x6180) == 4


def test_sink_discards_marked_packets_after_its_report(target: Target) -> None:
    marked = with_int(PLAIN, IntHeaders(0x8000, 3, b"\0\0\0\x65", discard=1))
    sent = pass_through(target, sink(), UP_PORT, marked, expect=1)
    assert [port for port, _ in sent] == [COLLECTOR_PORT]
    assert target.count("drop_int_discard") == 1
