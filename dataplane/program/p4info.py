"""Reads P4Info (p4runtime.proto's p4.config.v1.P4Info), text, JSON or binary, and derives how tables should look."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection
from dataclasses import dataclass

from finsy.proto import p4i
from google.protobuf import json_format, text_format
from google.protobuf.message import DecodeError

from dataplane.errors import ProgramError
from dataplane.program.objects import ActionCall, ActionSpec, KeyField, MatchKind, MeterSpec, MeterUnit, ValueSetSpec
from dataplane.program.p4info_check import check_p4info

_KINDS = {
    p4i.MatchField.EXACT: MatchKind.EXACT,
    p4i.MatchField.LPM: MatchKind.LPM,
    p4i.MatchField.TERNARY: MatchKind.TERNARY,
    p4i.MatchField.RANGE: MatchKind.RANGE,
    p4i.MatchField.OPTIONAL: MatchKind.OPTIONAL,
}


@dataclass(frozen=True, slots=True)
class DeclaredTable:
    """A table as the P4Info declares it; only the JSON has the width of a key field of width 0.

    Such a field is an enum or error, or has a type that P4Runtime translates to another width.
    """

    name: str
    keys: tuple[KeyField, ...]
    actions: tuple[str, ...]
    size: int
    is_const: bool
    default: ActionCall | None
    const_default: bool
    idle_timeout: bool


def is_translated(type_name: str, info: p4i.P4Info) -> bool:
    """Return whether a type's width for the control plane is that of its @p4runtime_translation."""
    types = info.type_info.new_types
    return type_name in types and types[type_name].HasField("translated_type")


def read_p4info(data: bytes, file: str) -> p4i.P4Info:
    """Return the P4Info in `data`: text, JSON or binary; raise ProgramError if it is none, or not supported."""
    info = p4i.P4Info()
    try:
        if data.lstrip().startswith(b"{"):  # no text or binary P4Info does
            json_format.Parse(data, info)
            return _checked(info, file)
        with warnings.catch_warnings():
            # Python warns of unknown escapes; protobuf's reading of them is checked like the rest.
            warnings.simplefilter("ignore", DeprecationWarning)
            text_format.Parse(data.decode("utf-8"), info)
    except (UnicodeDecodeError, text_format.ParseError) as text_error:
        try:
            info = p4i.P4Info.FromString(data)
        except DecodeError:
            raise ProgramError(f"is not a P4Info: {str(text_error).splitlines()[0]}", file=file) from text_error
    except (json_format.ParseError, json.JSONDecodeError) as error:
        raise ProgramError(f"is not a P4Info in JSON: {str(error).splitlines()[0]}", file=file) from error
    except RecursionError as error:
        raise ProgramError("is not a P4Info: nested too deeply", file=file) from error
    return _checked(info, file)


def _checked(info: p4i.P4Info, file: str) -> p4i.P4Info:
    _refuse_unsupported(info, file)
    check_p4info(info, file)
    return info


def declared_actions(info: p4i.P4Info) -> dict[int, ActionSpec]:
    """Return the actions of a P4Info by id."""
    return {
        action.preamble.id: ActionSpec(
            action.preamble.name, tuple((parameter.name, parameter.bitwidth) for parameter in action.params)
        )
        for action in info.actions
    }


def declared_tables(info: p4i.P4Info, file: str) -> dict[str, DeclaredTable]:
    """Return the tables of a P4Info by name; raise ProgramError for an unknown id or match kind."""
    actions = declared_actions(info)
    tables: dict[str, DeclaredTable] = {}
    for table in info.tables:
        name = table.preamble.name
        if name in tables:
            raise ProgramError("is declared twice", file=file, construct=f"table {name}")
        unknown = [ref.id for ref in table.action_refs if ref.id not in actions]
        if unknown:
            raise ProgramError(f"has no action with id {unknown[0]}", file=file, construct=f"table {name}")
        tables[name] = DeclaredTable(
            name,
            tuple(_key(field, info, f"table {name}", file) for field in table.match_fields),
            tuple(actions[ref.id].name for ref in table.action_refs),
            table.size,
            table.is_const_table,
            _default(table, actions),
            table.const_default_action_id != 0,
            table.idle_timeout_behavior == p4i.Table.NOTIFY_CONTROL,
        )
    return tables


def declared_meters(info: p4i.P4Info) -> dict[str, MeterSpec]:
    """Return the meters of a P4Info by name, direct ones with the name of their table."""
    tables = {table.preamble.id: table.preamble.name for table in info.tables}
    meters = {
        meter.preamble.name: MeterSpec(meter.preamble.name, meter.size, _unit(meter.spec)) for meter in info.meters
    }
    for meter in info.direct_meters:
        name = meter.preamble.name
        meters[name] = MeterSpec(name, 0, _unit(meter.spec), tables.get(meter.direct_table_id, ""))
    return meters


def declared_value_sets(info: p4i.P4Info, file: str) -> dict[str, ValueSetSpec]:
    """Return the parser value sets of a P4Info by name; raise ProgramError for an unknown match kind."""
    sets: dict[str, ValueSetSpec] = {}
    for item in info.value_sets:
        name = item.preamble.name
        sets[name] = ValueSetSpec(
            name, item.size, tuple(_key(field, info, f"value set {name}", file) for field in item.match)
        )
    return sets


def declared_digests(info: p4i.P4Info) -> dict[str, tuple[str, ...]]:
    """Return the digests of a P4Info by name, with the names of their fields if they have any."""
    structs = info.type_info.structs
    return {
        digest.preamble.name: tuple(member.name for member in structs[digest.type_spec.struct.name].members)
        if digest.type_spec.HasField("struct") and digest.type_spec.struct.name in structs
        else ()
        for digest in info.digests
    }


def _unit(spec: p4i.MeterSpec) -> MeterUnit:
    return MeterUnit.PACKETS if spec.unit == p4i.MeterSpec.PACKETS else MeterUnit.BYTES


def _key(field: p4i.MatchField, info: p4i.P4Info, path: str, file: str) -> KeyField:
    kind = _KINDS.get(field.match_type)
    if kind is None:
        raise ProgramError(f"match type of {field.name} is not supported", file=file, construct=path)
    return KeyField(field.name, kind, 0 if is_translated(field.type_name.name, info) else field.bitwidth)


def _default(table: p4i.Table, actions: dict[int, ActionSpec]) -> ActionCall | None:
    initial = table.initial_default_action
    action = actions.get(initial.action_id or table.const_default_action_id)
    if action is None or (action.parameters and not initial.arguments):
        return no_action([actions[ref.id].name for ref in table.action_refs])
    return ActionCall(action.name, tuple(int.from_bytes(argument.value, "big") for argument in initial.arguments))


def no_action(actions: Collection[str]) -> ActionCall | None:
    """Return the default action of a table that names none: NoAction if it is among its actions."""
    return ActionCall("NoAction") if "NoAction" in actions else None


def _refuse_unsupported(info: p4i.P4Info, file: str) -> None:
    for extern in info.externs:
        raise ProgramError("an extern is not supported", file=file, construct=extern.extern_type_name)
