"""Counters, registers, and entries that move from one program's state to another's."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import (
    ActionCall,
    ActionSpec,
    CounterSpec,
    KeyField,
    MatchKind,
    MeterSpec,
    MeterUnit,
    PresetEntry,
    ProfileSpec,
    RegisterSpec,
    TableSpec,
    ValueSetSpec,
)
from dataplane.switch.tables import (
    ActionSet,
    CloneSession,
    ForwardingState,
    Group,
    GroupMember,
    MeterConfig,
    Profile,
    Replica,
    TableEntry,
    WideCells,
    carry_over,
)

KEY = (KeyField("dst", MatchKind.EXACT, 8),)
DROP = ActionCall("drop")
SEND = ActionCall("send", (1,))
OTHER = ActionCall("send", (2,))


@dataclass(frozen=True)
class Program:
    actions: dict[str, ActionSpec] = field(
        default_factory=lambda: {"drop": ActionSpec("drop", ()), "send": ActionSpec("send", (("port", 9),))}
    )
    tables: dict[str, TableSpec] = field(
        default_factory=lambda: {
            "direct": TableSpec("direct", KEY, ("drop", "send"), DROP, False, 4, presets=(PresetEntry((9,), 1, DROP),)),
            "routes": TableSpec("routes", KEY, ("send",), DROP, False, 4, "ecmp"),
        }
    )
    profiles: dict[str, ProfileSpec] = field(default_factory=lambda: {"ecmp": ProfileSpec("ecmp", 8, 0, True)})
    counters: dict[str, CounterSpec] = field(default_factory=lambda: {"ports": CounterSpec("ports", 2)})
    registers: dict[str, RegisterSpec] = field(default_factory=lambda: {"cells": RegisterSpec("cells", 2, 8)})
    meters: dict[str, MeterSpec] = field(default_factory=dict)
    value_sets: dict[str, ValueSetSpec] = field(default_factory=dict)


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
    assert [counter.read(index) for index in range(2)] == [(1, 10), (0, 0)]
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
    assert target.counters["ports"].read(1) == (1, 64)
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


METER = MeterSpec("rates", 2, MeterUnit.PACKETS)
DIRECT = MeterSpec("policer", 0, MeterUnit.PACKETS, table="direct")
ONE_PACKET = MeterConfig(0, 1, 0, 1)
VALUES = ValueSetSpec("ports", 2, KEY)


def metered(unit: MeterUnit = MeterUnit.PACKETS) -> Program:
    plain = Program()
    direct = replace(plain.tables["direct"], direct_meter="policer", direct_counter="hits", idle_timeout=True)
    meters = {"rates": replace(METER, unit=unit), "policer": replace(DIRECT, unit=unit)}
    return replace(plain, tables={**plain.tables, "direct": direct}, meters=meters, value_sets={"ports": VALUES})


def test_direct_meters_live_with_their_entry() -> None:
    table = ForwardingState(metered()).tables["direct"]
    table.insert(TableEntry((1,), call=SEND))
    table.write_meter((1,), 0, ONE_PACKET)
    first = table.lookup((1,))
    assert first is not None
    assert (first.meter_config, first.meter(64, 0)) == (ONE_PACKET, 0)
    table.modify(TableEntry((1,), call=DROP))
    second = table.lookup((1,))
    assert second is not None
    assert (second.meter_config, second.meter(64, 0)) == (ONE_PACKET, 2)
    table.write_meter((1,), 0, None)
    assert (second.meter_config, second.meter(64, 0)) == (None, 0)
    for match, config, fault in (
        ((2,), None, EntryFault.NOT_FOUND),
        ((1,), MeterConfig(2, 1, 1, 1), EntryFault.INVALID),
    ):
        with pytest.raises(EntryError) as caught:
            table.write_meter(match, 0, config)
        assert caught.value.fault is fault


def test_a_table_without_direct_meter_has_none() -> None:
    table = filled().tables["direct"]
    with pytest.raises(EntryError, match="no direct meter"):
        table.write_meter((1,), 0, ONE_PACKET)


def test_entries_that_nothing_counts_have_no_tally_of_their_own() -> None:
    plain, counted = (ForwardingState(program).tables["direct"] for program in (Program(), metered()))
    for table in (plain, counted):
        table.insert(TableEntry((1,), call=SEND, idle_timeout_ns=5))
    entries = [table.lookup((1,)) for table in (plain, counted)]
    assert [entry is not None and entry.tally is not None for entry in entries] == [False, True]
    entry = entries[1]
    assert entry is not None
    assert entry.last_hit_us == 0
    entry.touch(12)
    assert (entry.last_hit_us, entry.idle_timeout_ns) == (12, 5)


def test_meters_value_sets_and_ports_are_carried_over() -> None:
    source = ForwardingState(metered())
    source.meters["rates"].write(1, ONE_PACKET)
    assert source.meters["rates"].execute(1, 64, 0) == 0
    source.tables["direct"].insert(TableEntry((1,), call=SEND))
    source.tables["direct"].write_meter((1,), 0, ONE_PACKET)
    source.value_sets["ports"].replace([(7,)])
    source.set_port_status(4, up=False)
    target = ForwardingState(metered())
    carry_over(source, target, Program().actions, Program().actions)
    assert (target.meters["rates"].read(1), target.meters["rates"].execute(1, 64, 0)) == (ONE_PACKET, 2)
    assert target.value_sets["ports"].contains((7,))
    assert target.ports_down == {4}
    moved = target.tables["direct"].lookup((1,))
    assert moved is not None
    assert moved.meter_config == ONE_PACKET
    other = ForwardingState(metered(MeterUnit.BYTES))
    carry_over(source, other, Program().actions, Program().actions)
    moved = other.tables["direct"].lookup((1,))
    assert moved is not None
    assert (moved.meter_config, other.meters["rates"].read(1)) == (None, None)


def test_a_value_set_that_cannot_be_kept_is_named() -> None:
    source = ForwardingState(metered())
    target = ForwardingState(replace(metered(), value_sets={}))
    carry_over(source, target, Program().actions, Program().actions)
    source.value_sets["ports"].replace([(7,)])
    with pytest.raises(EntryError, match="ports: the new program has no such value set"):
        carry_over(source, target, Program().actions, Program().actions)


def test_wide_registers_are_sequences_of_numbers() -> None:
    cells = ForwardingState(replace(Program(), registers={"r": RegisterSpec("r", 3, 130)})).registers["r"]
    assert isinstance(cells, WideCells)
    cells[0], cells[-1] = 1 << 129, 5
    assert cells == [1 << 129, 0, 5]
    assert cells[1:] == [0, 5]
    cells[:] = [1, 2, 3]
    assert (list(cells), len(cells)) == ([1, 2, 3], 3)
    with pytest.raises(IndexError):
        cells[3]


def test_ports_that_are_down_take_their_members_out() -> None:
    state = filled()
    profile = state.profiles["ecmp"]
    profile.insert_member(6, OTHER)
    profile.modify_group(Group(1, (GroupMember(5, 1, watch_port=1), GroupMember(6, 2, watch_port=2))))
    entry = state.tables["routes"].lookup((2,))
    assert entry is not None

    def answers() -> list[ActionCall | None]:
        assert entry is not None
        return [profile.resolve(entry, digest) for digest in range(3)]

    assert answers() == [SEND, OTHER, OTHER]
    state.set_port_status(1, up=False)
    assert answers() == [OTHER, OTHER, OTHER]
    profile.modify_member(6, SEND)  # a new selection still leaves it out
    assert answers() == [SEND, SEND, SEND]
    state.set_port_status(2, up=False)
    assert answers() == [None, None, None]
    state.set_port_status(1, up=True)
    assert answers() == [SEND, SEND, SEND]


class _Full:
    """An observer without memory for the next changes, as the mirror in compiled code may be."""

    def __init__(self, profile: Profile, refusals: int) -> None:
        self.refusals, self._profile = refusals, profile
        self.choices: list[ActionSet | None] = []
        profile.observers = (*profile.observers, self)

    def member_changed(self, member_id: int) -> None: ...

    def group_changed(self, group_id: int) -> None:
        self.refusals -= 1
        if self.refusals >= 0:
            raise EntryError(EntryFault.FULL, "not enough memory for its entries", where="ecmp")
        self.choices.append(self._profile.choice(group_id))

    def ports_changed(self) -> None: ...


def test_port_status_without_memory_is_undone_and_made_up(caplog: pytest.LogCaptureFixture) -> None:
    names = ("ecmp", "more")
    state = ForwardingState(
        Program(
            tables={name: TableSpec(name, KEY, ("send",), DROP, False, 4, name) for name in names},
            profiles={name: ProfileSpec(name, 8, 0, True) for name in names},
        )
    )
    for profile in state.profiles.values():
        profile.insert_member(5, SEND)
        profile.insert_member(6, OTHER)
        profile.insert_group(Group(1, (GroupMember(5, 1, watch_port=1), GroupMember(6, 1, watch_port=2))))
    whole = [profile.choice(1) for profile in state.profiles.values()]
    mirror = _Full(state.profiles["more"], refusals=1)
    with pytest.raises(EntryError, match="not enough memory"):
        state.set_port_status(1, up=False)
    assert state.ports_down == frozenset()
    assert [profile.choice(1) for profile in state.profiles.values()] == whole
    assert mirror.choices == whole[1:], "the mirror was told of the way back"

    mirror.refusals = 1
    state.follow_port(1, up=False)
    assert state.ports_down == frozenset()
    assert caplog.messages == [
        "port 1: groups that watch it stay as they are for now: ecmp: not enough memory for its entries"
    ]
    state.follow_port(2, up=False)
    assert state.ports_down == {1, 2}
    assert all(profile.choice(1) == ActionSet(()) for profile in state.profiles.values())
