"""Entries as rows of words: the form in which many are inserted at once.

A row has the table's number, the priority, then a request to a native table (`native.records`): action, choice, tally,
meter, number of arguments, the key, the arguments. A key whose fields are all exact has a word for each. Any other key
has two: value and prefix length (lpm), value and mask (ternary, optional), value and all ones (exact).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

from dataplane.program.objects import KeyField, MatchKind, TableSpec
from dataplane.switch.tables.entry import Compact, Tally
from dataplane.switch.tables.match import FieldMatch, Match

WORD_BYTES = 8
TABLE = 0
PRIORITY = 1
REQUEST = 2
TALLY = 4
KEY = 7
"""Words of a row; the number of a table counts from 1, and 0 is a row that holds no entry."""

MAX_WIDTH = 64
"""Bits of the widest field or parameter that rows hold."""


def words_a_field(keys: Sequence[KeyField]) -> int:
    """Return the number of words that each field of a key takes in a row."""
    return 1 if all(key.kind is MatchKind.EXACT for key in keys) else 2


def row_words(keys: Sequence[KeyField], arguments: int) -> int:
    """Return the number of words of a row of a table whose actions have at most that many arguments."""
    return KEY + len(keys) * words_a_field(keys) + arguments


class RowLayout:
    """The places of one table's values in rows of `words` words; `actions` are the program's names, in its order."""

    def __init__(self, spec: TableSpec, actions: Sequence[str], words: int) -> None:
        self.words, self._actions = words, actions
        width = words_a_field(spec.keys)
        self._fields = tuple(_field(key, KEY + width * place, width, words) for place, key in enumerate(spec.keys))
        self._all_exact = _words(KEY, len(spec.keys), words) if width == 1 else None
        self._seconds = tuple(_words(KEY + width * place + 1, 1, words) for place in range(len(spec.keys)))
        self._arguments_at = KEY + width * len(spec.keys)
        self._priority, self._action = _words(PRIORITY, 1, words), _words(REQUEST, 1, words)
        self._counts = _words(KEY - 1, 1, words)

    def matches(self, data: memoryview) -> Iterator[Match]:
        """Yield each row's match."""
        if self._all_exact is not None:
            return self._all_exact.iter_unpack(data)
        return zip(*(field(data) for field in self._fields), strict=True)

    def priorities(self, data: memoryview) -> Iterator[int]:
        """Yield each row's priority."""
        return chain.from_iterable(self._priority.iter_unpack(data))

    def seconds(self, data: memoryview) -> Iterator[tuple[int, ...]]:
        """Yield the second words of each row's fields, for a key that has any but exact fields."""
        return zip(*(chain.from_iterable(second.iter_unpack(data)) for second in self._seconds), strict=True)

    def values(self, data: memoryview, tallies: Iterable[Tally | None]) -> Iterator[Compact]:
        """Yield each row's action and tally."""
        numbers = [*chain.from_iterable(self._action.iter_unpack(data))]
        counts = {*chain.from_iterable(self._counts.iter_unpack(data))}
        if len(counts) == 1:
            arguments: Iterator[tuple[int, ...]] = _words(self._arguments_at, counts.pop(), self.words).iter_unpack(
                data
            )
            if not numbers or numbers.count(numbers[0]) == len(numbers):
                return zip(repeat(self._actions[numbers[0]], len(numbers)), arguments, tallies, strict=False)
        else:
            arguments = self._mixed_arguments(data)
        return zip(map(self._actions.__getitem__, numbers), arguments, tallies, strict=False)

    def _mixed_arguments(self, data: memoryview) -> Iterator[tuple[int, ...]]:
        """Yield the arguments of rows whose actions have different numbers of them."""
        every = _words(self._arguments_at, self.words - self._arguments_at, self.words).iter_unpack(data)
        for arguments, (count,) in zip(every, self._counts.iter_unpack(data), strict=True):
            yield arguments[:count]


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of one table; `data` is their memory."""

    layout: RowLayout
    data: memoryview

    def __len__(self) -> int:
        return len(self.data) // (WORD_BYTES * self.layout.words)

    def first(self, count: int) -> Rows:
        """Return the first rows, at most that many."""
        return Rows(self.layout, self.data[: count * WORD_BYTES * self.layout.words])

    def after(self, count: int) -> Rows:
        """Return the rows after the first ones."""
        return Rows(self.layout, self.data[count * WORD_BYTES * self.layout.words :])

    def column(self, word: int) -> list[int]:
        """Return one word of each row."""
        return list(self.data.cast("Q")[word :: self.layout.words])

    def set_tallies(self, tallies: Sequence[Tally]) -> None:
        """Note where the rows' entries count."""
        addresses = array("Q", [tally.address for tally in tallies])
        self.data.cast("Q")[TALLY :: self.layout.words] = memoryview(addresses)


def _words(at: int, count: int, words: int) -> struct.Struct:
    """Return the structure of a row of which only `count` words from `at` on are read."""
    return struct.Struct(f"={at * WORD_BYTES}x{count}Q{(words - at - count) * WORD_BYTES}x")


def _field(key: KeyField, at: int, width: int, words: int) -> Callable[[memoryview], Iterator[FieldMatch]]:
    """Return a function that yields a field's values in rows."""
    value, both = _words(at, 1, words), _words(at, width, words)
    match key.kind:
        case MatchKind.EXACT:
            return lambda data: chain.from_iterable(value.iter_unpack(data))
        case MatchKind.OPTIONAL:
            return lambda data: (bits if mask else None for bits, mask in both.iter_unpack(data))
        case _:
            return both.iter_unpack
