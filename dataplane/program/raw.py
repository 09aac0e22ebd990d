"""The shape of a bmv2 JSON file (docs/JSON_format.md of p4lang/behavioral-model, version 2.23), decoded strictly.

Only shapes are checked here; `dataplane.program.loader` interprets them. Keys that carry no meaning for a switch
(pragmas, ids that nothing refers to) are ignored, as in bmv2. `source_info` may be anything: it only explains.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dataplane.malformed import MALFORMED


class RawValue(msgspec.Struct, frozen=True, kw_only=True):
    """bmv2's type-value object; the type of `value` depends on `type`."""

    type: str
    value: Any = None
    bitwidth: int | None = None


class RawHeaderType(msgspec.Struct, frozen=True, kw_only=True):
    """A header type; a field is [name, width or "*"] or [name, width, signed]."""

    name: str
    fields: list[list[str | int | bool]]
    length_exp: Any = None
    max_length: int | None = None


class RawHeader(msgspec.Struct, frozen=True, kw_only=True):
    """A header instance."""

    name: str
    id: int
    header_type: str
    metadata: bool


class RawStack(msgspec.Struct, frozen=True, kw_only=True):
    """A header stack."""

    name: str
    header_type: str
    header_ids: list[int]


class RawUnionType(msgspec.Struct, frozen=True, kw_only=True):
    """A header union type; a member is [name, header type]."""

    name: str
    headers: list[tuple[str, str]]


class RawUnion(msgspec.Struct, frozen=True, kw_only=True):
    """A header union."""

    name: str
    header_ids: list[int]
    id: int = -1
    union_type: str | None = None


class RawUnionStack(msgspec.Struct, frozen=True, kw_only=True):
    """A stack of header unions."""

    name: str
    union_type: str
    header_union_ids: list[int]


class RawNamed(msgspec.Struct, frozen=True, kw_only=True):
    """An object of which only the name matters, for an error message that refuses it."""

    name: str


class RawFieldList(msgspec.Struct, frozen=True, kw_only=True):
    """A list of fields that a clone, a resubmitted or a recirculated packet keeps."""

    name: str
    id: int
    elements: list[RawValue]


class RawCall(msgspec.Struct, frozen=True, kw_only=True):
    """A primitive, or a parser operation, with its parameters."""

    op: str
    parameters: list[Any] = []
    source_info: Any = None


class RawLearnList(msgspec.Struct, frozen=True, kw_only=True):
    """A list of values that a digest sends to the control plane."""

    name: str
    id: int
    elements: list[RawValue]


class RawTransition(msgspec.Struct, frozen=True, kw_only=True):
    """A case of a select; old files have the value "default" and no type on the default case."""

    type: str = "hexstr"
    value: str | None = None
    mask: str | None = None
    next_state: str | None = None


class RawState(msgspec.Struct, frozen=True, kw_only=True):
    """A parse state."""

    name: str
    parser_ops: list[RawCall]
    transitions: list[RawTransition]
    transition_key: list[RawValue]


class RawValueSet(msgspec.Struct, frozen=True, kw_only=True):
    """A parser value set; the width excludes padding."""

    name: str
    compressed_bitwidth: int
    max_size: int = 0


class RawParser(msgspec.Struct, frozen=True, kw_only=True):
    """A parser."""

    name: str
    init_state: str | None
    parse_states: list[RawState]


class RawDeparser(msgspec.Struct, frozen=True, kw_only=True):
    """A deparser."""

    name: str
    order: list[str]
    primitives: list[RawCall] = []


class RawCounter(msgspec.Struct, frozen=True, kw_only=True):
    """A counter array; a direct one has the table's name in `binding`."""

    name: str
    is_direct: bool = False
    size: int | None = None
    binding: str | None = None


class RawMeter(msgspec.Struct, frozen=True, kw_only=True):
    """A meter array; a direct one has the table's name in `binding` and sets `result_target`."""

    name: str
    type: str
    rate_count: int = 2
    is_direct: bool = False
    size: int | None = None
    binding: str | None = None
    result_target: list[str] | None = None


class RawRegister(msgspec.Struct, frozen=True, kw_only=True):
    """A register array."""

    name: str
    size: int
    bitwidth: int


class RawCalculation(msgspec.Struct, frozen=True, kw_only=True):
    """A named calculation."""

    name: str
    algo: str
    input: list[RawValue]


class RawParameter(msgspec.Struct, frozen=True, kw_only=True):
    """A run-time parameter of an action."""

    name: str
    bitwidth: int


class RawAction(msgspec.Struct, frozen=True, kw_only=True):
    """An action."""

    name: str
    id: int
    runtime_data: list[RawParameter]
    primitives: list[RawCall]


