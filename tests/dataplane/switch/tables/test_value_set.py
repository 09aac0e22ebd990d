"""Value sets: membership, and refusals."""

from __future__ import annotations

import pytest

from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import KeyField, MatchKind, ValueSetSpec
from dataplane.switch.tables import ValueSet
from dataplane.switch.tables.match import Match

EXACT = KeyField("type", MatchKind.EXACT, 16)
TERNARY = KeyField("flags", MatchKind.TERNARY, 8)


def test_exact_members() -> None:
    value_set = ValueSet(ValueSetSpec("s", 2, (EXACT,)))
    assert not value_set.contains((0x800,))
    value_set.replace([(0x800,), (0x806,)])
    assert value_set.contains((0x806,))
    value_set.replace([(0x806,)])
    assert (value_set.contains((0x800,)), value_set.members) == (False, ((0x806,),))


def test_masked_members() -> None:
    value_set = ValueSet(ValueSetSpec("s", 2, (EXACT, TERNARY)))
    value_set.replace([(1, (0x80, 0x80)), (2, (0, 0))])
    assert [value_set.contains(key) for key in ((1, 0x81), (1, 1), (2, 1), (3, 1))] == [True, False, True, False]


@pytest.mark.parametrize(
    ("members", "fault"),
    [
        ([(1,), (2,), (3,)], EntryFault.FULL),
        ([(1,), (1,)], EntryFault.INVALID),
        ([(0x10000,)], EntryFault.INVALID),
        ([(1, 2)], EntryFault.INVALID),
    ],
)
def test_what_is_refused_changes_nothing(members: list[Match], fault: EntryFault) -> None:
    value_set = ValueSet(ValueSetSpec("s", 2, (EXACT,)))
    value_set.replace([(7,)])
    with pytest.raises(EntryError, match="s: ") as caught:
        value_set.replace(members)
    assert caught.value.fault is fault
    assert value_set.members == ((7,),)
