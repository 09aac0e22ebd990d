"""The Internet checksum against RFC 1071's example, a word-by-word reference and whole recomputation."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from hypothesis import given
from hypothesis import strategies as st

from dataplane.wire.checksum import internet_checksum, ones_complement_sum, pseudo_header, transport_checksum, update


def slow_sum(data: bytes) -> int:
    total = 0
    padded = data + b"\0" * (len(data) % 2)
    for at in range(0, len(padded), 2):
        total += padded[at] << 8 | padded[at + 1]
        total = (total & 0xFFFF) + (total >> 16)
    return total


def test_the_example_of_rfc_1071_sums_to_ddf2() -> None:
    assert ones_complement_sum(bytes.fromhex("0001 f203 f4f5 f6f7")) == 0xDDF2


@given(st.binary(max_size=200))
def test_the_sum_equals_the_word_by_word_reference(data: bytes) -> None:
    assert ones_complement_sum(data) == slow_sum(data)


def test_zeros_sum_to_zero_and_a_full_sum_is_all_ones() -> None:
    assert ones_complement_sum(b"") == 0
    assert ones_complement_sum(b"\0\0\0") == 0
    assert ones_complement_sum(b"\xff\xfe\x00\x01") == 0xFFFF


def test_captured_ipv4_header_has_its_checksum() -> None:
    header = bytes.fromhex("4500003c1c4640004006 0000 ac100a63ac100a0c")
    assert internet_checksum(header) == 0xB1E6


@given(st.binary(min_size=8, max_size=64), st.data())
def test_an_update_equals_a_new_computation(data: bytes, draw: st.DataObject) -> None:
    at = 2 * draw.draw(st.integers(0, len(data) // 2 - 1))
    size = draw.draw(st.integers(0, len(data) - at))
    new = draw.draw(st.binary(min_size=size, max_size=size))
    changed = data[:at] + new + data[at + size :]
    # A non-zero word keeps the sum away from one's complement's two zeros (RFC 1624, section 3).
    data, changed = b"\x12\x34" + data, b"\x12\x34" + changed
    assert update(internet_checksum(data), data[2 + at : 2 + at + size], new) == internet_checksum(changed)


def test_rfc_1624s_example_updates_to_zero() -> None:
    assert update(0xDD2F, bytes.fromhex("5555"), bytes.fromhex("3285")) == 0x0000


def test_pseudo_headers_are_those_of_the_rfcs() -> None:
    v4 = pseudo_header(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 17, 13)
    assert v4 == bytes.fromhex("0a000001 0a000002 00 11 000d")
    v6 = pseudo_header(IPv6Address("2001:db8::1"), IPv6Address("2001:db8::2"), 17, 13)
    assert v6 == bytes.fromhex("20010db8000000000000000000000001 20010db8000000000000000000000002 0000000d 000000 11")


@given(st.binary(max_size=40))
def test_a_segment_with_its_checksum_sums_to_all_ones(payload: bytes) -> None:
    src, dst = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
    segment = bytes.fromhex("0005 0006") + (8 + len(payload)).to_bytes(2, "big") + b"\0\0" + payload
    checksum = transport_checksum(src, dst, 17, segment)
    whole = segment[:6] + checksum.to_bytes(2, "big") + segment[8:]
    assert slow_sum(pseudo_header(src, dst, 17, len(whole)) + whole) == 0xFFFF
