"""P4Info ids and what they stand for in the loaded program, both ways.

Match fields and parameters are joined by position: the compiler writes both files in the order of the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from finsy.proto import p4i

from dataplane.errors import ProgramError
from dataplane.program.model import Program
from dataplane.program.objects import ActionSpec, CounterSpec, MatchKind, ProfileSpec, RegisterSpec, TableSpec
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError, invalid
from dataplane.switch.p4runtime.packets import PacketHeader

_Spec = TypeVar("_Spec")
_KINDS = {
    p4i.MatchField.EXACT: MatchKind.EXACT,
    p4i.MatchField.LPM: MatchKind.LPM,
    p4i.MatchField.TERNARY: MatchKind.TERNARY,
    p4i.MatchField.RANGE: MatchKind.RANGE,
    p4i.MatchField.OPTIONAL: MatchKind.OPTIONAL,
}


@dataclass(frozen=True, slots=True)
class ActionInfo:
    """An action with the ids of its parameters, in parameter order."""

    action_id: int
    spec: ActionSpec
    parameter_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table with the ids of its match fields, in key order, and which actions it may have where."""

    table_id: int
    spec: TableSpec
    field_ids: tuple[int, ...]
    scopes: Mapping[int, int]  # action id -> p4i.ActionRef.Scope
    has_counter: bool
    const_default: bool


@dataclass(frozen=True, slots=True)
class ProfileInfo:
    """An action profile and the actions that its tables have."""

    profile_id: int
    spec: ProfileSpec
    action_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class CounterInfo:
    """An indirect counter."""

    counter_id: int
    spec: CounterSpec


@dataclass(frozen=True, slots=True)
class RegisterInfo:
    """A register; `signed` cells are read and written in two's complement."""

    register_id: int
    spec: RegisterSpec
    signed: bool


class Catalog:
    """Everything that requests name by id; raises ProgramError if P4Info and program disagree."""

    def __init__(self, program: Program) -> None:
        info = program.p4info
        self.program = program
        self.actions = {a.preamble.id: _action(a, program) for a in info.actions}
        self.action_ids = {action.spec.name: action.action_id for action in self.actions.values()}
        counted = {counter.direct_table_id for counter in info.direct_counters}
        self.tables = {t.preamble.id: _table(t, program, t.preamble.id in counted) for t in info.tables}
        self.profiles = {p.preamble.id: self._profile(p) for p in info.action_profiles}
        self.counters = {
            c.preamble.id: CounterInfo(c.preamble.id, _named(program.counters, c.preamble)) for c in info.counters
        }
        self.registers = {r.preamble.id: _register(r, program) for r in info.registers}
        headers = {m.preamble.name: PacketHeader(m) for m in info.controller_packet_metadata}
        self.packet_in = headers.get("packet_in", PacketHeader.none("packet_in"))
        self.packet_out = headers.get("packet_out", PacketHeader.none("packet_out"))

    def table(self, table_id: int) -> TableInfo:
        """Return the table of that id; raise INVALID_ARGUMENT for 0, NOT_FOUND if there is none."""
        return _find(self.tables, table_id, "table")

    def profile(self, profile_id: int) -> ProfileInfo:
        """Return the action profile of that id."""
        return _find(self.profiles, profile_id, "action profile")

    def counter(self, counter_id: int) -> CounterInfo:
        """Return the indirect counter of that id."""
        return _find(self.counters, counter_id, "counter")

    def register(self, register_id: int) -> RegisterInfo:
        """Return the register of that id."""
        return _find(self.registers, register_id, "register")

    def _profile(self, info: p4i.ActionProfile) -> ProfileInfo:
        where = info.preamble.name
        if info.weights_disallowed or info.HasField("sum_of_members"):
            raise ProgramError("weights_disallowed and sum_of_members are not supported", construct=where)
        tables = [self.tables[table_id] for table_id in info.table_ids if table_id in self.tables]
        actions = frozenset(
            action_id
            for table in tables
            for action_id, scope in table.scopes.items()
            if scope != p4i.ActionRef.DEFAULT_ONLY
        )
        return ProfileInfo(info.preamble.id, _named(self.program.profiles, info.preamble), actions)


def _find(found: Mapping[int, _Spec], identifier: int, what: str) -> _Spec:
    if not identifier:
        raise invalid(f"{what} id 0 is not valid")
    try:
        return found[identifier]
    except KeyError:
        raise P4RuntimeError(Code.NOT_FOUND, f"no {what} has id {identifier:#010x}") from None


def _named(specs: Mapping[str, _Spec], preamble: p4i.Preamble) -> _Spec:
    try:
        return specs[preamble.name]
    except KeyError:
        problem = "it is in the P4Info but not in the bmv2 JSON"
        raise ProgramError(problem, construct=preamble.name) from None


def _action(info: p4i.Action, program: Program) -> ActionInfo:
    spec = _named(program.actions, info.preamble)
    if [param.bitwidth for param in info.params] != [width for _, width in spec.parameters]:
        raise ProgramError("P4Info and bmv2 JSON have different parameters", construct=spec.name)
    return ActionInfo(info.preamble.id, spec, tuple(param.id for param in info.params))


def _table(info: p4i.Table, program: Program, has_counter: bool) -> TableInfo:
    spec = _named(program.tables, info.preamble)
    declared = [(_KINDS.get(field.match_type), field.bitwidth) for field in info.match_fields]
    if declared != [(key.kind, key.width) for key in spec.keys]:
        raise ProgramError("P4Info and bmv2 JSON have different keys", construct=spec.name)
    return TableInfo(
        info.preamble.id,
        spec,
        tuple(field.id for field in info.match_fields),
        {ref.id: ref.scope for ref in info.action_refs},
        has_counter,
        spec.const_default or bool(info.const_default_action_id) or spec.profile is not None,
    )


def _register(info: p4i.Register, program: Program) -> RegisterInfo:
    spec = _named(program.registers, info.preamble)
    bits = info.type_spec.bitstring.WhichOneof("type_spec")
    if bits not in {"bit", "int"}:
        raise ProgramError("registers hold bit<W> or int<W>", construct=spec.name)
    return RegisterInfo(info.preamble.id, spec, bits == "int")
