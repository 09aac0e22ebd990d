"""Aggregation headers on the wire."""

from __future__ import annotations

import contextlib
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import WireError
from dataplane.wire.aggregation import SIZE, Aggregation, Flags, Kind, Operation, Reason, age, decode

RESULT = Aggregation(
    Kind.RESULT,
    job=0x0102,
    item=0xFFFFFFFE,
    epoch=0x0304,
    workers=5,
    operation=Operation.MAX,
    values=b"\xab" * 256,
    flags=Flags.CONGESTED | Flags.FINAL,
    nonce=0x1122334455667788,
    check=0x99AABBCCDDEEFF00,
)
HEX = "22060102 fffffffe 03040005 21000000 1122334455667788 99aabbccddeeff00"
REFUSAL = Aggregation(Kind.REFUSED, job=7, item=1, epoch=2, reason=Reason.EPOCH, nonce=1)
HALF_WORD, WORD, LONG = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
PACKETS = st.builds(
    Aggregation,
    kind=st.sampled_from(Kind),
    job=HALF_WORD,
    item=WORD,
    epoch=HALF_WORD,
    workers=st.integers(1, 2**16 - 1),
    operation=st.sampled_from(Operation),
    values=st.sampled_from([b"", b"\1" * 256, bytes(512), b"\2" * 768, bytes(1024)]),
    flags=st.integers(0, 255).map(Flags),
    reason=st.sampled_from(Reason),
    nonce=LONG,
    check=LONG,
)


def test_a_result_is_these_bytes() -> None:
    assert RESULT.encode() == bytes.fromhex(HEX) + RESULT.values
    assert REFUSAL.encode().hex() == "240000070000000100020001100100000000000000000001" + "00" * 8


@given(PACKETS)
def test_every_packet_comes_back(packet: Aggregation) -> None:
    assert decode(b"??" + packet.encode() + b"padding", 2) == packet


def test_every_truncation_is_refused() -> None:
    encoded = RESULT.encode()
    for length in range(len(encoded)):
        with pytest.raises(WireError, match="aggregation at byte"):
            decode(encoded[:length])


@pytest.mark.parametrize(
    ("at", "byte", "problem"),
    [
        (0, 0x12, "version is 1"),
        (0, 0x20, "0 is not a valid Kind"),
        (0, 0x27, "7 is not a valid Kind"),
        (11, 0, "0 workers"),
        (12, 0x25, "5 quarters"),
        (12, 0x01, "0 is not a valid Operation"),
        (13, 3, "3 is not a valid Reason"),
    ],
)
def test_what_is_unknown_is_refused(at: int, byte: int, problem: str) -> None:
    encoded = bytearray(RESULT.encode())
    encoded[at] = byte
    with pytest.raises(WireError, match=problem):
        decode(bytes(encoded))


@pytest.mark.parametrize("packet", [RESULT, REFUSAL], ids=["result", "refusal"])
def test_a_flipped_bit_is_refused_or_another_packet(packet: Aggregation) -> None:
    """Only the header's reserved bits carry nothing; a result's check does not cover them."""
    encoded = packet.encode()
    reserved = range(14 * 8, 16 * 8)
    for bit in range(8 * len(encoded)):
        changed = (int.from_bytes(encoded, "big") ^ 1 << 8 * len(encoded) - 1 - bit).to_bytes(len(encoded), "big")
        with contextlib.suppress(WireError):
            assert (decode(changed) == packet) == (bit in reserved)


@given(st.binary(max_size=SIZE + 600), st.integers(0, 40))
def test_no_bytes_do_more_than_be_refused(data: bytes, offset: int) -> None:
    try:
        decoded = decode(data, offset)
    except WireError:
        return
    end = offset + SIZE + len(decoded.values)
    assert decoded.encode()[:14] == data[offset : offset + 14]
    assert decoded.encode()[16:] == data[offset + 16 : end]


@pytest.mark.parametrize(
    "wrong",
    [
        {"values": bytes(255)},
        {"values": bytes(1280)},
        {"job": 1 << 16},
        {"item": -1},
        {"epoch": 1 << 16},
        {"workers": 0},
        {"workers": 1 << 16},
        {"nonce": 1 << 64},
        {"check": -1},
    ],
    ids=str,
)
def test_what_does_not_fit_is_not_encoded(wrong: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        replace(RESULT, **wrong).encode()


def test_every_field_is_on_the_wire() -> None:
    for each in fields(Aggregation):
        assert getattr(decode(RESULT.encode()), each.name) == getattr(RESULT, each.name)


@given(WORD, st.integers(-(2**31), 2**31 - 1))
def test_ages_are_signed_in_the_circle_of_numbers(item: int, by: int) -> None:
    assert age((item + by) % 2**32, than=item) == by
