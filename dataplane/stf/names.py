"""Resolution of a test file's names, and conversion of its numbers to match values.

Tests name tables, actions and key fields by the end of their full names, and header stacks' elements in three ways.
Every error is an EntryError that names the object; the runner adds file and line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import ActionCall, ActionSpec, KeyField, MatchKind, TableSpec
from dataplane.stf.statements import Anything, Call, Masked, Number, Pattern, Prefix, Span
from dataplane.switch.tables.match import FieldMatch, Match, all_ones, any_value, prefix_mask

_ELEMENT = re.compile(r"\$(\d+)")
_VALID = "$valid$"


def find_name(names: Iterable[str], written: str, what: str) -> str:
    """Return the one of `names` that equals `written`, or the only one that ends with it; else raise EntryError."""
    candidates = tuple(dict.fromkeys(names))
    if written in candidates:
        return written
    for ending in (f".{written}", written):
        matches = [name for name in candidates if name.endswith(ending)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise EntryError(EntryFault.INVALID, f"may be any of {', '.join(matches)}", where=f"{what} {written}")
    raise EntryError(EntryFault.NOT_FOUND, "the program has none of that name", where=f"{what} {written}")


def find_call(spec: TableSpec, actions: Mapping[str, ActionSpec], call: Call) -> ActionCall:
    """Return the action call for `call`, its arguments in parameter order."""
    name = find_name(spec.actions, call.action, f"{spec.name}: action")
    given = dict(call.arguments)
    # Compiler-generated actions (NoAction of a table without key) are in no P4Info and have no parameters.
    parameters = actions[name].parameters if name in actions else ()
    arguments = []
    for parameter, _ in parameters:
        if parameter not in given:
            raise EntryError(EntryFault.INVALID, f"argument {parameter} is missing", where=f"{spec.name}: {name}")
        arguments.append(given.pop(parameter))
    if given:
        raise EntryError(EntryFault.INVALID, f"has no parameter {next(iter(given))}", where=f"{spec.name}: {name}")
    return ActionCall(name, tuple(arguments))


def find_match(spec: TableSpec, written: Iterable[tuple[str, Pattern]]) -> Match:
    """Return the match of an entry; an omitted field matches any value, an omitted exact one is 0."""
    given: dict[str, Pattern] = {}
    for name, pattern in written:
        key = _find_key([key.name for key in spec.keys], name, spec.name)
        if key in given:
            raise EntryError(EntryFault.INVALID, "is given twice", where=f"{spec.name}: {key}")
        given[key] = pattern
    return tuple(
        _field_match(key, given[key.name], spec.name) if key.name in given else _unnamed(key) for key in spec.keys
    )


def _find_key(names: list[str], written: str, table: str) -> str:
    name = _ELEMENT.sub(r"[\1]", written)
    stem = name.removesuffix("$").removesuffix("valid").removesuffix("$").removesuffix(".")
    validity = f"{stem}.{_VALID}" if stem else _VALID
    for candidate in (name, f"{name}$", f"{name}.{_VALID}", validity if stem != name else name):
        if candidate in names:
            return candidate
    endings = (f"{name}$", validity) if stem != name else (f"{name}$", name)
    for ending in endings:
        matches = [full for full in names if full.endswith(f".{ending}")]
        if len(matches) == 1:
            return matches[0]
    return find_name(names, name, f"{table}: key field")


def _unnamed(key: KeyField) -> FieldMatch:
    return 0 if key.kind is MatchKind.EXACT else any_value(key)


def _field_match(key: KeyField, pattern: Pattern, table: str) -> FieldMatch:
    if isinstance(pattern, Anything) and key.kind is not MatchKind.EXACT:
        return any_value(key)
    match key.kind:
        case MatchKind.TERNARY:
            match: FieldMatch = _ternary(key, pattern)
        case MatchKind.LPM:
            match = _prefix(key, pattern)
        case MatchKind.RANGE:
            match = _span(pattern)
        case MatchKind.EXACT | MatchKind.OPTIONAL:
            match = _value(pattern)
    if match is None:
        problem = f"this pattern does not suit a field of kind {key.kind}"
        raise EntryError(EntryFault.INVALID, problem, where=f"{table}: {key.name}")
    return match


def _ternary(key: KeyField, pattern: Pattern) -> tuple[int, int] | None:
    """Return value and mask; only the digits written in a number count, as in p4c's runner."""
    match pattern:
        case Masked(value, mask):
            return value & mask, mask
        case Prefix(value, length) if length <= key.width:
            mask = prefix_mask(key.width, length)
            return value & mask, mask
        case Number(value, None):
            return value, all_ones(key.width)
        case Number(value, int() as mask):
            # Leading zeros may imply more digits than the field has bits.
            return value, mask if value > all_ones(key.width) else mask & all_ones(key.width)
    return None


def _prefix(key: KeyField, pattern: Pattern) -> tuple[int, int] | None:
    match pattern:
        case Prefix(value, length) if length <= key.width:
            return value & prefix_mask(key.width, length), length
        case Number(value, mask, bits):
            any_bits = 0 if mask is None else bits if mask == 0 else (mask & -mask).bit_length() - 1
            trailing_only = mask is None or mask == all_ones(bits) ^ all_ones(any_bits)
            return (value, max(0, key.width - any_bits)) if trailing_only else None
    return None


def _span(pattern: Pattern) -> tuple[int, int] | None:
    match pattern:
        case Span(low, high):
            return low, high
        case Number(value) if not pattern.has_wildcards:
            return value, value
    return None


def _value(pattern: Pattern) -> int | None:
    return pattern.value if isinstance(pattern, Number) and not pattern.has_wildcards else None
