"""Names by their ends, key fields in all their spellings, and numbers as match values."""

from __future__ import annotations

import pytest

from dataplane.errors import EntryError
from dataplane.program.objects import ActionCall, ActionSpec, KeyField, MatchKind, TableSpec
from dataplane.stf.names import find_call, find_match, find_name
from dataplane.stf.statements import Anything, Call, Masked, Number, Pattern, Prefix, Span
from dataplane.switch.tables.match import FieldMatch


def table(*keys: KeyField, actions: tuple[str, ...] = ("c.a",)) -> TableSpec:
    return TableSpec("c.t", keys, actions, ActionCall("NoAction"), const_default=False, size=8)


def test_name_matches_exactly_then_after_a_dot_then_as_suffix() -> None:
    assert find_name(["c.t", "t"], "t", "table") == "t"
    assert find_name(["c.t", "c.at"], "t", "table") == "c.t"
    assert find_name(["c.first", "c.second"], "ond", "table") == "c.second"


def test_a_name_that_several_or_none_end_with_is_refused() -> None:
    with pytest.raises(EntryError, match=r"table t: may be any of a\.t, b\.t"):
        find_name(["a.t", "b.t"], "t", "table")
    with pytest.raises(EntryError, match=r"table x: the program has none of that name"):
        find_name(["a.t"], "x", "table")


def test_arguments_are_in_parameter_order_and_complete() -> None:
    spec, actions = table(), {"c.a": ActionSpec("c.a", (("port", 9), ("val", 8)))}
    assert find_call(spec, actions, Call("a", (("val", 1), ("port", 2)))) == ActionCall("c.a", (2, 1))
    with pytest.raises(EntryError, match=r"c\.t: c\.a: argument val is missing"):
        find_call(spec, actions, Call("a", (("port", 2),)))
    with pytest.raises(EntryError, match=r"c\.t: c\.a: has no parameter size"):
        find_call(spec, actions, Call("a", (("val", 1), ("port", 2), ("size", 3))))


@pytest.mark.parametrize(
    ("full", "written"),
    [
        ("hdr.h.f", "hdr.h.f"),
        ("hdr.h.f", "h.f"),
        ("hdr.h.f", "f"),
        ("hdr.stack[1].f", "stack$1.f"),
        ("hdr.stack[1].f", "hdr.stack[1].f"),
        ("hdr.h.$valid$", "hdr.h.$valid$"),
        ("hdr.h.$valid$", "hdr.h.$valid"),
        ("hdr.h.$valid$", "h.$valid"),
        ("hdr.h.$valid$", "hdr.h.valid"),
        ("hdr.h.$valid$", "hdr.h"),
        ("hdr.h.$valid$", "valid"),
    ],
)
def test_key_fields_may_be_written_in_many_ways(full: str, written: str) -> None:
    other = KeyField("meta.other", MatchKind.EXACT, 1)
    assert find_match(table(other, KeyField(full, MatchKind.EXACT, 1)), [(written, Number(1))]) == (0, 1)


def test_an_unknown_key_field_and_one_given_twice_are_refused() -> None:
    spec = table(KeyField("hdr.h.f", MatchKind.EXACT, 8))
    with pytest.raises(EntryError, match=r"c\.t: key field g: the program has none"):
        find_match(spec, [("g", Number(1))])
    with pytest.raises(EntryError, match=r"c\.t: hdr\.h\.f: is given twice"):
        find_match(spec, [("f", Number(1)), ("h.f", Number(1))])


@pytest.mark.parametrize(
    ("kind", "pattern", "match"),
    [
        (MatchKind.EXACT, Number(5), 5),
        (MatchKind.OPTIONAL, Number(5), 5),
        (MatchKind.OPTIONAL, Anything(), None),
        (MatchKind.RANGE, Span(2, 9), (2, 9)),
        (MatchKind.RANGE, Number(7), (7, 7)),
        (MatchKind.RANGE, Anything(), (0, 0xFFFF)),
        (MatchKind.LPM, Prefix(0x0A0B, 8), (0x0A00, 8)),
        (MatchKind.LPM, Number(0x0A0B, 0xFFFF, 16), (0x0A0B, 16)),
        (MatchKind.LPM, Number(0x0A00, 0xFF00, 16), (0x0A00, 8)),
        (MatchKind.LPM, Number(0, 0, 16), (0, 0)),
        (MatchKind.LPM, Number(10), (10, 16)),
        (MatchKind.TERNARY, Masked(0xFF, 0x0F), (0x0F, 0x0F)),
        (MatchKind.TERNARY, Number(0x0101, 0x0F0F, 16), (0x0101, 0x0F0F)),
        (MatchKind.TERNARY, Number(0x25, 0xFF, 8), (0x25, 0xFF)),
        (MatchKind.TERNARY, Number(10), (10, 0xFFFF)),
        (MatchKind.TERNARY, Prefix(0x0A0B, 8), (0x0A00, 0xFF00)),
        (MatchKind.TERNARY, Number(1, 0xFFFFF, 20), (1, 0xFFFF)),
    ],
)
def test_numbers_become_match_values(kind: MatchKind, pattern: Pattern, match: FieldMatch) -> None:
    assert find_match(table(KeyField("f", kind, 16)), [("f", pattern)]) == (match,)


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        (MatchKind.EXACT, Anything()),
        (MatchKind.EXACT, Number(0, 0, 4)),
        (MatchKind.EXACT, Masked(1, 1)),
        (MatchKind.OPTIONAL, Span(1, 2)),
        (MatchKind.RANGE, Number(0, 0xF0, 8)),
        (MatchKind.LPM, Number(0, 0x0F0F, 16)),
        (MatchKind.LPM, Span(1, 2)),
        (MatchKind.LPM, Prefix(1, 17)),
        (MatchKind.TERNARY, Span(1, 2)),
    ],
)
def test_a_pattern_that_the_kind_of_match_cannot_have_is_refused(kind: MatchKind, pattern: Pattern) -> None:
    with pytest.raises(EntryError, match=r"c\.t: f: this pattern does not suit a field of kind"):
        find_match(table(KeyField("f", kind, 16)), [("f", pattern)])


def test_unnamed_fields_are_wildcards_and_exact_ones_zero() -> None:
    kinds = (MatchKind.EXACT, MatchKind.LPM, MatchKind.TERNARY, MatchKind.RANGE, MatchKind.OPTIONAL)
    keys = [KeyField(f"f{number}", kind, 8) for number, kind in enumerate(kinds)]
    assert find_match(table(*keys), []) == (0, (0, 0), (0, 0), (0, 255), None)
