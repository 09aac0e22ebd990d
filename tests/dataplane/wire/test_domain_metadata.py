"""Domains, drop reasons and the checksum complement."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import WireError
from dataplane.wire import checksum_complement, tcp, udp
from dataplane.wire.checksum_complement import UNUSED
from dataplane.wire.domain_metadata import Domain
from dataplane.wire.drop_reasons import DropReason, reason_name
from dataplane.wire.fields import IpAddress

# INT v2.1, section 6.16: the source inserts a sequence number and a flow id; here every hop adds two words besides.
EXAMPLE = Domain(0xABCD, (1, 1, 2), source_bits=0xC000)

V4 = (IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"))
V6 = (IPv6Address("2001:db8::1"), IPv6Address("2001:db8::2"))


def test_a_domain_tells_what_each_hop_and_what_the_source_writes() -> None:
    assert EXAMPLE.hop_words(0xE000) == 2
    assert EXAMPLE.source_words(0xE000) == 2
    assert EXAMPLE.source_words(0x8000) == 1
    assert EXAMPLE.hop_words(0xC000) == 0
    assert EXAMPLE.hop_words(0x1FFF) == 0  # bits that the domain does not define


def test_metadata_is_split_by_bit_in_order() -> None:
    parts = EXAMPLE.split(0xC000, bytes.fromhex("0000000f12345678"))
    assert parts == {0: bytes.fromhex("0000000f"), 1: bytes.fromhex("12345678")}
    assert list(parts) == [0, 1]
    for size in (0, 4, 12):
        with pytest.raises(WireError, match="domain 0xabcd"):
            EXAMPLE.split(0xC000, bytes(size))


def test_drop_reasons_keep_their_numbers() -> None:
    """A reason that deployed switches report never changes its number; new ones come after these."""
    assert [(reason.value, reason_name(reason)) for reason in DropReason][:13] == list(
        enumerate(
            [
                "unknown",
                "parser_error",
                "unknown_ethertype",
                "bad_ipv4_checksum",
                "int_at_edge",
                "int_malformed",
                "ttl_expired",
                "no_route",
                "int_discard",
                "queue_full",
                "mtu_exceeded",
                "report_at_edge",
                "source_spoofed",
            ]
        )
    )
    assert reason_name(None) == "unknown"
    assert reason_name(200) == "reason 200"


@given(
    payload=st.binary(max_size=41),
    pushed=st.integers(0, 6).flatmap(lambda words: st.binary(min_size=4 * words, max_size=4 * words)),
    addresses=st.sampled_from([V4, V6]),
    over_tcp=st.booleans(),
)
def test_a_complement_keeps_the_old_checksum_right(
    payload: bytes, pushed: bytes, addresses: tuple[IpAddress, IpAddress], over_tcp: bool
) -> None:
    """A hop puts `pushed` and its complement in front of the payload and leaves the checksum as it was."""
    src, dst = addresses
    if over_tcp:
        segment = tcp.segment(src, dst, tcp.Tcp(1, 2), payload)
        header, protocol = 20, 6
    else:
        segment = udp.segment(src, dst, 1, 2, payload)
        header, protocol = 8, 17
    old = len(segment).to_bytes(2, "big")
    new = (len(segment) + len(pushed) + 4).to_bytes(2, "big")
    lengths = 1 if over_tcp else 2  # the pseudo header's, and UDP's own
    word = checksum_complement.complement(old * lengths, pushed + new * lengths)
    grown = segment[:header] + pushed + word.to_bytes(4, "big") + segment[header:]
    if not over_tcp:
        grown = grown[:4] + new + grown[6:]
    assert word != UNUSED
    assert checksum_complement.holds(src, dst, protocol, grown)
    flipped = bytes([grown[0] ^ 1]) + grown[1:]
    assert not checksum_complement.holds(src, dst, protocol, flipped)
