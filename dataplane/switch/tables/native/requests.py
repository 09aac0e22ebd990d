"""Words for the writing kernels: matches and actions in request layout (see `records`)."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import ActionCall, ActionSpec, KeyField, MatchKind
from dataplane.switch.tables.arrays import WORD_BITS, WORD_MASK, word_count
from dataplane.switch.tables.match import FieldMatch, Match, all_ones, prefix_mask


class Request:
    """A reusable piece of memory that words are written to; `where` names the written object in errors."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._structs: dict[int, struct.Struct] = {}
        self._allocate(256)

    def _allocate(self, words: int) -> None:
        self._buffer = bytearray(8 * words)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))

    def write(self, *words: int) -> int:
        """Write words; return their address, valid until the next call. Raises EntryError if a number is no word."""
        count = len(words)
        layout = self._structs.get(count)
        if layout is None:
            layout = self._structs[count] = struct.Struct(f"={count}Q")
            if layout.size > len(self._buffer):
                self._allocate(2 * count)
        try:
            layout.pack_into(self._buffer, 0, *words)
        except struct.error as error:
            wrong = next((word for word in words if not 0 <= word <= WORD_MASK), None)
            raise EntryError(EntryFault.INVALID, f"{wrong} does not fit {WORD_BITS} bits", where=self._where) from error
        return self.address


def split_words(value: int, words: int) -> tuple[int, ...]:
    """Return a value as that many words, the low one first."""
    return tuple(value >> (WORD_BITS * word) & WORD_MASK for word in range(words))


def words_of(values: Sequence[int], widths: Iterable[int]) -> tuple[int, ...]:
    """Return values of these widths as words, each starting a new word."""
    return tuple(
        word for value, width in zip(values, widths, strict=True) for word in split_words(value, word_count(width))
    )


@dataclass(frozen=True, slots=True)
class ActionWords:
    """An action's number in the program, and its arguments' conversion to words; `widths` is None if each is one."""

    number: int
    words: int
    widths: tuple[int, ...] | None

    def of(self, arguments: tuple[int, ...]) -> tuple[int, ...]:
        """Return the arguments as words."""
        return arguments if self.widths is None else words_of(arguments, self.widths)


NO_ACTION = (1 << 32) - 1
"""Action number of the default entry of a table without default action."""


class ActionTable(dict[str, ActionWords]):
    """Every action of a program by name."""

    def __init__(self, actions: Mapping[str, ActionSpec]) -> None:
        super().__init__()
        for number, (name, spec) in enumerate(actions.items()):
            widths = tuple(width for _, width in spec.parameters)
            wide = any(width > WORD_BITS for width in widths)
            self[name] = ActionWords(number, sum(map(word_count, widths)), widths if wide else None)

    def words(self, call: ActionCall) -> tuple[int, tuple[int, ...]]:
        """Return the number of a call's action and its arguments as words."""
        action = self[call.action]
        return action.number, action.of(call.arguments)


def exact_words(keys: tuple[KeyField, ...]) -> Callable[[Match], tuple[int, ...]]:
    """Return a converter from a match of exact fields to key words."""
    widths = tuple(key.width for key in keys)
    if all(width <= WORD_BITS for width in widths):
        return lambda match: match  # type: ignore[return-value]  # exact fields have a value each: checked by Table
    return lambda match: words_of(match, widths)  # type: ignore[arg-type]  # likewise


@dataclass(slots=True)
class SplitMatch:
    """A match as a space and a record have it, in words: non-zero masks, and the key words under them."""

    masks: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    ranges: list[int] = field(default_factory=list)
    range_count: int = 0

    def add(self, position: int, masks: tuple[int, ...], values: tuple[int, ...]) -> None:
        """Add the masked part of a field whose first word is at `position`."""
        for number, (mask, value) in enumerate(zip(masks, values, strict=True)):
            if mask:
                self.masks.append(mask)
                self.places.append(position + number)
                self.values.append(value)


class MatchSplitter:
    """Splits matches over a key into masks, masked values and ranges."""

    def __init__(self, keys: tuple[KeyField, ...]) -> None:
        self._fields: list[tuple[KeyField, int, int, int]] = []  # field, all ones, first word, words
        position = 0
        for key in keys:
            words = word_count(key.width)
            self._fields.append((key, all_ones(key.width), position, words))
            position += words

    def split(self, match: Match) -> SplitMatch:
        """Return the parts of a match."""
        parts = SplitMatch()
        for (key, ones, position, words), item in zip(self._fields, match, strict=True):
            if key.kind is MatchKind.RANGE:
                assert isinstance(item, tuple)
                mask, value = _common_prefix(item, ones)
                if item != (value, value | ones ^ mask):
                    parts.range_count += 1
                    parts.ranges.append(position | words << 32)
                    parts.ranges += (*split_words(item[0], words), *split_words(item[1], words))
            else:
                mask, value = _mask(key, item, ones)
            if words > 1:
                parts.add(position, split_words(mask, words), split_words(value, words))
            elif mask:
                parts.masks.append(mask)
                parts.places.append(position)
                parts.values.append(value)
        return parts


def _common_prefix(bounds: tuple[int, int], ones: int) -> tuple[int, int]:
    """Return mask and value of the leading bits in which two bounds agree."""
    free = (bounds[0] ^ bounds[1]).bit_length()
    mask = ones >> free << free
    return mask, bounds[0] & mask


def _mask(key: KeyField, item: FieldMatch, ones: int) -> tuple[int, int]:
    if item is None:
        return 0, 0
    if isinstance(item, int):
        return ones, item
    value, second = item
    return (prefix_mask(key.width, second) if key.kind is MatchKind.LPM else second), value
