"""The native form of a set of rules: groups by mask, and the table that lists them; immutable once built."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from operator import attrgetter

from dataplane.native import kernel_library, sizeof
from dataplane.nic.flows.calls import FlowCall
from dataplane.nic.flows.kernels.classifying import fill_group
from dataplane.nic.flows.patterns import Bounds, FlowPattern, words_of
from dataplane.nic.flows.rules import MOST_U32, FlowRule
from dataplane.nic.flows.structures import FlowGroup, FlowRecord, FlowRow, FlowTable
from dataplane.nic.structures import ActionKind

_RECORD = struct.Struct("<QQQQIIIIQQ")
_RANGE = struct.Struct("<IIQQQQQII")
"""`FlowRecord` and `FlowRange`, field by field."""
_WORD = (1 << 64) - 1
_LEAST_SLOTS = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """A rule's action with everything resolved."""

    action: ActionKind
    group: int
    mark: int
    counter: int  # address of its hits, 0: not counted
    call: FlowCall | None


@dataclass(frozen=True, slots=True)
class FlowEntry:
    """An accepted rule; a larger `number` is a younger rule."""

    rule: FlowRule
    number: int
    outcome: Outcome
    mask: int
    rank: int
    record: bytes


def make_entry(rule: FlowRule, number: int, outcome: Outcome, pattern: FlowPattern) -> FlowEntry:
    """Return a rule with its native record."""
    masks, values = words_of(pattern.mask), words_of(pattern.value)
    seen = [value for value, mask in zip(values, masks, strict=True) if mask]
    rank = rule.priority << 32 | (MOST_U32 - number)
    head = pack_record(outcome, rank, number, len(pattern.bounds))
    ranges = b"".join(map(_pack_range, pattern.bounds))
    return FlowEntry(rule, number, outcome, pattern.mask, rank, head + struct.pack(f"<{len(seen)}Q", *seen) + ranges)


def pack_record(outcome: Outcome, rank: int, number: int, ranges: int = 0) -> bytes:
    """Return the bytes of a `FlowRecord`."""
    call = outcome.call
    function, context = (call.address, call.context) if call is not None else (0, 0)
    return _RECORD.pack(
        0, rank, ranges, outcome.counter, outcome.action, outcome.group, outcome.mark, number, function, context
    )


def _pack_range(bounds: Bounds) -> bytes:
    field, first, last = bounds.field, bounds.first, bounds.last
    return _RANGE.pack(
        field.word,
        field.shift,
        min(field.most, _WORD),
        first & _WORD,
        last & _WORD,
        first >> 64,
        last >> 64,
        field.width > 64,
        0,
    )


class Group:
    """The rules of one mask in a native hash table; keeps alive what it leads to."""

    def __init__(self, mask: int, entries: Iterable[FlowEntry]) -> None:
        self.entries = sorted(entries, key=attrgetter("rank"), reverse=True)
        self.rank = self.entries[0].rank
        records = [entry.record for entry in self.entries]
        record_bytes = max(map(len, records))
        if record_bytes != min(map(len, records)):
            records = [record.ljust(record_bytes, b"\0") for record in records]
        self._records = ctypes.create_string_buffer(b"".join(records), len(records) * record_bytes)
        slots = max(_LEAST_SLOTS, 1 << (2 * len(self.entries) - 1).bit_length())
        self._slots = (ctypes.c_uint64 * slots)()
        self._native = FlowGroup(slots=ctypes.addressof(self._slots), slot_mask=slots - 1)
        for word, bits in enumerate(words_of(mask)):
            if bits:
                self._native.key_words[self._native.words] = word
                self._native.masks[self._native.words] = bits
                self._native.words += 1
        _fill_group()(self._native, ctypes.addressof(self._records), len(self.entries), record_bytes)

    @property
    def address(self) -> int:
        """Address of the native group."""
        return self._native.address


@functools.cache
def _fill_group() -> Callable[[FlowGroup, int, int, int], None]:
    return kernel_library(fill_group).bind(fill_group)


class Table:
    """All groups, the one with the best rule first, and what happens when nothing matches."""

    def __init__(self, groups: Collection[Group], default: Outcome) -> None:
        self._groups = sorted(groups, key=lambda group: group.rank, reverse=True)
        self._default = default
        self._rows = (FlowRow * len(groups))(*[FlowRow(rank=group.rank, group=group.address) for group in self._groups])
        self._record = ctypes.create_string_buffer(pack_record(default, 0, 0), sizeof(FlowRecord))
        self._native = FlowTable(
            rows=ctypes.addressof(self._rows), count=len(groups), default=ctypes.addressof(self._record)
        )

    @property
    def address(self) -> int:
        """Address of the native table."""
        return self._native.address
