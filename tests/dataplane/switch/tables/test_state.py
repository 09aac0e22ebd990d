"""Counters, registers, and entries that move from one program's state to another's."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import (
    ActionCall,
    ActionSpec,
    ConstEntry,
    CounterSpec,
    KeyField,
    MatchKind,
    ProfileSpec,
    RegisterSpec,
    TableSpec,
)
from dataplane.switch.tables import (
    CloneSession,
    ForwardingState,
    Group,
    GroupMember,
    Replica,
    TableEntry,
    carry_over,
)

KEY = (KeyField("dst", MatchKind.EXACT, 8),)
DROP = ActionCall("drop")
SEND = ActionCall("send", (1,))


@dataclass(frozen=True)
class Program:
    actions: dict[str, ActionSpec] = field(
        default_factory=lambda: {"drop": ActionSpec("drop", ()), "send": ActionSpec("send", (("port", 9),))}
    )
    tables: dict[str, TableSpec] = field(
        default_factory=lambda: {
            "direct": TableSpec(
                "direct", KEY, ("drop", "send"), DROP, False, 4, const_entries=(ConstEntry((9,), 1, DROP),)
            ),
            "routes": TableSpec("routes", KEY, ("send",), DROP, False, 4, "ecmp"),
        }
    )
    profiles: dict[str, ProfileSpec] = field(default_factory=lambda: {"ecmp": ProfileSpec("ecmp", 8, 0, True)})
    counters: dict[str, CounterSpec] = field(default_factory=lambda: {"ports": CounterSpec("ports", 2)})
    registers: dict[str, RegisterSpec] = field(default_factory=lambda: {"cells": RegisterSpec("cells", 2, 8)})


def filled() -> ForwardingState:
    state = ForwardingState(Program())
    state.tables["direct"].delete((9,))
    state.tables["direct"].insert(TableEntry((1,), call=SEND, metadata=b"x"))
    state.tables["direct"].set_default(SEND)
    hit = state.tables["direct"].lookup((1,))
    assert hit is not None
    hit.count(60)
    state.profiles["ecmp"].insert_member(5, SEND)
    state.profiles["ecmp"].insert_group(Group(1, (GroupMember(5),)))
    state.tables["routes"].insert(TableEntry((2,), group=1))
    state.counters["ports"].count(1, 64)
    state.write_register("cells", 0, 7)
    state.multicast_groups[1] = (Replica(1, 0), Replica(2, 1))
    state.clone_sessions[250] = CloneSession((Replica(3),))
    return state


def test_counters_ignore_what_is_out_of_range() -> None:
    counter = ForwardingState(Program()).counters["ports"]
    for index in (-1, 0, 2):
        counter.count(index, 10)
    assert (counter.packets, counter.bytes) == ([1, 0], [10, 0])
    with pytest.raises(EntryError) as caught:
        counter.write(2, 1, 1)
    assert caught.value.fault is EntryFault.OUT_OF_RANGE


def test_registers_hold_their_width() -> None:
    state = ForwardingState(Program())
    state.write_register("cells", 1, 255)
    assert state.registers["cells"] == [0, 255]
    with pytest.raises(EntryError, match="does not fit 8 bits"):
        state.write_register("cells", 1, 256)
    with pytest.raises(EntryError) as caught:
        state.write_register("cells", 2, 0)
    assert caught.value.fault is EntryFault.OUT_OF_RANGE


def test_everything_is_carried_over() -> None:
    source, target = filled(), ForwardingState(Program())
    carry_over(source, target, Program().actions, Program().actions)
    assert list(target.tables["direct"]) == list(source.tables["direct"])
    moved = target.tables["direct"].lookup((1,))
    assert moved is not None
    assert (moved.packets, moved.bytes) == (1, 60)
    assert target.tables["direct"].default == SEND
    entry = target.tables["routes"].lookup((2,))
    assert entry is not None
    assert target.profiles["ecmp"].resolve(entry, 3) == SEND
    assert target.counters["ports"].packets == [0, 1]
    assert target.registers["cells"] == [7, 0]
    assert target.multicast_groups == source.multicast_groups
    assert target.clone_sessions == source.clone_sessions


def without(name: str) -> Program:
    program = Program()
    return replace(program, tables={key: value for key, value in program.tables.items() if key != name})


def test_what_nothing_was_written_to_may_be_missing() -> None:
    source = ForwardingState(without("routes"))
    carry_over(source, ForwardingState(without("routes")), Program().actions, Program().actions)
    bare = replace(Program(), tables={}, profiles={}, counters={}, registers={})
    empty = ForwardingState(replace(Program(), tables={"routes": Program().tables["routes"]}))
    carry_over(empty, ForwardingState(bare), Program().actions, bare.actions)


@pytest.mark.parametrize(
    ("program", "named"),
    [
        (without("direct"), "direct: the new program has no such table"),
        (replace(Program(), profiles={"ecmp": ProfileSpec("ecmp", 8, 0, False)}), "ecmp: groups need"),
        (
            replace(Program(), actions={**Program().actions, "send": ActionSpec("send", (("port", 16),))}),
            "another action send",
        ),
        (
            replace(
                Program(),
                tables={
                    **Program().tables,
                    "direct": replace(Program().tables["direct"], keys=(replace(KEY[0], width=9),)),
                },
            ),
            "direct: the new program has no such table",
        ),
    ],
)
def test_what_cannot_be_kept_is_named(program: Program, named: str) -> None:
    with pytest.raises(EntryError, match=named):
        carry_over(filled(), ForwardingState(program), Program().actions, program.actions)