class RawKey(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a table's key."""

    match_type: str
    target: Any
    mask: str | None = None
    name: str | None = None


class RawDefault(msgspec.Struct, frozen=True, kw_only=True):
    """A default entry."""

    action_id: int
    action_const: bool = False
    action_data: list[str] = []
    action_entry_const: bool = False


class RawMatch(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a constant entry's match."""

    match_type: str
    key: str | bool | None = None
    mask: str | None = None
    prefix_length: int | None = None
    start: str | None = None
    end: str | None = None


class RawActionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The action of a constant entry."""

    action_id: int
    action_data: list[str]


class RawEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A constant entry; a smaller priority wins."""

    match_key: list[RawMatch]
    action_entry: RawActionEntry
    priority: int = 0


class RawTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table."""

    name: str
    key: list[RawKey]
    type: str
    max_size: int
    next_tables: dict[str, str | None]
    action_ids: list[int] | None = None
    actions: list[str] = []
    action_profile: str | None = None
    with_counters: bool = False
    support_timeout: bool = False
    direct_meters: str | None = None
    base_default_next: str | None = None
    default_entry: RawDefault | None = None
    entries: list[RawEntry] = []
    source_info: Any = None


class RawSelector(msgspec.Struct, frozen=True, kw_only=True):
    """The hash of an action selector."""

    algo: str
    input: list[RawValue]


class RawProfile(msgspec.Struct, frozen=True, kw_only=True):
    """An action profile."""

    name: str
    max_size: int
    selector: RawSelector | None = None


class RawConditional(msgspec.Struct, frozen=True, kw_only=True):
    """A branch."""

    name: str
    expression: Any
    true_next: str | None = None
    false_next: str | None = None
    source_info: Any = None


class RawActionCall(msgspec.Struct, frozen=True, kw_only=True):
    """A direct call of an action without parameters."""

    name: str
    action_id: int
    next_node: str | None = None
    source_info: Any = None


class RawPipeline(msgspec.Struct, frozen=True, kw_only=True):
    """A top control block."""

    name: str
    init_table: str | None
    tables: list[RawTable]
    action_profiles: list[RawProfile] = []
    conditionals: list[RawConditional] = []
    action_calls: list[RawActionCall] = []


class RawChecksum(msgspec.Struct, frozen=True, kw_only=True):
    """A checksum."""

    name: str
    target: list[str]
    type: str
    calculation: str
    update: bool = True
    verify: bool = True
    if_cond: Any = None
    source_info: Any = None


class RawMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The file's version."""

    version: list[int]


_P4_14 = {"modify_field", "add_to_field", "subtract_from_field", "add", "subtract", "copy_header"}
"""Primitives that only the compiler for P4-14 writes."""


def is_p4_14(data: bytes) -> bool:
    """Return whether a JSON file is of p4c-bm, the former compiler for P4-14: it says so, or has its primitives."""
    try:
        content = msgspec.json.decode(data)
    except MALFORMED:
        return False
    meta = content.get("__meta__") if isinstance(content, dict) else None
    compiler = meta.get("compiler") if isinstance(meta, dict) else None
    if isinstance(compiler, str) and compiler:
        return compiler.rstrip("/").endswith("p4c-bm")
    actions = content.get("actions") if isinstance(content, dict) else None
    calls = [
        call
        for action in (actions if isinstance(actions, list) else [])
        if isinstance(action, dict) and isinstance(action.get("primitives"), list)
        for call in action["primitives"]
    ]
    return any(isinstance(call, dict) and call.get("op") in _P4_14 for call in calls)


class RawProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A whole file."""

    meta: RawMeta | None = msgspec.field(name="__meta__", default=None)
    program: str = ""
    header_types: list[RawHeaderType]
    headers: list[RawHeader]
    header_stacks: list[RawStack] = []
    header_union_types: list[RawUnionType] = []
    header_unions: list[RawUnion] = []
    header_union_stacks: list[RawUnionStack] = []
    field_lists: list[RawFieldList] = []
    errors: list[tuple[str, int]] = []
    parsers: list[RawParser]
    parse_vsets: list[RawValueSet] = []
    deparsers: list[RawDeparser]
    meter_arrays: list[RawMeter] = []
    counter_arrays: list[RawCounter] = []
    register_arrays: list[RawRegister] = []
    calculations: list[RawCalculation] = []
    learn_lists: list[RawLearnList] = []
    actions: list[RawAction]
    pipelines: list[RawPipeline]
    checksums: list[RawChecksum] = []
    extern_instances: list[RawNamed] = []
    field_aliases: list[tuple[str, list[str]]] = []
