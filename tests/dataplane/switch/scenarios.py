"""Strategies for a switch's events: table writes of every kind, frames valid and mangled, time, port changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from ipaddress import IPv4Address
from pathlib import Path

from hypothesis import strategies as st

from dataplane.errors import EntryError
from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.program.objects import ActionCall, KeyField, MatchKind, TableSpec
from dataplane.switch.interpreter import InterpretedPipeline
from dataplane.switch.pipeline import Dequeued, Frame
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.tables import (
    ActionSet,
    CloneSession,
    ForwardingState,
    Group,
    GroupMember,
    MeterConfig,
    Replica,
    Table,
    TableEntry,
    WeightedAction,
)
from dataplane.switch.tables.match import FieldMatch, Match, all_ones, any_value, needs_priority, prefix_mask
from dataplane.wire.packet import udp_frame
from tests.dataplane.switch.scenario_events import (
    Arrival,
    Cell,
    Copies,
    Count,
    Default,
    Delete,
    Event,
    GroupWrite,
    Insert,
    Member,
    Members,
    Pause,
    PortChange,
    Rates,
    Write,
)

PORTS = (1, 2, 3, 4)
CPU_PORT = 255
ROOT = Path(__file__).parents[3]
FOLDERS = (ROOT / "tests" / "dataplane" / "programs", ROOT / "p4" / "build")
PROGRAMS = {path.stem: path for folder in FOLDERS for path in sorted(folder.glob("*.json"))}
Key = tuple[int, ...]
DISCOVERY_ROUNDS = 12
GROUP_IDS = (1, 2)
MEMBER_IDS = (1, 2, 3)


@cache
def load(name: str) -> Program:
    """Return one of `PROGRAMS`."""
    return load_program(PROGRAMS[name], PROGRAMS[name].with_suffix(".p4info.txtpb"))


# ---- frames


@cache
def templates(program: str) -> tuple[bytes, ...]:
    """Return frames that a program understands, and some that every program meets."""
    return (*_OF_PROGRAMS.get(program, ()), *_general())


@cache
def _general() -> tuple[bytes, ...]:
    flows = tuple(
        udp_frame(
            src_mac=0x02_00_00_01_00_01,
            dst_mac=0x02_01_00_01_00_01,
            src=IPv4Address("10.0.1.1"),
            dst=IPv4Address("10.0.2.1") + number,
            src_port=1000 + number,
            dst_port=2000,
            payload=bytes(range(30 + number)),
        )
        for number in range(4)
    )
    whole = flows[0]
    lldp = whole[:12] + bytes.fromhex("88cc") + b"beacon"
    tagged = whole[:12] + bytes.fromhex("81000005") + whole[12:]
    # Twice, because these exercise most programs most.
    return *flows, *flows, tagged, lldp, b"\0\1" + lldp, whole[:50]


_PARSING = (
    "0105 0204 07ff;0121 0205 ee;0122 0305;0123 01 05;0224 22 aabb cc dd;0200 10 11 22;0382 aaaa 0305;0407;ee01;"
    "ee00 11;c5 00 ffff;0102 02 04 06 08 0a 0c"
)
_OF_PROGRAMS: dict[str, tuple[bytes, ...]] = {
    "arithmetic": (bytes.fromhex("f003f0050102030405060708"), bytes.fromhex("7f0780ff010203040506")),
    "copies": tuple(
        bytes((ingress, egress, argument)) + bytes(range(40))
        for ingress in range(10)
        for egress, argument in ((0, 1), (1, 2), (2, 1), (3, 7), (4, 0))
    ),
    "parsing": tuple(map(bytes.fromhex, _PARSING.split(";"))),
    "unions": tuple(bytes((kind, order, 0)) + b"\x01\x02\x03\x04\x05\x06" for kind in range(5) for order in range(5)),
}


@st.composite
def mangled(draw: st.DrawFn, name: str) -> bytes:
    """Return a frame of `templates` with some bytes changed, cut short or made longer."""
    frame = bytearray(draw(st.sampled_from(templates(name))))
    for _ in range(draw(st.integers(0, 4))):
        if frame:
            frame[draw(st.integers(0, len(frame) - 1))] = draw(st.integers(0, 255))
    length = draw(st.integers(0, len(frame)))
    return bytes(frame[:length]) if draw(st.booleans()) else bytes(frame) + bytes(length % 7)


def frames(name: str) -> st.SearchStrategy[bytes]:
    """Return frames for a program: mostly ones that it parses, some that it cannot."""
    whole = st.sampled_from(templates(name))
    return st.one_of(whole, whole, mangled(name), mangled(name), st.binary(max_size=90))


# ---- table writes


@cache
def _slices(name: str, width: int) -> tuple[int, ...]:
    """Return values of `width` bits that occur in the program's frames, so that keys hit."""
    nbytes, values = (width + 7) // 8, dict.fromkeys((0, 1, 4, 6, all_ones(width)))
    for frame in templates(name):
        for start in range(max(0, len(frame) - nbytes)):
            value = int.from_bytes(frame[start : start + nbytes], "big")
            values.update(dict.fromkeys((value & all_ones(width), value >> (8 * nbytes - width))))
    return tuple(value for value in values if value <= all_ones(width))


