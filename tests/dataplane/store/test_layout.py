"""Values as segments and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.store import layout
from dataplane.store.layout import MOST_IN_FIRST, SEGMENT_BYTES, Form

LENGTHS = [0, 1, MOST_IN_FIRST - 1, MOST_IN_FIRST, MOST_IN_FIRST + 1, SEGMENT_BYTES, 5 * SEGMENT_BYTES, 5000]


@pytest.mark.parametrize("length", LENGTHS)
def test_values_come_back_from_their_segments(length: int) -> None:
    value = bytes(index % 251 for index in range(length))
    segments = layout.in_place(value)
    preamble = layout.decode(segments[0])
    assert preamble is not None
    assert preamble.form is Form.IN_PLACE
    assert len(segments) == 1 + preamble.further
    assert preamble.joined(segments) == value

    preamble, blocks = layout.by_hash(value)
    assert layout.decode(layout.padded(preamble.encode())) == preamble
    assert len(blocks) == preamble.further
    assert preamble.joined([layout.padded(preamble.encode()), *blocks]) == value


def test_segments_are_quarters_and_a_thousand_bytes_take_one() -> None:
    assert MOST_IN_FIRST == 1000
    assert [len(segment) for segment in layout.in_place(bytes(1000))] == [1024]
    assert [len(segment) for segment in layout.in_place(bytes(1001))] == [1024, 256]


@given(st.binary(max_size=4000), st.integers(0, 8 * 4000))
def test_a_bit_that_changes_on_the_way_is_found(value: bytes, bit: int) -> None:
    segments = layout.in_place(value)
    stream = bytearray(b"".join(segments))
    used = (layout.PREAMBLE_BYTES + len(value)) * 8
    stream[bit % used // 8] ^= 1 << bit % 8
    preamble = layout.decode(bytes(stream))
    assert preamble is None or preamble.form is Form.BY_HASH or preamble.joined([bytes(stream)]) is None


@pytest.mark.parametrize("first", [b"", bytes(256), b"\3" + bytes(255), b"\1" + b"\xff" * 255])
def test_what_is_no_first_segment_is_told(first: bytes) -> None:
    assert layout.decode(first) is None
