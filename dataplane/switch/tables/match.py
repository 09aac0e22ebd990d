"""Match values: an entry's value for each key field, and the comparison with a packet's key.

exact: value; lpm: (value, prefix length); ternary: (value, mask); range: (low, high); optional: value or None. One form
for "any value": lpm (0, 0), ternary (0, 0), range (0, all ones), optional None. Values never have bits outside the
prefix or mask.
"""

from __future__ import annotations

from typing import TypeAlias

from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import KeyField, MatchKind

FieldMatch: TypeAlias = int | tuple[int, int] | None
Match: TypeAlias = tuple[FieldMatch, ...]

PRIORITY_KINDS = frozenset({MatchKind.TERNARY, MatchKind.RANGE, MatchKind.OPTIONAL})


def all_ones(width: int) -> int:
    """Return the largest value of `width` bits."""
    return (1 << width) - 1


def prefix_mask(width: int, prefix_length: int) -> int:
    """Return the mask of `width` bits whose `prefix_length` most significant bits are set."""
    return all_ones(width) ^ all_ones(width - prefix_length)


def any_value(field: KeyField) -> FieldMatch:
    """Return the match of `field` that every value satisfies; an exact field has none and raises EntryError."""
    match field.kind:
        case MatchKind.EXACT:
            raise EntryError(EntryFault.INVALID, "an exact field needs a value", where=field.name)
        case MatchKind.LPM | MatchKind.TERNARY:
            return (0, 0)
        case MatchKind.RANGE:
            return (0, all_ones(field.width))
        case MatchKind.OPTIONAL:
            return None


def needs_priority(keys: tuple[KeyField, ...]) -> bool:
    """Return whether entries over `keys` can overlap, so that each needs a priority (P4Runtime, section 9.1)."""
    return any(field.kind in PRIORITY_KINDS for field in keys)


def check_match(keys: tuple[KeyField, ...], match: Match, where: str) -> None:
    """Raise EntryError naming `where` and the field if `match` is not a well-formed match over `keys`."""
    if len(match) != len(keys):
        raise EntryError(EntryFault.INVALID, f"{len(match)} match fields for a key of {len(keys)}", where=where)
    for field, value in zip(keys, match, strict=True):
        _check_field(field, value, where)


def _check_field(field: KeyField, value: FieldMatch, where: str) -> None:
    ones = all_ones(field.width)
    match field.kind, value:
        case MatchKind.EXACT, int() as bits:
            well_formed = 0 <= bits <= ones
        case MatchKind.OPTIONAL, int() as bits:
            well_formed = 0 <= bits <= ones and field.width > 0  # a zero-width value matches anything: None
        case MatchKind.OPTIONAL, None:
            well_formed = True
        case MatchKind.LPM, (int() as bits, int() as length):
            well_formed = (
                0 <= length <= field.width and 0 <= bits <= ones and not bits & ~prefix_mask(field.width, length)
            )
        case MatchKind.TERNARY, (int() as bits, int() as mask):
            well_formed = 0 <= mask <= ones and 0 <= bits <= ones and not bits & ~mask
        case MatchKind.RANGE, (int() as low, int() as high):
            well_formed = 0 <= low <= high <= ones
        case _:
            well_formed = False
    if not well_formed:
        problem = f"{value!r} is not a {field.kind} match of {field.width} bits"
        raise EntryError(EntryFault.INVALID, problem, where=f"{where}: {field.name}")


def field_matches(field: KeyField, match: FieldMatch, value: int) -> bool:
    """Return whether a packet's `value` satisfies `match`: the plain definition that every index must agree with."""
    match match:
        case None:
            return True
        case int():
            return value == match
        case first, second:
            if field.kind is MatchKind.RANGE:
                return first <= value <= second
            mask = prefix_mask(field.width, second) if field.kind is MatchKind.LPM else second
            return value & mask == first
