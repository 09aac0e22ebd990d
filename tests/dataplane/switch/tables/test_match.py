"""Well-formed and malformed match values."""

from __future__ import annotations

from typing import Any

import pytest

from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import KeyField, MatchKind
from dataplane.switch.tables.match import any_value, check_match, field_matches, needs_priority, prefix_mask

KINDS = list(MatchKind)


def key(kind: MatchKind, width: int = 8) -> KeyField:
    return KeyField("field", kind, width)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (MatchKind.EXACT, 255),
        (MatchKind.LPM, (0xF0, 4)),
        (MatchKind.LPM, (0, 0)),
        (MatchKind.LPM, (0xFF, 8)),
        (MatchKind.TERNARY, (0x10, 0x30)),
        (MatchKind.RANGE, (7, 7)),
        (MatchKind.OPTIONAL, None),
        (MatchKind.OPTIONAL, 0),
    ],
)
def test_well_formed(kind: MatchKind, value: Any) -> None:
    check_match((key(kind),), (value,), "t")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (MatchKind.EXACT, 256),
        (MatchKind.EXACT, -1),
        (MatchKind.EXACT, None),
        (MatchKind.EXACT, (1, 2)),
        (MatchKind.LPM, 3),
        (MatchKind.LPM, (0xF8, 4)),
        (MatchKind.LPM, (0, 9)),
        (MatchKind.LPM, (0, -1)),
        (MatchKind.TERNARY, (0x11, 0x10)),
        (MatchKind.TERNARY, (0, 0x100)),
        (MatchKind.RANGE, (8, 7)),
        (MatchKind.RANGE, (0, 256)),
        (MatchKind.RANGE, None),
        (MatchKind.OPTIONAL, 256),
        (MatchKind.OPTIONAL, (0, 0)),
    ],
)
def test_malformed(kind: MatchKind, value: Any) -> None:
    with pytest.raises(EntryError, match="t: field: ") as caught:
        check_match((key(kind),), (value,), "t")
    assert caught.value.fault is EntryFault.INVALID


def test_a_match_has_as_many_values_as_the_key() -> None:
    with pytest.raises(EntryError, match="1 match fields for a key of 2"):
        check_match((key(MatchKind.EXACT), key(MatchKind.EXACT)), (1,), "t")


def test_prefix_mask() -> None:
    assert [prefix_mask(8, length) for length in (0, 1, 7, 8)] == [0, 0x80, 0xFE, 0xFF]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not MatchKind.EXACT])
def test_any_value_is_well_formed_and_matches_everything(kind: MatchKind) -> None:
    check_match((key(kind),), (any_value(key(kind)),), "t")
    assert all(field_matches(key(kind), any_value(key(kind)), value) for value in range(256))


def test_an_exact_field_has_no_any_value() -> None:
    with pytest.raises(EntryError):
        any_value(key(MatchKind.EXACT))


def test_needs_priority() -> None:
    assert not needs_priority((key(MatchKind.EXACT), key(MatchKind.LPM)))
    assert all(needs_priority((key(kind),)) for kind in (MatchKind.TERNARY, MatchKind.RANGE, MatchKind.OPTIONAL))
