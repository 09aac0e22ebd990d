"""Members, groups, one-shot action sets, counters, registers, multicast groups and clone sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from finsy.proto import p4d, p4r

from dataplane.switch.p4runtime import Code, P4RuntimeError
from dataplane.switch.tables import CloneSession, CounterArray, Replica

if TYPE_CHECKING:
    from tests.dataplane.switch.p4runtime.conftest import FakeSwitch, Shell

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
PREFIX = [p4r.FieldMatch(field_id=1, lpm=p4r.FieldMatch.LPM(value=b"\x0a\x00\x00\x00\x00\x00", prefix_len=8))]
EXACT = [p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\x01"))]


def one_shot(shell: Shell, *weights: int, watch_port: bytes = b"") -> p4r.Entity:
    entity = shell.entry("selector_table", PREFIX)
    for port, weight in enumerate(weights, 1):
        action = shell.action("forward", bytes([port]))
        action_set = entity.table_entry.action.action_profile_action_set
        action_set.action_profile_actions.add(action=action, weight=weight, watch_port=watch_port or None)
    return entity


def group_entity(group_id: int, *replicas: p4r.Replica, metadata: bytes = b"") -> p4r.Entity:
    entry = p4r.MulticastGroupEntry(multicast_group_id=group_id, replicas=replicas, metadata=metadata)
    return p4r.Entity(packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(multicast_group_entry=entry))


def session_entity(session_id: int, *replicas: p4r.Replica, cos: int = 0, length: int = 0) -> p4r.Entity:
    entry = p4r.CloneSessionEntry(
        session_id=session_id, replicas=replicas, class_of_service=cos, packet_length_bytes=length
    )
    return p4r.Entity(packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(clone_session_entry=entry))


def test_counters_are_read_under_the_lock(shell: Shell, switch: FakeSwitch, monkeypatch: pytest.MonkeyPatch) -> None:
    state = switch.state
    assert state is not None
    owned: list[bool] = []
    read = CounterArray.read

    def observe(counter: CounterArray, index: int) -> tuple[int, int]:
        owned.append(state.lock._is_owned())  # type: ignore[attr-defined]  # what threading.Condition asks, too
        return read(counter, index)

    monkeypatch.setattr(CounterArray, "read", observe)
    assert len(shell.read(p4r.Entity(counter_entry=p4r.CounterEntry()))) == 8
    assert owned == [True] * 8


def test_members_groups_and_the_entries_over_them(shell: Shell, switch: FakeSwitch) -> None:
    members = [shell.member("ecmp", number, shell.action("forward", bytes([number]))) for number in (1, 2)]
    group = shell.group("ecmp", 1, (1, 1), (2, 3), max_size=4)
    entry = shell.entry("selector_table", PREFIX, group=1)
    shell.insert(*members)
    shell.insert(group)
    shell.insert(entry)
    assert shell.read(shell.member("ecmp", 0)) == members
    assert shell.read(shell.member("ecmp", 2)) == members[1:]
    assert shell.read(p4r.Entity(action_profile_group=p4r.ActionProfileGroup())) == [group]
    assert shell.read(shell.entry("selector_table")) == [entry]
    assert switch.state is not None
    hit = switch.state.tables["EntitiesIngress.selector_table"].lookup((0x0A1111111111,))
    assert hit is not None
    call = switch.state.profiles["EntitiesIngress.ecmp"].resolve(hit, 1)
    assert call is not None
    assert call.arguments == (2,)
    for entity in (shell.member("ecmp", 1), shell.group("ecmp", 1)):
        assert shell.refusal(DELETE, entity) is Code.FAILED_PRECONDITION
    shell.delete(entry)
    shell.delete(group)
    shell.delete(*members)
    assert not shell.read(p4r.Entity(action_profile_member=p4r.ActionProfileMember()))


def test_refused_members(shell: Shell) -> None:
    forward = shell.action("forward", b"\x01")
    shell.insert(shell.member("ecmp", 1, forward))
    refused = [
        (INSERT, shell.member("ecmp", 1, forward), Code.ALREADY_EXISTS),
        (INSERT, shell.member("ecmp", 0, forward), Code.INVALID_ARGUMENT),
        (INSERT, shell.member("ecmp", 2), Code.INVALID_ARGUMENT),
        (INSERT, shell.member("ecmp", 2, shell.action("NoAction")), Code.INVALID_ARGUMENT),
        (INSERT, shell.member("ecmp", 2, shell.action("forward", b"\xff\xff")), Code.OUT_OF_RANGE),
        (MODIFY, shell.member("ecmp", 2, forward), Code.NOT_FOUND),
        (MODIFY, shell.member("ecmp", 1), Code.INVALID_ARGUMENT),
        (DELETE, shell.member("ecmp", 2), Code.NOT_FOUND),
        (INSERT, p4r.Entity(action_profile_member=p4r.ActionProfileMember(action_profile_id=9)), Code.NOT_FOUND),
        (INSERT, p4r.Entity(action_profile_member=p4r.ActionProfileMember()), Code.INVALID_ARGUMENT),
    ]
    for kind, entity, code in refused:
        assert shell.refusal(kind, entity) is code
    shell.insert(*(shell.member("next_hops", number, forward) for number in range(1, 9)))
    assert shell.refusal(INSERT, shell.member("next_hops", 9, forward)) is Code.RESOURCE_EXHAUSTED


def test_group_without_max_size_may_fill_the_programs_size(shell: Shell) -> None:
    shell.insert(shell.member("ecmp", 1, shell.action("forward", b"\x01")), shell.group("ecmp", 1, (1, 4)))
    assert shell.read(shell.group("ecmp", 1)) == [shell.group("ecmp", 1, (1, 4))]
    assert shell.refusal(MODIFY, shell.group("ecmp", 1, (1, 5))) is Code.RESOURCE_EXHAUSTED


def test_refused_groups(shell: Shell) -> None:
    shell.insert(shell.member("ecmp", 1, shell.action("forward", b"\x01")))
    shell.insert(shell.group("ecmp", 1, (1, 1), max_size=4))
    watched = shell.group("ecmp", 2, (1, 1), max_size=4)
    watched.action_profile_group.members[0].watch_port = b"\x63"
    refused = [
        (INSERT, shell.group("ecmp", 1, max_size=4), Code.ALREADY_EXISTS),
        (INSERT, shell.group("ecmp", 0, max_size=4), Code.INVALID_ARGUMENT),
        (INSERT, shell.group("ecmp", 2, (9, 1), max_size=4), Code.NOT_FOUND),
        (INSERT, shell.group("ecmp", 2, (1, 0), max_size=4), Code.INVALID_ARGUMENT),
        (INSERT, shell.group("ecmp", 2, (1, 1), (1, 1), max_size=4), Code.INVALID_ARGUMENT),
        (INSERT, shell.group("ecmp", 2, (1, 5), max_size=4), Code.RESOURCE_EXHAUSTED),
        (INSERT, shell.group("ecmp", 2, max_size=5), Code.INVALID_ARGUMENT),
        (INSERT, shell.group("ecmp", 2, (1, 5), max_size=0), Code.RESOURCE_EXHAUSTED),
        (INSERT, watched, Code.INVALID_ARGUMENT),
        (INSERT, shell.group("next_hops", 2), Code.INVALID_ARGUMENT),
        (MODIFY, shell.group("ecmp", 1, max_size=3), Code.INVALID_ARGUMENT),
        (MODIFY, shell.group("ecmp", 2, max_size=4), Code.NOT_FOUND),
        (DELETE, shell.group("ecmp", 2), Code.NOT_FOUND),
        (INSERT, shell.entry("selector_table", PREFIX, group=9), Code.NOT_FOUND),
        (INSERT, shell.entry("selector_table", PREFIX, member=9), Code.NOT_FOUND),
        (INSERT, shell.entry("selector_table", PREFIX, member=0), Code.INVALID_ARGUMENT),
        (INSERT, shell.entry("selector_table", PREFIX, action=shell.action("drop")), Code.INVALID_ARGUMENT),
        (INSERT, shell.entry("profile_table", EXACT, group=1), Code.INVALID_ARGUMENT),
    ]
    for kind, entity, code in refused:
        assert shell.refusal(kind, entity) is code, entity


def test_one_shot_action_sets_read_back_as_written(shell: Shell) -> None:
    entity = one_shot(shell, 1, 1, 2)
    shell.insert(entity)
    assert shell.read(shell.entry("selector_table")) == [entity]
    shell.modify(one_shot(shell, 2))
    assert shell.read(shell.entry("selector_table")) == [one_shot(shell, 2)]
    member = shell.member("ecmp", 1, shell.action("forward", b"\x01"))
    assert shell.refusal(INSERT, member) is Code.INVALID_ARGUMENT


def test_refused_action_sets(shell: Shell) -> None:
    mode = one_shot(shell, 1)
    mode.table_entry.action.action_profile_action_set.action_selection_mode = p4r.ActionProfileActionSet.RANDOM
    for entity, code in (
        (one_shot(shell, 0), Code.INVALID_ARGUMENT),
        (one_shot(shell, 5), Code.INVALID_ARGUMENT),
        (one_shot(shell, 1, watch_port=b"\x63"), Code.INVALID_ARGUMENT),
        (mode, Code.UNIMPLEMENTED),
    ):
        assert shell.refusal(INSERT, entity) is code
    assert not shell.read(shell.entry("selector_table"))


def counter(shell: Shell, index: int | None, packets: int | None = None) -> p4r.Entity:
    entry = p4r.CounterEntry(counter_id=shell.id("counters", "port_counter"))
    if index is not None:
        entry.index.index = index
    if packets is not None:
        entry.data.packet_count = packets
    return p4r.Entity(counter_entry=entry)


def test_counters(shell: Shell, switch: FakeSwitch) -> None:
    assert switch.state is not None
    switch.state.counters["EntitiesIngress.port_counter"].count(3, 64)
    (entity,) = shell.read(counter(shell, 3))
    assert entity.counter_entry.data == p4r.CounterData(packet_count=1, byte_count=64)
    assert len(shell.read(counter(shell, None))) == 8
    assert len(shell.read(p4r.Entity(counter_entry=p4r.CounterEntry()))) == 8
    shell.modify(counter(shell, 3, 9))
    shell.modify(counter(shell, 3))
    assert shell.read(counter(shell, 3)) == [counter(shell, 3, 9)]
    shell.modify(counter(shell, None, 4))
    assert [entity.counter_entry.data.packet_count for entity in shell.read(counter(shell, None))] == [4] * 8


def test_refused_counters(shell: Shell) -> None:
    for kind in (INSERT, DELETE):
        assert shell.refusal(kind, counter(shell, 1, 1)) is Code.INVALID_ARGUMENT
    for index, packets, code in (
        (-1, 1, Code.INVALID_ARGUMENT),
        (8, 1, Code.OUT_OF_RANGE),
        (0, -1, Code.INVALID_ARGUMENT),
    ):
        assert shell.refusal(MODIFY, counter(shell, index, packets)) is code
    assert shell.read_refusal(counter(shell, 8)) is Code.OUT_OF_RANGE
    assert shell.read_refusal(p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=5))) is Code.NOT_FOUND
    assert shell.refusal(MODIFY, p4r.Entity(counter_entry=p4r.CounterEntry())) is Code.INVALID_ARGUMENT


def test_counts_beyond_an_int64_wrap(shell: Shell, switch: FakeSwitch) -> None:
    assert switch.state is not None
    switch.state.counters["EntitiesIngress.port_counter"].bytes[0] = (1 << 63) + 5
    (entity,) = shell.read(counter(shell, 0))
    assert entity.counter_entry.data.byte_count == 5


def cell(shell: Shell, name: str, index: int | None, data: bytes | None = None) -> p4r.Entity:
    entry = p4r.RegisterEntry(register_id=shell.id("registers", name))
    if index is not None:
        entry.index.index = index
    if data is not None:
        entry.data.bitstring = data
    return p4r.Entity(register_entry=entry)


def test_registers(shell: Shell, switch: FakeSwitch) -> None:
    shell.modify(cell(shell, "cells", 1, b"\x01\x00"))
    assert shell.read(cell(shell, "cells", 1)) == [cell(shell, "cells", 1, b"\x01\x00")]
    shell.modify(cell(shell, "signed_cells", None, b"\xff"))
    assert switch.state is not None
    assert switch.state.registers["EntitiesIngress.signed_cells"] == [0xFFFF] * 4
    assert shell.read(cell(shell, "signed_cells", 0)) == [cell(shell, "signed_cells", 0, b"\xff")]
    assert len(shell.read(p4r.Entity(register_entry=p4r.RegisterEntry()))) == 10


def test_refused_registers(shell: Shell) -> None:
    wrong = cell(shell, "cells", 0)
    wrong.register_entry.data.CopyFrom(p4d.P4Data(bool=True))
    for kind, entity, code in (
        (INSERT, cell(shell, "cells", 0, b"\x01"), Code.INVALID_ARGUMENT),
        (MODIFY, cell(shell, "cells", 4, b"\x01"), Code.OUT_OF_RANGE),
        (MODIFY, cell(shell, "cells", -1, b"\x01"), Code.INVALID_ARGUMENT),
        (MODIFY, cell(shell, "cells", 0), Code.INVALID_ARGUMENT),
        (MODIFY, cell(shell, "cells", 0, b""), Code.OUT_OF_RANGE),
        (MODIFY, cell(shell, "cells", 0, b"\x01" + bytes(4)), Code.OUT_OF_RANGE),
        (MODIFY, cell(shell, "signed_cells", 0, b"\x00\x80\x00"), Code.OUT_OF_RANGE),
        (MODIFY, wrong, Code.INVALID_ARGUMENT),
    ):
        assert shell.refusal(kind, entity) is code
    assert shell.read_refusal(cell(shell, "cells", 9)) is Code.OUT_OF_RANGE


def test_multicast_groups_keep_the_form_they_were_written_in(shell: Shell, switch: FakeSwitch) -> None:
    old = group_entity(1, p4r.Replica(egress_port=1), p4r.Replica(egress_port=2, instance=7), metadata=b"m")
    new = group_entity(2, p4r.Replica(port=b"\x01\x00"))
    shell.insert(old, new)
    assert switch.state is not None
    assert switch.state.multicast_groups == {1: (Replica(1, 0), Replica(2, 7)), 2: (Replica(256),)}
    assert shell.read(group_entity(0)) == [old, new]
    assert shell.read(group_entity(2)) == [new]
    shell.modify(group_entity(1, p4r.Replica(port=b"\x00\x00\x03")))
    assert shell.read(group_entity(1)) == [group_entity(1, p4r.Replica(port=b"\x03"))]
    shell.delete(group_entity(1), group_entity(2))
    assert not shell.read(group_entity(0))
    assert not switch.state.multicast_groups


def test_clone_sessions(shell: Shell, switch: FakeSwitch) -> None:
    session = session_entity(250, p4r.Replica(port=b"\x05", instance=1), cos=3, length=128)
    shell.insert(session)
    assert switch.state is not None
    assert switch.state.clone_sessions == {250: CloneSession((Replica(5, 1),), 3, 128)}
    assert shell.read(session_entity(0)) == [session]
    shell.modify(session_entity(250, p4r.Replica(port=b"\x06")))
    assert switch.state.clone_sessions == {250: CloneSession((Replica(6),))}
    shell.delete(session_entity(250))
    assert not shell.read(session_entity(0))


def test_sessions_that_the_switch_made_itself_are_read_too(shell: Shell, switch: FakeSwitch) -> None:
    assert switch.state is not None
    switch.state.clone_sessions[3] = CloneSession((Replica(5, 1),), 2)
    switch.state.multicast_groups[4] = (Replica(1),)
    assert shell.read(session_entity(3)) == [session_entity(3, p4r.Replica(port=b"\x05", instance=1), cos=2)]
    assert shell.read(group_entity(4)) == [group_entity(4, p4r.Replica(port=b"\x01"))]


@pytest.mark.parametrize("make", [group_entity, session_entity])
def test_refused_replication(shell: Shell, make: Callable[..., p4r.Entity]) -> None:
    replica = p4r.Replica(port=b"\x01")
    backup = p4r.Replica(port=b"\x01")
    backup.backup_replicas.add(port=b"\x01", instance=2)
    twice = p4r.Replica(port=b"\x01")
    twice.backup_replicas.add(port=b"\x02")
    shell.insert(make(1, replica))
    for kind, entity, code in (
        (INSERT, make(1, replica), Code.ALREADY_EXISTS),
        (INSERT, make(0, replica), Code.INVALID_ARGUMENT),
        (INSERT, make(1 << 16, replica), Code.INVALID_ARGUMENT),
        (MODIFY, make(2, replica), Code.NOT_FOUND),
        (DELETE, make(2), Code.NOT_FOUND),
        (INSERT, make(2, replica, replica), Code.INVALID_ARGUMENT),
        (INSERT, make(2, p4r.Replica()), Code.INVALID_ARGUMENT),
        (INSERT, make(2, p4r.Replica(port=b"")), Code.OUT_OF_RANGE),
        (INSERT, make(2, p4r.Replica(port=b"\x02\x00")), Code.OUT_OF_RANGE),
        (INSERT, make(2, p4r.Replica(egress_port=512)), Code.INVALID_ARGUMENT),
        (INSERT, make(2, p4r.Replica(port=b"\x01", instance=1 << 16)), Code.INVALID_ARGUMENT),
        (INSERT, make(2, backup), Code.INVALID_ARGUMENT),
        (INSERT, make(2, twice, p4r.Replica(port=b"\x02")), Code.INVALID_ARGUMENT),
    ):
        assert shell.refusal(kind, entity) is code
    assert shell.read(make(0)) == [make(1, replica)]


def test_refused_sessions(shell: Shell) -> None:
    for entity in (session_entity(1, cos=8), session_entity(1, length=-1), session_entity(1, length=1 << 16)):
        assert shell.refusal(INSERT, entity) is Code.INVALID_ARGUMENT
    empty = p4r.Entity(packet_replication_engine_entry=p4r.PacketReplicationEngineEntry())
    assert shell.refusal(INSERT, empty) is Code.INVALID_ARGUMENT
    assert shell.read_refusal(empty) is Code.INVALID_ARGUMENT


def test_externs_are_refused_by_number(shell: Shell) -> None:
    assert shell.read(p4r.Entity(extern_entry=p4r.ExternEntry())) == []
    extern = p4r.Entity(extern_entry=p4r.ExternEntry(extern_type_id=0x81))
    for kind in (INSERT, MODIFY, DELETE):
        assert shell.refusal(kind, extern) is Code.UNIMPLEMENTED
    assert shell.read_refusal(extern) is Code.UNIMPLEMENTED
    with pytest.raises(P4RuntimeError, match="extern type 0x00000081"):
        shell.read(extern)


def test_wide_registers(shell: Shell, switch: FakeSwitch) -> None:
    value = bytes(range(1, 26))
    shell.modify(cell(shell, "wide_cells", 1, value))
    assert shell.read(cell(shell, "wide_cells", 1)) == [cell(shell, "wide_cells", 1, value)]
    assert switch.state is not None
    assert switch.state.registers["EntitiesIngress.wide_cells"][1] == int.from_bytes(value, "big")
    assert shell.refusal(MODIFY, cell(shell, "wide_cells", 0, b"\x01" + bytes(25))) is Code.OUT_OF_RANGE


@pytest.mark.parametrize("atomicity", [p4r.WriteRequest.CONTINUE_ON_ERROR, p4r.WriteRequest.ROLLBACK_ON_ERROR])
def test_packets_wait_while_a_register_is_written(
    shell: Shell, switch: FakeSwitch, atomicity: p4r.WriteRequest.Atomicity.ValueType
) -> None:
    """A packet that reads the cell before the controller's write, and writes after it, would undo it."""
    assert switch.state is not None
    cells = switch.state.registers["EntitiesIngress.cells"]
    seen: list[tuple[str, list[int]]] = []
    switch.on_pause = lambda what: seen.append((what, list(cells)))
    request = shell.request(p4r.Update.MODIFY, cell(shell, "cells", 1, b"\x07"), cell(shell, "cells", 2, b"\x08"))
    request.atomicity = atomicity
    shell.core.write(request)
    assert seen == [("begin", [0, 0, 0, 0]), ("end", [0, 7, 8, 0])]
    shell.read(cell(shell, "cells", None))
    assert len(seen) == 2
    shell.read(cell(shell, "wide_cells", None))
    assert len(seen) == 4


