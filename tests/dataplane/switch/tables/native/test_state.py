"""Objects that a native state tracks besides tables: profiles, meters, value sets, counters, registers, replication."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import EntryError
from dataplane.program.objects import (
    ActionCall,
    CounterSpec,
    KeyField,
    MatchKind,
    MeterSpec,
    MeterUnit,
    ProfileSpec,
    RegisterSpec,
    TableSpec,
    ValueSetSpec,
)
from dataplane.switch.abi import MAX_CLONE_SESSIONS, Entry, MeterCell, Replicas, Tally
from dataplane.switch.tables import (
    ActionSet,
    CloneSession,
    Group,
    GroupMember,
    MeterArray,
    MeterConfig,
    Replica,
    TableEntry,
    WeightedAction,
)
from tests.dataplane.switch.tables.native.harness import (
    DROP,
    MakeBench,
    NativeBench,
    Program,
    one_table,
    send,
    table_spec,
)

KEY = (KeyField("dst", MatchKind.EXACT, 16),)
ECMP = {"ecmp": ProfileSpec("ecmp", 0, 0, selector=True)}


def grouped() -> Program:
    return Program({"t": table_spec(KEY, profile="ecmp")}, profiles=ECMP)


def chosen(bench: NativeBench, key: int, digest: int) -> ActionCall | None:
    entry = bench.find(key)
    assert entry is not None
    address = bench.select(entry, digest)
    return bench.call(Entry.from_address(address)) if address else None


def assert_same_choices(bench: NativeBench, *keys: int) -> None:
    profile = bench.state.profiles["ecmp"]
    for key in keys:
        entry = bench.table.lookup((key,))
        assert entry is not None
        for digest in (*range(12), 2**64 - 1):
            assert chosen(bench, key, digest) == profile.resolve(entry, digest)


def test_members_groups_and_action_sets_choose_like_the_profile(make: MakeBench) -> None:
    bench = make(grouped())
    profile = bench.state.profiles["ecmp"]
    for member in (1, 2, 3):
        profile.insert_member(member, send(member))
    profile.insert_group(Group(1, (GroupMember(3, 2), GroupMember(1, 3, watch_port=7))))
    profile.insert_group(Group(2))
    bench.table.insert(TableEntry((1,), member=2))
    bench.table.insert(TableEntry((2,), group=1))
    bench.table.insert(TableEntry((3,), group=2))
    assert chosen(bench, 3, 5) is None
    assert_same_choices(bench, 1, 2, 3)
    profile.modify_member(2, DROP)
    profile.modify_member(3, send(9))
    assert chosen(bench, 2, 3) == send(9)
    profile.modify_group(Group(2, (GroupMember(2), GroupMember(3))))
    assert_same_choices(bench, 1, 2, 3)
    bench.state.set_port_status(7, up=False)
    assert {chosen(bench, 2, digest) for digest in range(9)} == {send(9)}
    bench.state.set_port_status(7, up=True)
    assert_same_choices(bench, 2)
    bench.table.modify(TableEntry((2,), group=2))
    profile.delete_group(1)
    assert_same_choices(bench, 1, 2, 3)


def test_one_shots_come_change_and_go(make: MakeBench) -> None:
    bench = make(grouped())
    first = ActionSet((WeightedAction(send(1), 2, watch_port=1), WeightedAction(send(2), 3, watch_port=2)))
    bench.table.insert(TableEntry((1,), action_set=first))
    bench.table.insert(TableEntry((2,), action_set=ActionSet((WeightedAction(send(5)),))))
    assert_same_choices(bench, 1, 2)
    bench.state.set_port_status(1, up=False)
    assert {chosen(bench, 1, digest) for digest in range(9)} == {send(2)}
    bench.table.modify(TableEntry((1,), action_set=ActionSet((*first.actions, WeightedAction(DROP, 4)))))
    assert_same_choices(bench, 1, 2)
    bench.state.set_port_status(2, up=False)
    assert_same_choices(bench, 1, 2)
    bench.table.delete((1,))
    bench.native.collect()
    blocks = bench.native.blocks
    for _ in range(3):
        bench.table.insert(TableEntry((1,), action_set=first))
        assert chosen(bench, 1, 0) is None  # both ports are down
        bench.table.delete((1,))
        bench.native.collect()
    assert bench.native.blocks == blocks


def test_what_was_there_before_is_taken_over(make: MakeBench) -> None:
    program = grouped()
    bench = make(program)
    profile = bench.state.profiles["ecmp"]
    profile.insert_member(1, send(4))
    profile.insert_group(Group(1, (GroupMember(1),)))
    bench.table.insert(TableEntry((1,), group=1))
    bench.state.multicast_groups[5] = (Replica(1),)
    bench.native.release()
    bench.attach()
    assert chosen(bench, 1, 0) == send(4)
    assert replicas(bench.machine.groups[5]) == (0, 0, [(1, 0)])


def test_direct_counters_and_meters_are_one_memory(make: MakeBench) -> None:
    meter = MeterSpec("rates", 0, MeterUnit.PACKETS, table="t")
    table = table_spec(KEY, direct_counter="hits", direct_meter="rates", idle_timeout=True)
    bench = make(Program({"t": table}, meters={"rates": meter}))
    bench.insert(1)
    entry, native = bench.table.get((1,)), bench.find(1)
    assert entry is not None
    assert native is not None
    tally = Tally.from_address(native.tally)
    tally.packets, tally.bytes, tally.last_hit_us = 3, 200, 17
    assert (entry.packets, entry.bytes, entry.last_hit_us) == (3, 200, 17)
    bench.table.write_meter((1,), 0, MeterConfig(0, 1, 0, 2))
    assert [bench.charge(native.meter, 5, 64) for _ in range(3)] == [0, 1, 2]
    bench.table.modify(TableEntry((1,), call=DROP))
    changed = bench.find(1)
    assert changed is not None
    assert (changed.tally, changed.meter) == (native.tally, native.meter)
    assert bench.machine.meters[0] == 0


rates = st.integers(0, 2**40) | st.integers(0, 3) | st.just(2**63 - 1)


@given(
    config=st.tuples(rates, rates, rates, rates),
    unit=st.sampled_from(MeterUnit),
    packets=st.lists(st.tuples(st.integers(0, 3) | st.integers(0, 2**50), st.integers(0, 9000)), max_size=20),
)
def test_native_meters_give_the_same_colours(
    config: tuple[int, int, int, int], unit: MeterUnit, packets: list[tuple[int, int]]
) -> None:
    cir, cburst, pir, pburst = config
    bench = NativeBench(Program({}, meters={"m": MeterSpec("m", 2, unit)}))
    native, reference = bench.state.meters["m"], MeterArray(MeterSpec("m", 2, unit))
    for meter in (native, reference):
        meter.write(1, MeterConfig(min(cir, pir), cburst, max(cir, pir), pburst))
    cell = bench.machine.meters[0] + ctypes.sizeof(MeterCell)
    now_us = 0
    for step, nbytes in packets:
        now_us = (now_us + step) % 2**60  # it may also go back
        assert bench.charge(cell, now_us, nbytes) == reference.execute(1, nbytes, now_us)
    assert list(native.cells) == list(reference.cells)
    bench.release()


def test_a_native_bucket_is_full_when_it_is_and_not_before(make: MakeBench) -> None:
    bench = make(Program({}, meters={"m": MeterSpec("m", 1, MeterUnit.PACKETS)}))
    bench.state.meters["m"].write(0, MeterConfig(3, 1, 3, 1))
    times = (0, 333_333, 333_334)  # three tokens a second: 999,999 millionths of one, then all of it
    assert [bench.charge(bench.machine.meters[0], now_us, 64) for now_us in times] == [0, 2, 0]


def test_counters_and_registers_are_one_memory(make: MakeBench) -> None:
    registers = {"narrow": RegisterSpec("narrow", 3, 9), "wide": RegisterSpec("wide", 2, 100)}
    bench = make(Program({}, counters={"c": CounterSpec("c", 2)}, registers=registers))
    words = (ctypes.c_uint64 * 4).from_address(bench.machine.counters[0])
    words[2], words[3] = 5, 600
    assert bench.state.counters["c"].read(1) == (5, 600)
    (ctypes.c_uint64 * 3).from_address(bench.machine.registers[0])[2] = 7
    assert bench.state.registers["narrow"] == [0, 0, 7]
    bench.state.registers["wide"][1] = 3 << 64 | 4
    assert list((ctypes.c_uint64 * 4).from_address(bench.machine.registers[1])) == [0, 0, 4, 3]


def test_value_sets_change_as_one(make: MakeBench) -> None:
    keys = (KeyField("type", MatchKind.TERNARY, 16), KeyField("port", MatchKind.RANGE, 70))
    bench = make(Program({}, value_sets={"s": ValueSetSpec("s", 3, keys)}))
    value_set = bench.state.value_sets["s"]

    def has(first: int, second: int) -> bool:
        words = (ctypes.c_uint64 * 3)(first, second & 2**64 - 1, second >> 64)
        native = bool(bench.member_of(bench.machine.value_sets[0], words))
        assert native is value_set.contains((first, second))
        return native

    assert not has(0x800, 5)
    value_set.replace([((0x800, 0xFFFF), (3, 2**66)), ((0, 0), (1, 1))])
    assert [has(0x800, 5), has(0x800, 2**66 + 1), has(7, 1), has(7, 2)] == [True, False, True, False]
    bench.machine.epoch = 1
    seen = bench.machine.value_sets[0]
    value_set.replace([])
    assert not has(0x800, 5)
    assert bench.member_of(seen, (ctypes.c_uint64 * 3)(0x800, 5, 0))  # a packet that is under way
    bench.machine.epoch = 2
    assert bench.native.collect() == 0


def replicas(address: int) -> tuple[int, int, list[tuple[int, int]]] | None:
    if not address:
        return None
    native = Replicas.from_address(address)
    pairs = [(native.ports[index], native.instances[index]) for index in range(native.count)]
    return native.class_of_service, native.packet_length, pairs


def test_groups_and_sessions_are_followed(make: MakeBench) -> None:
    bench = make(Program({}))
    groups, sessions = bench.machine.groups, bench.machine.sessions
    bench.state.multicast_groups[1] = (Replica(1, 9), Replica(511, 65535))
    bench.state.clone_sessions.update({3: CloneSession((Replica(2),), 5, 128)})
    assert replicas(groups[1]) == (0, 0, [(1, 9), (511, 65535)])
    assert replicas(sessions[3]) == (5, 128, [(2, 0)])
    bench.state.multicast_groups[1] = ()
    assert replicas(groups[1]) == (0, 0, [])
    del bench.state.multicast_groups[1]
    bench.state.clone_sessions.clear()
    assert replicas(groups[1]) is None
    assert replicas(sessions[3]) is None
    with pytest.raises(EntryError, match=r"clone session 32768: its number is not in 0\.\.32767"):
        bench.state.clone_sessions[MAX_CLONE_SESSIONS] = CloneSession(())
    assert not bench.state.clone_sessions


def test_after_release_the_state_goes_on_alone(make: MakeBench) -> None:
    tables: Mapping[str, TableSpec] = {"t": table_spec(KEY, profile="ecmp")}
    values = {"s": ValueSetSpec("s", 3, KEY)}
    meters = {"m": MeterSpec("m", 1, MeterUnit.BYTES)}
    bench = make(Program(tables, ECMP, value_sets=values, meters=meters))
    bench.native.release()
    bench.state.profiles["ecmp"].insert_member(1, DROP)
    bench.table.insert(TableEntry((1,), member=1))
    bench.state.value_sets["s"].replace([(1,)])
    bench.state.meters["m"].write(0, MeterConfig(1, 2, 3, 4))
    bench.state.multicast_groups[1] = ()
    assert bench.native.blocks == 0


def test_two_native_sides_of_one_state(make: MakeBench) -> None:
    bench = make(one_table(KEY))
    bench.insert(1, port=3)
    before: Any = bench.native
    bench.attach()
    bench.insert(2, port=4)
    before.release()
    assert before.blocks == 0
    assert (bench.hit(1), bench.hit(2)) == (send(3), send(4))
    bench.table.delete((1,))
    assert bench.hit(1) is None
