"""Batches that are undone when one update fails, and those that packets see whole (section 12.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from finsy.proto import p4d, p4r
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataplane.switch.p4runtime import Code, P4RuntimeCore, P4RuntimeError
from tests.examples import examples

if TYPE_CHECKING:
    from tests.dataplane.switch.p4runtime.conftest import FakeSwitch, Shell

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
ROLLBACK, ATOMIC = p4r.WriteRequest.ROLLBACK_ON_ERROR, p4r.WriteRequest.DATAPLANE_ATOMIC
DEVICE = 7
NO_SUCH = p4r.Entity(table_entry=p4r.TableEntry(table_id=77))
Update = tuple[p4r.Update.Type.ValueType, p4r.Entity]


def everything(core: P4RuntimeCore) -> list[str]:
    """Return all that can be read, as text, in an order that does not depend on when it was written."""
    counted = p4r.TableEntry(counter_data=p4r.CounterData(), meter_config=p4r.MeterConfig())
    entities = [
        p4r.Entity(table_entry=counted),
        p4r.Entity(table_entry=p4r.TableEntry(is_default_action=True)),
        p4r.Entity(action_profile_member=p4r.ActionProfileMember()),
        p4r.Entity(action_profile_group=p4r.ActionProfileGroup()),
        p4r.Entity(counter_entry=p4r.CounterEntry()),
        p4r.Entity(register_entry=p4r.RegisterEntry()),
        p4r.Entity(meter_entry=p4r.MeterEntry()),
        p4r.Entity(value_set_entry=p4r.ValueSetEntry()),
        p4r.Entity(digest_entry=p4r.DigestEntry()),
    ]
    engines = (
        p4r.PacketReplicationEngineEntry(multicast_group_entry=p4r.MulticastGroupEntry()),
        p4r.PacketReplicationEngineEntry(clone_session_entry=p4r.CloneSessionEntry()),
    )
    entities += [p4r.Entity(packet_replication_engine_entry=engine) for engine in engines]
    answers = core.read(p4r.ReadRequest(device_id=DEVICE, entities=entities))
    return sorted(str(entity) for answer in answers for entity in answer.entities)


def write(shell: Shell, atomicity: p4r.WriteRequest.Atomicity.ValueType, *updates: Update) -> list[Code]:
    """Return the code of each update; none where all succeeded."""
    request = p4r.WriteRequest(device_id=DEVICE, election_id=p4r.Uint128(low=1), atomicity=atomicity)
    request.updates.extend(p4r.Update(type=kind, entity=entity) for kind, entity in updates)
    try:
        shell.core.write(request)
    except P4RuntimeError as error:
        return [Code(detail.canonical_code) for detail in error.details]
    return []


def aging(shell: Shell, source: int, *port: int, **fields: Any) -> p4r.Entity:
    match = [p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=bytes([source])))]
    action = shell.action("forward_metered", bytes(port)) if port else shell.action("NoAction")
    return shell.entry("aging_table", match, action=action, **fields)


def exact(shell: Shell, dst: int, port: int, **fields: Any) -> p4r.Entity:
    match = [
        p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=bytes([dst]))),
        p4r.FieldMatch(field_id=2, exact=p4r.FieldMatch.Exact(value=b"\x01")),
    ]
    return shell.entry("exact_table", match, action=shell.action("forward", bytes([port])), **fields)


def grouped(shell: Shell, prefix: int, **fields: Any) -> p4r.Entity:
    lpm = p4r.FieldMatch.LPM(value=bytes([prefix]) + bytes(5), prefix_len=8)
    return shell.entry("selector_table", [p4r.FieldMatch(field_id=1, lpm=lpm)], **fields)


def replication(number: int, *ports: int, session: bool = False) -> p4r.Entity:
    replicas = [p4r.Replica(port=bytes([port])) for port in ports]
    engine = p4r.PacketReplicationEngineEntry()
    if session:
        engine.clone_session_entry.CopyFrom(p4r.CloneSessionEntry(session_id=number, replicas=replicas))
    else:
        engine.multicast_group_entry.CopyFrom(p4r.MulticastGroupEntry(multicast_group_id=number, replicas=replicas))
    return p4r.Entity(packet_replication_engine_entry=engine)


def cell(shell: Shell, what: str, index: int, value: int) -> p4r.Entity:
    at = p4r.Index(index=index)
    match what:
        case "counter":
            data = p4r.CounterData(packet_count=value, byte_count=value)
            entry = p4r.CounterEntry(counter_id=shell.id("counters", "port_counter"), index=at, data=data)
            return p4r.Entity(counter_entry=entry)
        case "register":
            bits = p4d.P4Data(bitstring=bytes([value]))
            return p4r.Entity(
                register_entry=p4r.RegisterEntry(register_id=shell.id("registers", "wide_cells"), index=at, data=bits)
            )
        case _:
            rates = p4r.MeterConfig(cir=value, cburst=value, pir=value, pburst=value)
            entry = p4r.MeterEntry(meter_id=shell.id("meters", "port_meter"), index=at, config=rates if value else None)  # type: ignore[assignment]
            return p4r.Entity(meter_entry=entry)  # type: ignore[arg-type]


def digest(shell: Shell, value: int) -> p4r.Entity:
    entry = p4r.DigestEntry(digest_id=shell.id("digests", "learned_t"))
    entry.config.max_list_size = value
    return p4r.Entity(digest_entry=entry)


def value_set(shell: Shell, *values: int) -> p4r.Entity:
    entry = p4r.ValueSetEntry(value_set_id=shell.id("value_sets", "control_types"))
    for value in values:
        exact_value = p4r.FieldMatch.Exact(value=bytes([value]))
        entry.members.add(match=[p4r.FieldMatch(field_id=1, exact=exact_value)])
    return p4r.Entity(value_set_entry=entry)


def default(shell: Shell, port: int) -> p4r.Entity:
    action = shell.action("forward", bytes([port])) if port else None
    return shell.entry("keyless", is_default_action=True, action=action, metadata=bytes([port]))


KEY, VALUE = st.integers(1, 3), st.integers(1, 4)
RATES = st.none() | st.builds(lambda value: p4r.MeterConfig(cir=value, cburst=value, pir=value, pburst=value), VALUE)
COUNTS = st.none() | st.builds(lambda value: p4r.CounterData(packet_count=value), VALUE)
Maker = Callable[["Shell", Any], p4r.Entity]


def makers(draw: Any, shell: Shell) -> p4r.Entity:
    """Return an entity of any kind, with few enough keys that updates meet."""
    key, value = draw(KEY), draw(VALUE)
    match draw(st.integers(0, 12)):
        case 0:
            return aging(shell, key, value, meter_config=draw(RATES), idle_timeout_ns=draw(st.integers(0, 2)))
        case 1:
            return exact(shell, key, value, counter_data=draw(COUNTS), metadata=bytes([value]))
        case 2:
            return default(shell, value - 1)
        case 3:
            return shell.member("ecmp", key, shell.action("forward", bytes([value])))
        case 4:
            members = [(member, 1) for member in sorted(draw(st.sets(KEY, max_size=3)))]
            return shell.group("ecmp", key, *members, max_size=4)
        case 5:
            return grouped(shell, key, **{draw(st.sampled_from(["member", "group"])): value})
        case 6 | 7:
            return replication(key, *draw(st.sets(VALUE, max_size=3)), session=draw(st.booleans()))
        case 8:
            return cell(shell, draw(st.sampled_from(["counter", "register", "meter"])), key - 1, value - 1)
        case 9:
            return value_set(shell, *draw(st.sets(VALUE, max_size=3)))
        case 10:
            return digest(shell, value)
        case 11:
            config = draw(RATES)
            meter = p4r.DirectMeterEntry(table_entry=aging(shell, key).table_entry, config=config)
            return p4r.Entity(direct_meter_entry=meter)
        case _:
            counter = p4r.DirectCounterEntry(table_entry=exact(shell, key, 1).table_entry, data=draw(COUNTS))
            return p4r.Entity(direct_counter_entry=counter)


@pytest.mark.parametrize("atomicity", [ROLLBACK, ATOMIC])
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_batch_that_fails_changes_nothing(
    shell: Shell, atomicity: p4r.WriteRequest.Atomicity.ValueType, data: st.DataObject
) -> None:
    kinds = st.sampled_from([INSERT, INSERT, MODIFY, MODIFY, DELETE])
    for _ in range(data.draw(st.integers(0, 12))):  # what the batch finds
        write(shell, p4r.WriteRequest.CONTINUE_ON_ERROR, (data.draw(kinds), makers(data.draw, shell)))
    before = everything(shell.core)
    updates: list[Update] = []
    for _ in range(data.draw(st.integers(0, 8))):
        update = (data.draw(kinds), makers(data.draw, shell))
        codes = write(shell, atomicity, *updates, update, (INSERT, NO_SUCH))
        assert everything(shell.core) == before
        assert len(codes) == len(updates) + 2
        if codes[-1] is Code.NOT_FOUND:  # all the others would do
            updates.append(update)
    assert write(shell, atomicity, *updates) == []


def test_what_was_undone_is_told_from_what_failed(shell: Shell) -> None:
    codes = write(shell, ROLLBACK, (INSERT, exact(shell, 1, 1)), (DELETE, exact(shell, 2, 1)), (INSERT, NO_SUCH))
    assert codes == [Code.ABORTED, Code.NOT_FOUND, Code.ABORTED]
    assert not shell.read(shell.entry("exact_table"))


def test_counts_and_meters_come_back_with_a_deleted_entry(shell: Shell, switch: FakeSwitch) -> None:
    rates = p4r.MeterConfig(cir=1, cburst=2, pir=3, pburst=4)
    shell.insert(aging(shell, 1, 1, meter_config=rates, idle_timeout_ns=10**9), exact(shell, 1, 1))
    assert switch.state is not None
    hit = switch.state.tables["EntitiesIngress.exact_table"].lookup((1, 1))
    assert hit is not None
    hit.count(100)
    before = everything(shell.core)
    write(shell, ROLLBACK, (DELETE, aging(shell, 1)), (DELETE, exact(shell, 1, 1)), (INSERT, NO_SUCH))
    assert everything(shell.core) == before
    assert shell.core.tick(0) == 10**9
    codes = write(shell, ROLLBACK, (MODIFY, exact(shell, 1, 2, counter_data=p4r.CounterData())), (INSERT, NO_SUCH))
    assert codes == [Code.ABORTED, Code.NOT_FOUND]
    assert everything(shell.core) == before


def test_packets_are_held_while_an_atomic_batch_is_applied(shell: Shell, switch: FakeSwitch) -> None:
    assert write(shell, ROLLBACK, (INSERT, exact(shell, 1, 1))) == []
    assert switch.pauses == []
    assert write(shell, ATOMIC, (INSERT, exact(shell, 2, 1))) == []
    assert switch.pauses == ["begin", "end"]
    assert write(shell, ATOMIC, (INSERT, exact(shell, 2, 1))) == [Code.ALREADY_EXISTS]
    assert switch.pauses == ["begin", "end"] * 2
    assert len(shell.read(shell.entry("exact_table"))) == 2


def test_other_atomicities_are_refused(shell: Shell) -> None:
    request = shell.request(INSERT, exact(shell, 1, 1))
    request.MergeFromString(b"\x28\x09")  # atomicity 9
    with pytest.raises(P4RuntimeError) as caught:
        shell.core.write(request)
    assert caught.value.code is Code.UNIMPLEMENTED
    assert not shell.read(shell.entry("exact_table"))