def value_set(shell: Shell, *values: int) -> p4r.Entity:
    entry = p4r.ValueSetEntry(value_set_id=shell.id("value_sets", "control_types"))
    for value in values:
        exact = p4r.FieldMatch.Exact(value=value.to_bytes(2, "big").lstrip(b"\0") or b"\0")
        entry.members.add(match=[p4r.FieldMatch(field_id=1, exact=exact)])
    return p4r.Entity(value_set_entry=entry)


def test_value_sets(shell: Shell, switch: FakeSwitch) -> None:
    assert shell.read(value_set(shell)) == [value_set(shell)]
    shell.modify(value_set(shell, 0x88CC, 5))
    assert switch.state is not None
    held = switch.state.value_sets["EntitiesParser.control_types"]
    assert held.contains((0x88CC,))
    assert not held.contains((6,))
    assert shell.read(p4r.Entity(value_set_entry=p4r.ValueSetEntry())) == [value_set(shell, 0x88CC, 5)]
    shell.modify(value_set(shell))
    assert not held.contains((5,))


def test_refused_value_sets(shell: Shell) -> None:
    shell.modify(value_set(shell, 9))
    wide, missing = value_set(shell, 1), value_set(shell, 1)
    wide.value_set_entry.members[0].match[0].exact.value = b"\x01\x00\x00"
    missing.value_set_entry.members[0].ClearField("match")
    for kind, entity, code in (
        (INSERT, value_set(shell, 1), Code.INVALID_ARGUMENT),
        (DELETE, value_set(shell), Code.INVALID_ARGUMENT),
        (MODIFY, value_set(shell, 1, 1), Code.ALREADY_EXISTS),
        (MODIFY, value_set(shell, 1, 2, 3, 4, 5), Code.RESOURCE_EXHAUSTED),
        (MODIFY, wide, Code.OUT_OF_RANGE),
        (MODIFY, missing, Code.INVALID_ARGUMENT),
        (MODIFY, p4r.Entity(value_set_entry=p4r.ValueSetEntry(value_set_id=3)), Code.NOT_FOUND),
        (MODIFY, p4r.Entity(value_set_entry=p4r.ValueSetEntry()), Code.INVALID_ARGUMENT),
    ):
        assert shell.refusal(kind, entity) is code
    assert shell.read(value_set(shell)) == [value_set(shell, 9)]
    assert shell.read_refusal(p4r.Entity(value_set_entry=p4r.ValueSetEntry(value_set_id=3))) is Code.NOT_FOUND
