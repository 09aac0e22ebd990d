"""One table's life: every refused change leaves it as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dataplane.errors import EntryError, EntryFault, ProgramError
from dataplane.program.objects import ActionCall, ActionSpec, KeyField, MatchKind, PresetEntry, TableSpec
from dataplane.switch.tables import Table, TableEntry, Tally

ACTIONS = {
    "forward": ActionSpec("forward", (("port", 9),)),
    "drop": ActionSpec("drop", ()),
    "other": ActionSpec("other", ()),
}
DROP = ActionCall("drop")
EXACT = (KeyField("dst", MatchKind.EXACT, 8),)
TERNARY = (KeyField("dst", MatchKind.TERNARY, 8),)


def spec(
    keys: tuple[KeyField, ...] = EXACT,
    *,
    const_default: bool = False,
    size: int = 3,
    presets: tuple[PresetEntry, ...] = (),
    is_const: bool = False,
) -> TableSpec:
    return TableSpec("t", keys, ("forward", "drop"), DROP, const_default, size, presets=presets, is_const=is_const)


def table(keys: tuple[KeyField, ...] = EXACT) -> Table:
    return Table(spec(keys), ACTIONS)


def forward(port: int) -> ActionCall:
    return ActionCall("forward", (port,))


def fault(error: pytest.ExceptionInfo[EntryError]) -> EntryFault:
    assert str(error.value).startswith("t: ")
    return error.value.fault


def test_insert_lookup_modify_delete() -> None:
    t = table()
    t.insert(TableEntry((7,), call=forward(1)))
    first = t.lookup((7,))
    assert first is not None
    first.count(100)
    t.modify(TableEntry((7,), call=forward(2), metadata=b"m"))
    second = t.lookup((7,))
    assert second is not None
    assert (second.call, second.metadata) == (forward(2), b"m")
    assert (second.packets, second.bytes) == (1, 100)
    assert first.call == forward(1)  # a packet that holds the old entry sees all of it
    t.delete((7,))
    assert t.lookup((7,)) is None
    assert len(t) == 0


def test_insert_twice() -> None:
    t = table()
    t.insert(TableEntry((7,), call=forward(1)))
    with pytest.raises(EntryError) as caught:
        t.insert(TableEntry((7,), call=forward(2)))
    assert fault(caught) is EntryFault.EXISTS
    assert [entry.call for entry in t] == [forward(1)]


def test_capacity() -> None:
    t = table()
    for value in range(3):
        t.insert(TableEntry((value,), call=DROP))
    with pytest.raises(EntryError, match="full: 3 entries") as caught:
        t.insert(TableEntry((3,), call=DROP))
    assert fault(caught) is EntryFault.FULL
    t.modify(TableEntry((2,), call=forward(1)))
    t.delete((0,))
    t.insert(TableEntry((3,), call=DROP))
    assert len(t) == 3


@pytest.mark.parametrize(
    "entry",
    [
        TableEntry((256,), call=DROP),
        TableEntry((), call=DROP),
        TableEntry((1,)),
        TableEntry((1,), priority=1, call=DROP),
        TableEntry((1,), member=1),
        TableEntry((1,), group=1),
        TableEntry((1,), call=ActionCall("other")),
        TableEntry((1,), call=ActionCall("none")),
        TableEntry((1,), call=ActionCall("forward")),
        TableEntry((1,), call=ActionCall("forward", (512,))),
        TableEntry((1,), call=ActionCall("forward", (-1,))),
    ],
)
def test_malformed_entries_change_nothing(entry: TableEntry) -> None:
    t = table()
    with pytest.raises(EntryError) as caught:
        t.insert(entry)
    assert fault(caught) is EntryFault.INVALID
    assert len(t) == 0
    t.insert(TableEntry((1,), call=forward(9)))
    with pytest.raises(EntryError):
        t.modify(entry)
    assert [entry.call for entry in t] == [forward(9)]


@pytest.mark.parametrize("priority", [0, -1])
def test_overlapping_keys_need_a_priority(priority: int) -> None:
    with pytest.raises(EntryError, match="priority above 0"):
        table(TERNARY).insert(TableEntry(((1, 1),), priority, call=DROP))


def test_what_is_not_there() -> None:
    t = table()
    changes: list[Callable[[], None]] = [lambda: t.modify(TableEntry((1,), call=DROP)), lambda: t.delete((1,))]
    for change in changes:
        with pytest.raises(EntryError) as caught:
            change()
        assert fault(caught) is EntryFault.NOT_FOUND


def test_const_entries() -> None:
    const = (PresetEntry(((1, 1),), 2, forward(1)), PresetEntry(((0, 0),), 1, DROP))
    t = Table(spec(TERNARY, presets=const, is_const=True), ACTIONS)
    hit = t.lookup((3,))
    assert hit is not None
    assert hit.is_const
    assert hit.call == forward(1)
    changes: list[Callable[[], None]] = [
        lambda: t.insert(TableEntry(((4, 4),), 9, call=DROP)),
        lambda: t.modify(TableEntry(((1, 1),), 2, call=DROP)),
        lambda: t.delete(((1, 1),), 2),
    ]
    for change in changes:
        with pytest.raises(EntryError) as caught:
            change()
        assert fault(caught) is EntryFault.CONST
    t.reset_tally(((1, 1),), 2, Tally(3, 4))
    assert hit.packets == 3


def test_initial_entries_that_are_not_const_may_go() -> None:
    t = Table(spec(presets=(PresetEntry((1,), 1, DROP),)), ACTIONS)
    t.delete((1,))
    assert len(t) == 0


def test_default_action() -> None:
    t = table()
    assert t.default == DROP
    t.set_default(forward(3), b"m", 4)
    assert (t.default, t.default_entry.metadata, t.default_entry.cookie) == (forward(3), b"m", 4)
    with pytest.raises(EntryError):
        t.set_default(ActionCall("forward", (1 << 9,)))
    assert t.default == forward(3)
    t.set_default(None)
    assert (t.default, t.default_entry.metadata, t.default_entry.cookie) == (DROP, b"", 0)


def test_const_default_action() -> None:
    with pytest.raises(EntryError) as caught:
        Table(spec(const_default=True), ACTIONS).set_default(forward(1))
    assert fault(caught) is EntryFault.CONST


def test_a_table_without_key_has_no_entries() -> None:
    t = table(())
    with pytest.raises(EntryError, match="default action only"):
        t.insert(TableEntry((), call=DROP))
    assert t.lookup(()) is None


def test_two_lpm_fields_are_refused() -> None:
    lpm = KeyField("dst", MatchKind.LPM, 8)
    with pytest.raises(ProgramError, match="at most one lpm"):
        table((lpm, lpm))
