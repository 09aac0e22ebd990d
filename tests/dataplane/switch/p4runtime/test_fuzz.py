"""Any input of a client raises at most P4RuntimeError, and a refused update changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from finsy.proto import p4i, p4r
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataplane.program.model import Program
from dataplane.switch.p4runtime import Code, P4RuntimeCore, P4RuntimeError
from tests.examples import examples

if TYPE_CHECKING:
    from tests.dataplane.switch.p4runtime.conftest import FakeSwitch, Shell

M = TypeVar("M", bound=Message)
DEVICE = 7
DEPTH = 7
FUZZ = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}
SMALL = st.integers(0, 5)
DATA = st.sampled_from([b"\x00", b"\x01", b"\x00\x02", b"\x0a\x00\x00\x00\x00\x00", b"\xff" * 6]) | st.binary(
    max_size=8
)


def fill(draw: Any, message: M, ids: list[int], depth: int = DEPTH) -> M:
    """Set some of a message's fields, at most one of each oneof, to values that are now and then right."""
    fields = [field for field in message.DESCRIPTOR.fields if not _is_map(field)]
    if not fields or not depth:
        return message
    for field in draw(st.lists(st.sampled_from(fields), max_size=5, unique_by=lambda field: field.number)):
        for _ in range(draw(SMALL) if field.is_repeated else 1):
            _set(draw, message, field, ids, depth)
    return message


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _set(draw: Any, message: Message, field: FieldDescriptor, ids: list[int], depth: int) -> None:
    inner: Descriptor | None = field.message_type
    if inner is not None and field.is_repeated:
        fill(draw, getattr(message, field.name).add(), ids, depth - 1)
        return
    if inner is not None:
        getattr(message, field.name).SetInParent()
        fill(draw, getattr(message, field.name), ids, depth - 1)
        return
    value = draw(_scalar(field, ids))
    if field.is_repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)


def _scalar(field: FieldDescriptor, ids: list[int]) -> st.SearchStrategy[Any]:
    if field.cpp_type in _RANGES:
        low, high = _RANGES[field.cpp_type]
        return SMALL | st.integers(low, high) | st.sampled_from([value for value in ids if low <= value <= high])
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        assert field.enum_type is not None
        return st.sampled_from([value.number for value in field.enum_type.values])
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING and field.type == FieldDescriptor.TYPE_STRING:
        return st.sampled_from(["", "other"]) | st.text(max_size=5)
    assert field.type == FieldDescriptor.TYPE_BYTES
    return DATA


def every_id(info: p4i.P4Info) -> list[int]:
    lists = (info.tables, info.actions, info.action_profiles, info.counters, info.direct_counters, info.registers)
    return [item.preamble.id for items in lists for item in items]


def refusal(call: Callable[[], object]) -> P4RuntimeError | None:
    """Return the error that the call raised, if it did; any other error fails the test."""
    try:
        call()
    except P4RuntimeError as error:
        return error
    return None


def everything(core: P4RuntimeCore) -> list[bytes]:
    entities = [
        p4r.Entity(table_entry=p4r.TableEntry(counter_data=p4r.CounterData())),
        p4r.Entity(table_entry=p4r.TableEntry(is_default_action=True)),
        p4r.Entity(action_profile_member=p4r.ActionProfileMember()),
        p4r.Entity(action_profile_group=p4r.ActionProfileGroup()),
        p4r.Entity(counter_entry=p4r.CounterEntry()),
        p4r.Entity(register_entry=p4r.RegisterEntry()),
    ]
    for kind in ("multicast_group_entry", "clone_session_entry"):
        entity = p4r.Entity()
        getattr(entity.packet_replication_engine_entry, kind).SetInParent()
        entities.append(entity)
    request = p4r.ReadRequest(device_id=DEVICE, entities=entities)
    return [entity.SerializeToString() for response in core.read(request) for entity in response.entities]


def entry_updates(draw: Any, shell: Shell, table: p4i.Table) -> p4r.Update:
    """Return an update of a table entry whose ids are all right, so that it gets past the first checks."""
    update = p4r.Update(type=draw(st.sampled_from([p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE])))
    entry = update.entity.table_entry
    entry.table_id = table.preamble.id
    entry.priority = draw(SMALL)
    for declared in table.match_fields:
        if draw(st.integers(0, 5)):
            match = entry.match.add(field_id=declared.id)
            oneof = {2: "exact", 3: "lpm", 4: "ternary", 5: "range", 6: "optional"}[declared.match_type]
            getattr(match, oneof).SetInParent()
            fill(draw, getattr(match, oneof), [0, 8, 48])
    if draw(st.integers(0, 5)):
        ref = draw(st.sampled_from(list(table.action_refs)))
        entry.action.action.action_id = ref.id
        for _ in range(draw(st.integers(0, 2))):
            entry.action.action.params.add(param_id=draw(st.integers(1, 2)), value=draw(DATA))
    return update


