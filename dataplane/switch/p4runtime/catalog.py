"""P4Info ids and the objects of the loaded program that they denote, in both directions.

Match fields and parameters are joined by position: the compiler writes both files in the order of the source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from finsy.proto import p4i

from dataplane.errors import ProgramError
from dataplane.program.model import Program
from dataplane.program.objects import (
    ActionSpec,
    CounterSpec,
    DigestSpec,
    KeyField,
    MatchKind,
    MeterSpec,
    ProfileSpec,
    RegisterSpec,
    TableSpec,
    ValueSetSpec,
)
from dataplane.program.p4info import is_translated
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError, invalid
from dataplane.switch.p4runtime.p4data import ANY_WIDTH, DataLayout
from dataplane.switch.p4runtime.packets import HeaderField, PacketHeader
from dataplane.switch.p4runtime.strings import StringMap, StringMaps

_Spec = TypeVar("_Spec")
MAX_MULTICAST_GROUPS = 0xFFFF
"""mcast_grp has 16 bits in v1model, and 0 is no group."""

_KINDS = {
    p4i.MatchField.EXACT: MatchKind.EXACT,
    p4i.MatchField.LPM: MatchKind.LPM,
    p4i.MatchField.TERNARY: MatchKind.TERNARY,
    p4i.MatchField.RANGE: MatchKind.RANGE,
    p4i.MatchField.OPTIONAL: MatchKind.OPTIONAL,
}


@dataclass(frozen=True, slots=True)
class ActionInfo:
    """An action with the ids of its parameters, in parameter order, and the string maps of translated ones."""

    action_id: int
    spec: ActionSpec
    parameter_ids: tuple[int, ...]
    strings: tuple[StringMap | None, ...]


MeterType: TypeAlias = p4i.MeterSpec.Type.ValueType


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """The key of a table or value set: its fields with their ids, in order, and the string maps of translated ones."""

    name: str
    fields: tuple[KeyField, ...]
    field_ids: tuple[int, ...]
    strings: tuple[StringMap | None, ...]


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table with its key and its allowed actions by scope; `meter_type` is None without a direct meter."""

    table_id: int
    spec: TableSpec
    key: KeyInfo
    scopes: Mapping[int, int]  # action id -> p4i.ActionRef.Scope
    has_counter: bool
    const_default: bool
    meter_type: MeterType | None = None


@dataclass(frozen=True, slots=True)
class ProfileInfo:
    """An action profile and the actions of its tables."""

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


@dataclass(frozen=True, slots=True)
class MeterInfo:
    """An indirect meter."""

    meter_id: int
    spec: MeterSpec
    meter_type: MeterType


@dataclass(frozen=True, slots=True)
class DigestInfo:
    """A digest and the layout of its messages."""

    digest_id: int
    spec: DigestSpec
    layout: DataLayout


@dataclass(frozen=True, slots=True)
class ValueSetInfo:
    """A parser value set."""

    value_set_id: int
    spec: ValueSetSpec
    key: KeyInfo


class Catalog:
    """Everything that requests refer to by id; raises ProgramError if P4Info and program disagree."""

    def __init__(self, program: Program) -> None:
        info = program.p4info
        self.program = program
        self.strings = StringMaps(info)
        self.actions = {a.preamble.id: _action(a, program, self.strings) for a in info.actions}
        self.action_ids = {action.spec.name: action.action_id for action in self.actions.values()}
        _refuse_externs(info)
        _check_platform(info.pkg_info.platform_properties)
        counted = {counter.direct_table_id for counter in info.direct_counters}
        metered = {meter.direct_table_id: meter.spec.type for meter in info.direct_meters}
        self.tables = {
            t.preamble.id: _table(t, program, self.strings, t.preamble.id in counted, metered) for t in info.tables
        }
        self.tables_by_name = {table.spec.name: table for table in self.tables.values()}
        self.profiles = {p.preamble.id: self._profile(p) for p in info.action_profiles}
        self.counters = {
            c.preamble.id: CounterInfo(c.preamble.id, _named(program.counters, c.preamble)) for c in info.counters
        }
        self.registers = {r.preamble.id: _register(r, program) for r in info.registers}
        self.meters = {
            m.preamble.id: MeterInfo(m.preamble.id, _named(program.meters, m.preamble), m.spec.type)
            for m in info.meters
        }
        self.digests = {d.preamble.id: _digest(d, program, self.strings) for d in info.digests}
        self.digests_by_name = {digest.spec.name: digest for digest in self.digests.values()}
        self.value_sets = {v.preamble.id: _value_set(v, program, self.strings) for v in info.value_sets}
        headers = {m.preamble.name: _packet_header(m, program, self.strings) for m in info.controller_packet_metadata}
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

    def meter(self, meter_id: int) -> MeterInfo:
        """Return the indirect meter of that id."""
        return _find(self.meters, meter_id, "meter")

    def digest(self, digest_id: int) -> DigestInfo:
        """Return the digest of that id."""
        return _find(self.digests, digest_id, "digest")

    def value_set(self, value_set_id: int) -> ValueSetInfo:
        """Return the parser value set of that id."""
        return _find(self.value_sets, value_set_id, "value set")

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


def _find(specs: Mapping[int, _Spec], identifier: int, what: str) -> _Spec:
    if not identifier:
        raise invalid(f"{what} id 0 is not valid")
    try:
        return specs[identifier]
    except KeyError:
        raise P4RuntimeError(Code.NOT_FOUND, f"no {what} has id {identifier:#010x}") from None


