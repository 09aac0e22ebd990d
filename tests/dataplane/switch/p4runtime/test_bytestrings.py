"""The specification's own tables of valid and invalid binary strings (section 8.4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.switch.p4runtime import Code, P4RuntimeError, bytestrings


@pytest.mark.parametrize(
    ("width", "value", "data", "canonical"),
    [
        (8, 99, b"\x63", True),
        (16, 99, b"\x00\x63", False),
        (16, 99, b"\x63", True),
        (16, 12388, b"\x30\x64", True),
        (16, 12388, b"\x00\x30\x64", False),
        (12, 99, b"\x00\x63", False),
        (12, 99, b"\x00\x00\x63", False),
        (9, 0, b"\x00", True),
    ],
)
def test_valid_unsigned(width: int, value: int, data: bytes, canonical: bool) -> None:
    assert bytestrings.decode(data, width, "field") == value
    assert (bytestrings.encode(value) == data) is canonical


@pytest.mark.parametrize(
    ("width", "value", "data", "canonical"),
    [
        (8, 99, b"\x63", True),
        (8, -99, b"\x9d", True),
        (8, -99, b"\xff\x9d", False),
        (12, -739, b"\xfd\x1d", True),
        (16, 0, b"\x00\x00", False),
        (16, 0, b"\x00", True),
    ],
)
def test_valid_signed(width: int, value: int, data: bytes, canonical: bool) -> None:
    pattern = value & ((1 << width) - 1)
    assert bytestrings.decode_signed(data, width, "field") == pattern
    assert (bytestrings.encode_signed(pattern, width) == data) is canonical


@pytest.mark.parametrize(
    ("width", "data"),
    [
        (8, b"\x01\x63"),
        (8, b""),
        (16, b"\x01\x00\x63"),
        (12, b"\x10\x63"),
        (12, b"\x01\x00\x63"),
        (12, b"\x00\x40\x63"),
    ],
)
def test_invalid_unsigned(width: int, data: bytes) -> None:
    with pytest.raises(P4RuntimeError, match="field") as caught:
        bytestrings.decode(data, width, "field")
    assert caught.value.code is Code.OUT_OF_RANGE


@pytest.mark.parametrize(("width", "data"), [(8, b"\x00\x9d"), (12, b"\x8d\x1d"), (16, b"")])
def test_invalid_signed(width: int, data: bytes) -> None:
    with pytest.raises(P4RuntimeError) as caught:
        bytestrings.decode_signed(data, width, "field")
    assert caught.value.code is Code.OUT_OF_RANGE


@given(st.integers(0, 1 << 130), st.integers(0, 3))
def test_round_trip(value: int, zeros: int) -> None:
    data = bytestrings.encode(value)
    assert len(data) == 1 or data[0]
    assert bytestrings.decode(bytes(zeros) + data, max(1, value.bit_length()), "field") == value


@given(st.integers(1, 70).flatmap(lambda width: st.tuples(st.just(width), st.integers(0, (1 << width) - 1))))
def test_signed_round_trip(width_and_pattern: tuple[int, int]) -> None:
    width, pattern = width_and_pattern
    assert bytestrings.decode_signed(bytestrings.encode_signed(pattern, width), width, "field") == pattern