def _values(name: str, width: int) -> st.SearchStrategy[int]:
    near = st.sampled_from(_slices(name, width))
    small = st.integers(0, min(8, all_ones(width)))
    return st.one_of(near, near, small, st.integers(0, all_ones(width)))


@st.composite
def _field(draw: st.DrawFn, name: str, key: KeyField, values: st.SearchStrategy[int]) -> FieldMatch:
    value = draw(values)
    match key.kind:
        case MatchKind.EXACT:
            return value
        case MatchKind.OPTIONAL:
            return value if draw(st.booleans()) else None
        case MatchKind.LPM:
            length = draw(st.integers(0, key.width))
            return value & prefix_mask(key.width, length), length
        case MatchKind.RANGE:
            other = draw(_values(name, key.width))
            return min(value, other), max(value, other)
    if draw(st.booleans()):
        return any_value(key)
    mask = draw(st.one_of(st.just(all_ones(key.width)), st.integers(0, all_ones(key.width))))
    return value & mask, mask


def _match(name: str, keys: Sequence[KeyField]) -> st.SearchStrategy[Match]:
    return st.tuples(*(_field(name, key, _values(name, key.width)) for key in keys))


@st.composite
def _likely_match(draw: st.DrawFn, program: Program, name: str, table: TableSpec) -> Match:
    """Return a match that covers a key which the program looks up for one of its frames, where there is one."""
    keys = keys_looked_up(program, name).get(table.name, ())
    if not keys or draw(st.integers(0, 3)) == 0:
        return draw(_match(name, table.keys))
    key = draw(st.sampled_from(keys))
    return tuple(draw(_field(name, field, st.just(value))) for field, value in zip(table.keys, key, strict=True))


_looked_up: dict[str, Mapping[str, tuple[Key, ...]]] = {}


def keys_looked_up(program: Program, name: str) -> Mapping[str, tuple[Key, ...]]:
    """Return the keys that the program looks up for its frames, discovered by filling the tables with them."""
    if name not in _looked_up:
        by_table: dict[str, dict[Key, None]] = {}
        for seed in range(DISCOVERY_ROUNDS):
            _discover(program, name, by_table, random.Random(seed))
        _looked_up[name] = {table: tuple(keys) for table, keys in by_table.items()}
    return _looked_up[name]


def _discover(program: Program, name: str, keys: dict[str, dict[Key, None]], rng: random.Random) -> None:
    state = ForwardingState(program)
    for table in state.tables.values():
        table.lookup = _noting(table.lookup, keys.setdefault(table.spec.name, {}))  # type: ignore[assignment]
        if not table.spec.is_const:
            for key in [key for key in keys[table.spec.name] if rng.random() < 0.5][:50]:
                _insert_exactly(program, table, key, rng)
    pipeline = InterpretedPipeline(program, state, rng=SplitMix(1))
    for number, data in enumerate(templates(name)):
        for port in (PORTS[number % len(PORTS)], CPU_PORT):
            for placed in pipeline.ingress([Frame(port, data)], 1):
                pipeline.egress([Dequeued(placed.packet, placed.port, placed.priority, 1, 0, 0, 0)], 1)