def _named(specs: Mapping[str, _Spec], preamble: p4i.Preamble) -> _Spec:
    try:
        return specs[preamble.name]
    except KeyError:
        problem = "it is in the P4Info but not in the bmv2 JSON"
        raise ProgramError(problem, construct=preamble.name) from None


def _action(info: p4i.Action, program: Program, strings: StringMaps) -> ActionInfo:
    spec = _named(program.actions, info.preamble)
    if len(info.params) != len(spec.parameters):
        raise ProgramError("P4Info and bmv2 JSON have different parameters", construct=spec.name)
    for param, (_, width) in zip(info.params, spec.parameters, strict=True):
        if not is_translated(param.type_name.name, program.p4info) and param.bitwidth != width:
            raise ProgramError("P4Info and bmv2 JSON have different parameters", construct=spec.name)
    translated = [
        strings.of(param.type_name.name, width) for param, (_, width) in zip(info.params, spec.parameters, strict=True)
    ]
    return ActionInfo(info.preamble.id, spec, tuple(param.id for param in info.params), tuple(translated))


def _table(
    info: p4i.Table, program: Program, strings: StringMaps, has_counter: bool, metered: Mapping[int, MeterType]
) -> TableInfo:
    spec = _named(program.tables, info.preamble)
    return TableInfo(
        info.preamble.id,
        spec,
        _key(info.match_fields, spec.keys, program, strings, spec.name),
        {ref.id: ref.scope for ref in info.action_refs},
        has_counter,
        spec.const_default or bool(info.const_default_action_id) or spec.profile is not None,
        None if spec.direct_meter is None else metered.get(info.preamble.id),
    )


def _key(
    declared: Sequence[p4i.MatchField],
    fields: tuple[KeyField, ...],
    program: Program,
    strings: StringMaps,
    construct: str,
) -> KeyInfo:
    if [_KINDS.get(field.match_type) for field in declared] != [field.kind for field in fields]:
        raise ProgramError("P4Info and bmv2 JSON have different keys", construct=construct)
    for item, field in zip(declared, fields, strict=True):
        if not is_translated(item.type_name.name, program.p4info) and item.bitwidth != field.width:
            raise ProgramError("P4Info and bmv2 JSON have different keys", construct=construct)
    translated = [strings.of(item.type_name.name, field.width) for item, field in zip(declared, fields, strict=True)]
    return KeyInfo(construct, fields, tuple(item.id for item in declared), tuple(translated))


def _packet_header(info: p4i.ControllerPacketMetadata, program: Program, strings: StringMaps) -> PacketHeader:
    """Return a packet-in or packet-out header with its fields at their widths in the packet."""
    where = info.preamble.name
    names = [field.name for field in info.metadata]
    widths = [field.bitwidth for field in info.metadata]
    if any(is_translated(field.type_name.name, program.p4info) for field in info.metadata):
        layouts = [header.type.fields for header in program.headers.values() if not header.metadata]
        shapes = [fields for fields in layouts if [field.name for field in fields] == names]
        if not shapes:
            raise ProgramError("no header has its fields, whose types are translated", construct=where)
        widths = [field.width_bits for field in shapes[0]]
    fields = zip(info.metadata, widths, strict=True)
    return PacketHeader(
        where,
        [HeaderField(field.id, field.name, width, strings.of(field.type_name.name, width)) for field, width in fields],
    )


def _refuse_externs(info: p4i.P4Info) -> None:
    for extern in info.externs:
        raise ProgramError("the extern is not supported", construct=extern.extern_type_name)


def _check_platform(wanted: p4i.PlatformProperties) -> None:
    """Raise ProgramError if the program requires more multicast groups than v1model can number."""
    if wanted.multicast_group_table_size > MAX_MULTICAST_GROUPS:
        problem = (
            f"{wanted.multicast_group_table_size} groups are required, but only {MAX_MULTICAST_GROUPS} are available"
        )
        raise ProgramError(problem, construct="multicast_group_table_size")


def _digest(info: p4i.Digest, program: Program, strings: StringMaps) -> DigestInfo:
    name = info.preamble.name
    specs = [digest.spec for digest in program.digests.values() if digest.spec.name == name]
    spec = specs[0] if specs else DigestSpec(name, ())  # no packet can reach what p4c omitted
    layout = DataLayout(info.type_spec, program.p4info, name, strings)
    widths = [width for _, width in spec.fields]
    agree = len(widths) == len(layout.widths) and all(
        wanted in {ANY_WIDTH, width} for width, wanted in zip(widths, layout.widths, strict=True)
    )
    if specs and not agree:
        raise ProgramError("P4Info and bmv2 JSON have different fields", construct=name)
    return DigestInfo(info.preamble.id, spec, layout)


def _value_set(info: p4i.ValueSet, program: Program, strings: StringMaps) -> ValueSetInfo:
    spec = _named(program.value_sets, info.preamble)
    return ValueSetInfo(info.preamble.id, spec, _key(info.match, spec.keys, program, strings, spec.name))


def _register(info: p4i.Register, program: Program) -> RegisterInfo:
    spec = _named(program.registers, info.preamble)
    bits = info.type_spec.bitstring.WhichOneof("type_spec")
    if bits not in {"bit", "int"}:
        raise ProgramError("registers hold bit<W> or int<W>", construct=spec.name)
    return RegisterInfo(info.preamble.id, spec, bits == "int")
