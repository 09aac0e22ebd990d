"""Layouts that kernels compile in, and the struct into which they spread a hop's words."""

from __future__ import annotations

import pytest

from collectors.native.kernels.decode import layouts
from collectors.native.structures import Hop
from dataplane.wire import int_metadata

FIELDS = {
    "node_id": int_metadata.NODE_ID,
    "ports": int_metadata.LEVEL1_INTERFACES,
    "latency_ns": int_metadata.HOP_LATENCY,
    "queue": int_metadata.QUEUE,
    "arrived_ns": int_metadata.INGRESS_TIMESTAMP,
    "left_ns": int_metadata.EGRESS_TIMESTAMP,
    "ingress": int_metadata.LEVEL2_INTERFACES,
    "tx_bytes": int_metadata.TX_UTILISATION,
    "buffer": int_metadata.BUFFER,
}
"""First field of `Hop` for each bit of the bitmap."""


@pytest.mark.parametrize("name", FIELDS)
def test_a_hop_has_its_words_in_the_order_of_the_bitmap(name: str) -> None:
    words = layouts.words_of(FIELDS[name])
    first = (words & -words).bit_length() - 1
    assert getattr(Hop, name).offset == 4 * first


def test_every_bit_that_is_read_has_a_field() -> None:
    assert list(FIELDS.values()) == [bit for bit, _ in int_metadata.LAYOUT]
    assert sum(layouts.words_of(bit) for bit in FIELDS.values()) == (1 << 12) - 1


def test_constants_are_plain_numbers() -> None:
    """The numbers of today's wire; a kernel compiles them in."""
    assert (layouts.REPORT_BYTES, layouts.STACK_AT, layouts.REASON_BEFORE_END) == (12, 16, 3)
    assert (layouts.EXCEEDED, layouts.RESERVED_IN_COMPLETION) == (0x0600_0000, 0x7F)
    assert (layouts.DOUBLE_WORDS, layouts.ARRIVED, layouts.LEFT, layouts.BUFFER) == (0x0E00, 0x30, 0xC0, 0x800)