@FUZZ
@given(st.data())
def test_single_updates_are_all_or_nothing(shell: Shell, program: Program, data: st.DataObject) -> None:
    if data.draw(st.booleans()):
        update = entry_updates(data.draw, shell, data.draw(st.sampled_from(list(program.p4info.tables))))
    else:
        update = fill(data.draw, p4r.Update(), every_id(program.p4info))
    before = everything(shell.core)
    request = p4r.WriteRequest(device_id=DEVICE, election_id=p4r.Uint128(low=1), updates=[update])
    error = refusal(lambda: shell.core.write(request))
    after = everything(shell.core)
    if error is not None:
        assert [detail.canonical_code for detail in error.details] != [Code.OK]
        assert after == before


@FUZZ
@given(st.data())
def test_any_write(shell: Shell, program: Program, data: st.DataObject) -> None:
    request = fill(data.draw, p4r.WriteRequest(), every_id(program.p4info))
    if data.draw(st.booleans()):
        request.device_id = DEVICE
        request.election_id.CopyFrom(p4r.Uint128(low=1))
        request.role = ""
    error = refusal(lambda: shell.core.write(request))
    if error is not None:
        assert not error.details or len(error.details) == len(request.updates)
        assert len(error.to_status().details) == len(error.details)


@FUZZ
@given(st.data())
def test_any_read(shell: Shell, program: Program, data: st.DataObject) -> None:
    request = fill(data.draw, p4r.ReadRequest(), every_id(program.p4info))
    request.device_id = DEVICE
    request.role = ""
    error = refusal(lambda: [response for response in shell.core.read(request) if not response.entities])
    assert error is None or len(error.details) == len(request.entities)


@FUZZ
@given(st.data())
def test_any_stream(shell: Shell, data: st.DataObject) -> None:
    session = shell.core.open_stream(lambda message: None)
    try:
        for _ in range(data.draw(SMALL)):
            message = fill(data.draw, p4r.StreamMessageRequest(), [DEVICE])
            if message.WhichOneof("update") == "arbitration" and data.draw(st.booleans()):
                message.arbitration.device_id = DEVICE
                message.arbitration.role.Clear()
            session.handle(message)
    except P4RuntimeError:
        pass
    finally:
        session.close()


@FUZZ
@given(st.data())
def test_any_pipeline(
    shell: Shell, switch: FakeSwitch, config: p4r.ForwardingPipelineConfig, data: st.DataObject
) -> None:
    request = p4r.SetForwardingPipelineConfigRequest(device_id=DEVICE, election_id=p4r.Uint128(low=1))
    request.action = data.draw(st.sampled_from(list(p4r.SetForwardingPipelineConfigRequest.Action.values())))
    if data.draw(st.integers(0, 5)):
        request.config.p4info.CopyFrom(mutated(data.draw, config.p4info))
        request.config.p4_device_config = mutated_bytes(data.draw, config.p4_device_config)
    state = switch.state
    error = refusal(lambda: shell.core.set_pipeline(request))
    if error is not None:
        assert switch.state is state
        assert "\n" not in error.message
    everything(shell.core)


def mutated(draw: Any, info: p4i.P4Info) -> p4i.P4Info:
    """Return the P4Info, or one with a field somewhere set to something else."""
    changed = p4i.P4Info()
    changed.CopyFrom(info)
    message: Message = changed
    while draw(st.integers(0, 4)):
        held = [(field, value) for field, value in message.ListFields() if field.message_type and not _is_map(field)]
        if not held:
            break
        field, value = draw(st.sampled_from(held))
        message = draw(st.sampled_from(list(value))) if field.is_repeated else value
    if draw(st.booleans()):
        fill(draw, message, every_id(info), 2)
    return changed


def mutated_bytes(draw: Any, data: bytes) -> bytes:
    """Return the bytes, with now and then a few of them replaced."""
    if draw(st.booleans()):
        return data
    start = draw(st.integers(0, len(data)))
    inserted: bytes = draw(st.binary(max_size=4))
    return data[:start] + inserted + data[start + draw(SMALL) :]