def _noting(lookup: Callable[[Key], TableEntry | None], keys: dict[Key, None]) -> Callable[[Key], TableEntry | None]:
    def note_and_look_up(key: Key) -> TableEntry | None:
        keys[tuple(key)] = None
        return lookup(key)

    return note_and_look_up


def _insert_exactly(program: Program, table: Table, key: Key, rng: random.Random) -> None:
    match: list[FieldMatch] = []
    for field, value in zip(table.spec.keys, key, strict=True):
        pairs = {MatchKind.LPM: field.width, MatchKind.TERNARY: all_ones(field.width), MatchKind.RANGE: value}
        match.append((value, pairs[field.kind]) if field.kind in pairs else value)
    action = program.actions[rng.choice(_usable(program, table.spec))]
    arguments = tuple(min(rng.choice(PORTS), all_ones(width)) for _, width in action.parameters)
    call, priority = ActionCall(action.name, arguments), 1 if table.needs_priority else 0
    if table.profile is None:
        entry = TableEntry(tuple(match), priority, call=call)
    else:
        entry = TableEntry(tuple(match), priority, action_set=ActionSet((WeightedAction(call),)))
    with suppress(EntryError):
        table.insert(entry)


@st.composite
def _call(draw: st.DrawFn, program: Program, actions: Sequence[str]) -> ActionCall:
    action = program.actions[draw(st.sampled_from(actions))]
    ports = st.sampled_from((*PORTS, *PORTS, *PORTS, 0, CPU_PORT, 510))
    arguments = []
    for _, width in action.parameters:
        small, any_value_at_all = ports.filter(partial(_fits, width)), st.integers(0, all_ones(width))
        arguments.append(draw(st.one_of(small, small, any_value_at_all) if width >= 8 else any_value_at_all))
    return ActionCall(action.name, tuple(arguments))


def _fits(width: int, value: int) -> bool:
    return value <= all_ones(width)


_weighted = st.integers(1, 3)
_watch = st.sampled_from((None, None, *PORTS))


@st.composite
def _action_set(draw: st.DrawFn, program: Program, actions: Sequence[str]) -> ActionSet:
    calls = draw(st.lists(_call(program, actions), min_size=1, max_size=3))
    return ActionSet(tuple(WeightedAction(call, draw(_weighted), draw(_watch)) for call in calls))


_rates = st.builds(
    lambda cir, cburst, more, pburst: MeterConfig(cir, cburst, cir + more, pburst),
    st.sampled_from((0, 1, 64, 1_000, 100_000)),
    st.sampled_from((0, 1, 2, 100, 1_500)),
    st.sampled_from((0, 1, 5_000)),
    st.sampled_from((0, 1, 3, 2_000)),
)
_replicas = st.lists(st.builds(Replica, st.sampled_from((*PORTS, CPU_PORT, 510)), st.integers(0, 3)), max_size=3)


@st.composite
def _insert(draw: st.DrawFn, program: Program, name: str, table: TableSpec, one_shot: bool) -> Insert:
    match = draw(_likely_match(program, name, table))
    priority = draw(st.integers(1, 4)) if needs_priority(table.keys) else 0
    meter = draw(_rates)
    if table.profile is None:
        return Insert(
            table.name, TableEntry(match, priority, call=draw(_call(program, _usable(program, table)))), meter
        )
    if one_shot:
        action_set = draw(_action_set(program, _usable(program, table)))
        return Insert(table.name, TableEntry(match, priority, action_set=action_set), meter)
    if program.profiles[table.profile].selector and draw(st.booleans()):
        return Insert(table.name, TableEntry(match, priority, group=draw(st.sampled_from(GROUP_IDS))), meter)
    return Insert(table.name, TableEntry(match, priority, member=draw(st.sampled_from(MEMBER_IDS))), meter)


def _usable(program: Program, table: TableSpec) -> list[str]:
    return [action for action in table.actions if action in program.actions]


