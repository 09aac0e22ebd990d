"""The flow classifier's tables in memory: immutable, built by Python, read by driver threads.

A `Classifier` leads to one `FlowTable`; a change builds a new one and swaps the pointer. Rules with the same masks form
a `FlowGroup`, a hash table of `FlowRecord`s; groups that a change does not touch belong to both tables.
"""

from __future__ import annotations

from typing import Literal

from dataplane.native import Inline, Struct, u32, u64
from dataplane.nic.structures import Verdict

STRIPES = 8
"""Stripes of a rule's hit counters, chosen by the frame's queue: threads that own queues do not contend."""
STRIPE_HITS = 1_024
"""Rules whose hits are adjacent."""
STRIPE_BYTES = STRIPE_HITS * 16 + 64
"""Distance between a rule's hits in adjacent stripes; not a multiple of a page, so that they share no cache set."""

TAG_SHIFT = 48
ADDRESS_MASK = (1 << TAG_SHIFT) - 1
"""A slot holds a record's address in its low bits, and 16 bits of the key's hash above; 0: empty."""


class Hits(Struct):
    """Hits of a rule; added to atomically."""

    packets: u64
    bytes: u64


class FlowRange(Struct):
    """Bounds of a field, inclusive; a wide one has its upper 64 bits in the next word."""

    word: u32
    shift: u32
    mask: u64  # mask of the field, after shifting
    first: u64
    last: u64
    first_high: u64
    last_high: u64
    is_wide: u32
    padding: u32


class FlowRecord(Struct):
    """A rule, followed by the values under the group's masks, then its ranges."""

    next: u64  # address of the next best record with the same values, 0: none
    rank: u64  # larger is better; unique per rule
    ranges: u64
    counter: u64  # address of its Hits in the first stripe, 0: not counted
    action: u32  # these six belong to the verdict
    group: u32
    mark: u32
    rule: u32
    function: u64
    context: u64


class FlowGroup(Struct):
    """The rules that match on the same bits of a key."""

    slots: u64  # address
    slot_mask: u64  # number of slots - 1
    words: u64  # number of key words matched
    key_words: Inline[u64, Literal[8]]  # their indexes; at most KEY_WORDS of dataplane/nic/flows/fields.py
    masks: Inline[u64, Literal[8]]


class FlowRow(Struct):
    """A group in its table."""

    rank: u64  # rank of its best rule
    group: u64  # address


class FlowTable(Struct):
    """Groups, the one with the best rule first."""

    rows: u64  # address
    count: u64
    default: FlowRecord


class Classifier(Struct):
    """Root that driver threads hold on to."""

    table: u64  # address of a FlowTable; swapped as a whole, so it comes first


class FlowLookup(Struct):
    """A frame and its verdict, for lookups from Python."""

    verdict: Inline[Verdict, Literal[1]]
    key: Inline[u64, Literal[8]]