def _table_writes(program: Program, name: str, one_shot: bool) -> list[st.SearchStrategy[Write]]:
    writes: list[st.SearchStrategy[Write]] = []
    for table in program.tables.values():
        calls = _call(program, _usable(program, table)) if _usable(program, table) else None
        if table.keys and not table.is_const and calls is not None:
            insert = _insert(program, name, table, one_shot)
            writes += [insert, insert, insert, st.builds(Delete, st.just(table.name), st.integers(0, 9))]
        if not table.const_default and calls is not None:
            meter = st.one_of(st.none(), _rates)
            writes.append(st.builds(Default, st.just(table.name), st.one_of(st.none(), calls), meter))
    return writes


def _profile_writes(program: Program) -> list[st.SearchStrategy[Write]]:
    writes: list[st.SearchStrategy[Write]] = []
    for profile in program.profiles.values():
        tables = [table for table in program.tables.values() if table.profile == profile.name]
        actions = sorted({action for table in tables for action in _usable(program, table)})
        calls, just = _call(program, actions), st.just(profile.name)
        writes.append(st.builds(Member, just, st.sampled_from(MEMBER_IDS), calls))
        if profile.selector:
            places = st.builds(GroupMember, st.sampled_from(MEMBER_IDS), _weighted, _watch)
            members = st.lists(places, max_size=3, unique_by=lambda choice: choice.member).map(tuple)
            writes.append(st.builds(GroupWrite, just, st.builds(Group, st.sampled_from(GROUP_IDS), members)))
    return writes


def _array_writes(program: Program, name: str) -> list[st.SearchStrategy[Write]]:
    numbers = st.integers(0, 9)
    sessions = st.builds(CloneSession, _replicas.map(tuple), st.integers(0, 7), st.sampled_from((0, 0, 5, 40)))
    writes: list[st.SearchStrategy[Write]] = [
        st.builds(Copies, numbers, _replicas.map(tuple), st.none()),
        st.builds(Copies, numbers, st.just(()), sessions),
    ]
    for register in program.registers.values():
        values = _values(name, register.width)
        writes.append(st.builds(Cell, st.just(register.name), st.integers(0, register.size - 1), values))
    writes += [
        st.builds(Count, st.just(counter.name), st.integers(0, counter.size - 1), numbers)
        for counter in program.counters.values()
    ]
    for meter in program.meters.values():
        if meter.table is None:
            cells = st.integers(0, meter.size - 1)
            writes.append(st.builds(Rates, st.just(meter.name), cells, st.one_of(st.none(), _rates)))
    for value_set in program.value_sets.values():
        members = st.lists(_match(name, value_set.keys), max_size=min(3, value_set.size), unique=True).map(tuple)
        writes.append(st.builds(Members, st.just(value_set.name), members))
    return writes


@st.composite
def _any_of(draw: st.DrawFn, *strategies: st.SearchStrategy[Event]) -> Event:
    """Draw from one of `strategies`, each as likely; `one_of` would count the branches of its branches."""
    return draw(strategies[draw(st.integers(0, len(strategies) - 1))])


@st.composite
def scenarios(draw: st.DrawFn, name: str) -> list[Event]:
    """Return the events of a switch that runs a program: its tables are filled, then frames and changes follow."""
    program = load(name)
    one_shot = draw(st.booleans())
    profiles = [] if one_shot else _profile_writes(program)
    writes = _any_of(*_table_writes(program, name, one_shot), *profiles, *_array_writes(program, name))
    filled: list[Event] = [draw(write) for write in profiles for _ in range(2)]
    for table in program.tables.values():
        if table.keys and not table.is_const and _usable(program, table):
            filled += draw(st.lists(_insert(program, name, table, one_shot), max_size=5))
    filled += draw(st.lists(writes, max_size=10))
    arrival: st.SearchStrategy[Event] = st.builds(Arrival, st.sampled_from((*PORTS, CPU_PORT)), frames(name))
    pause: st.SearchStrategy[Event] = st.builds(Pause, st.sampled_from((1, 999, 20_000, 1_000_000, 3_000_000_000)))
    change: st.SearchStrategy[Event] = st.builds(PortChange, st.sampled_from(PORTS), st.booleans())
    events = st.lists(_any_of(arrival, arrival, arrival, arrival, pause, writes, change), min_size=4, max_size=30)
    return [*filled, *draw(events)]
