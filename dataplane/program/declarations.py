"""Reads the declarations of a bmv2 JSON file: header types, instances, stacks, errors, arrays, lists of fields."""

from __future__ import annotations

from dataplane.program.model import (
    CORE_ERRORS,
    VALID,
    Digest,
    FieldSpec,
    Header,
    HeaderStack,
    HeaderType,
    HeaderUnion,
    UnionStack,
)
from dataplane.program.objects import CounterSpec, DigestSpec, MeterSpec, MeterUnit, RegisterSpec, ValueSetSpec
from dataplane.program.operations import FieldRef, SizedConstant
from dataplane.program.raw import RawHeaderType, RawLearnList, RawMeter, RawProgram, RawValue
from dataplane.program.scope import Scope

MAX_ARRAY_CELLS = 1 << 24
"""The largest accepted counter, register or meter array."""

_ERROR_LIMIT = 2**31 - 1


def read_declarations(raw: RawProgram, scope: Scope) -> None:
    """Fill `scope` with everything that expressions and actions refer to."""
    _refuse_unsupported(raw, scope)
    for index, raw_type in enumerate(raw.header_types):
        path = f"header_types[{index}]"
        scope.insert(scope.header_types, raw_type.name, _header_type(raw_type, scope, path), path)
    _read_headers(raw, scope)
    _read_stacks(raw, scope)
    _read_unions(raw, scope)
    _read_union_stacks(raw, scope)
    _read_field_lists(raw, scope)
    _read_learn_lists(raw, scope)
    _read_arrays(raw, scope)
    _read_meters(raw, scope)
    _read_value_sets(raw, scope)


def read_errors(raw: RawProgram, scope: Scope) -> dict[str, int]:
    """Return the codes of all errors; core library errors that the program omits are numbered as in bmv2."""
    errors: dict[str, int] = {}
    for index, (name, code) in enumerate(raw.errors):
        path = f"errors[{index}]"
        if not 0 <= code < _ERROR_LIMIT or code in errors.values():
            raise scope.error(path, f"{code} is not a unique code below 2^31-1")
        scope.insert(errors, name, code, path)
    following = max(errors.values(), default=-1) + 1
    for name in CORE_ERRORS:
        if name not in errors:
            errors[name] = following
            following += 1
    return errors


def read_aliases(raw: RawProgram, scope: Scope) -> dict[str, FieldRef]:
    """Return the fields by the aliases that bmv2 uses for them."""
    return {
        name: scope.field(target, f"field_aliases[{index}]") for index, (name, target) in enumerate(raw.field_aliases)
    }


def _refuse_unsupported(raw: RawProgram, scope: Scope) -> None:
    if raw.extern_instances:
        raise scope.unsupported("extern_instances[0]", f"extern instance {raw.extern_instances[0].name}")


def _header_type(raw: RawHeaderType, scope: Scope, path: str) -> HeaderType:
    if raw.length_exp is not None:
        raise scope.unsupported(f"{path}.length_exp", "a length expression in a header type")
    fixed: dict[str, FieldSpec | None] = {}
    for index, item in enumerate(raw.fields):
        where = f"{path}.fields[{index}]"
        if len(item) not in {2, 3} or not isinstance(item[0], str):
            raise scope.error(where, "a field is name, width and sign")
        if len(item) == 3 and item[2] not in (0, 1):  # p4c writes the sign of a bool as a number
            raise scope.error(where, "the sign of a field is true or false")
        signed = len(item) == 3 and bool(item[2])
        spec = None if item[1] == "*" else FieldSpec(item[0], scope.width(item[1], where, 0), signed)
        scope.insert(fixed, item[0], spec, where)
    return HeaderType(raw.name, _with_varbit(raw, fixed, scope, path))


def _with_varbit(
    raw: RawHeaderType, fields: dict[str, FieldSpec | None], scope: Scope, path: str
) -> tuple[FieldSpec, ...]:
    variable = [name for name, spec in fields.items() if spec is None]
    if len(variable) > 1:
        raise scope.error(path, f"{raw.name} has more than one varbit")
    fixed_bits = sum(spec.width_bits for spec in fields.values() if spec is not None)
    room_bits = 8 * (raw.max_length or 0) - fixed_bits
    if variable and not 0 < room_bits <= 1 << 16:
        raise scope.error(f"{path}.max_length", f"leaves no room for the varbit {variable[0]}")
    return tuple(spec or FieldSpec(name, room_bits, variable=True) for name, spec in fields.items())


def _read_headers(raw: RawProgram, scope: Scope) -> None:
    for index, item in enumerate(raw.headers):
        path = f"headers[{index}]"
        header_type = scope.named(scope.header_types, item.header_type, "header type", path)
        if not item.metadata and header_type.fixed_bits % 8:
            raise scope.error(path, f"{item.name} is not a whole number of bytes long")
        scope.insert(scope.headers, item.name, Header(item.name, header_type, item.metadata), path)


def _read_stacks(raw: RawProgram, scope: Scope) -> None:
    names = {item.id: item.name for item in raw.headers}
    if len(names) != len(raw.headers):
        raise scope.error("headers", "have duplicate ids")
    for index, item in enumerate(raw.header_stacks):
        path = f"header_stacks[{index}]"
        header_type = scope.named(scope.header_types, item.header_type, "header type", path)
        elements = [names.get(header_id) for header_id in item.header_ids]
        members = tuple(name for name in elements if name is not None and scope.headers[name].type is header_type)
        if not members or len(members) != len(elements) or len(set(members)) != len(members):
            raise scope.error(f"{path}.header_ids", f"are not headers of type {header_type.name}, each once")
        scope.insert(scope.stacks, item.name, HeaderStack(item.name, header_type, members), path)


def _read_unions(raw: RawProgram, scope: Scope) -> None:
    names = {item.id: item.name for item in raw.headers}
    taken = {name for stack in scope.stacks.values() for name in stack.elements}
    for index, item in enumerate(raw.header_unions):
        path = f"header_unions[{index}]"
        members = tuple(names.get(header_id, "") for header_id in item.header_ids)
        wrong = [name for name in members if name in taken or name not in scope.headers or scope.headers[name].metadata]
        if wrong or not members or len(set(members)) != len(members):
            raise scope.error(f"{path}.header_ids", "are not headers of this union only, each once")
        taken.update(members)
        scope.insert(scope.unions, item.name, HeaderUnion(item.name, members), path)


def _read_union_stacks(raw: RawProgram, scope: Scope) -> None:
    for index, union_type in enumerate(raw.header_union_types):
        members = tuple(name for name, _ in union_type.headers)
        scope.insert(scope.union_types, union_type.name, members, f"header_union_types[{index}]")
    unions = {item.id: item for item in raw.header_unions}
    for index, item in enumerate(raw.header_union_stacks):
        path = f"header_union_stacks[{index}]"
        members = scope.named(scope.union_types, item.union_type, "header union type", path)
        elements = [unions.get(union_id) for union_id in item.header_union_ids]
        matching = [union for union in elements if union is not None and len(union.header_ids) == len(members)]
        types = {
            tuple(scope.headers[name].type.name for name in scope.unions[union.name].members) for union in matching
        }
        if len(matching) != len(elements) or len(types) != 1 or len({union.id for union in matching}) != len(matching):
            raise scope.error(f"{path}.header_union_ids", f"are not unions of type {item.union_type}, each once")
        if item.name in scope.stacks:
            raise scope.error(path, f"{item.name!r} is declared twice")
        scope.insert(
            scope.union_stacks, item.name, UnionStack(item.name, tuple(union.name for union in matching)), path
        )
        scope.stack_union_types[item.name] = item.union_type


def _read_field_lists(raw: RawProgram, scope: Scope) -> None:
    for index, item in enumerate(raw.field_lists):
        path = f"field_lists[{index}]"
        if item.id in scope.field_lists or not 0 <= item.id < 1 << 16:
            raise scope.error(path, f"{item.id} is not a unique id below 2^16")
        refs: list[FieldRef] = []
        for position, element in enumerate(item.elements):
            refs += _field_list_element(element, scope, f"{path}.elements[{position}]")
        scope.field_lists[item.id] = tuple(refs)


def _field_list_element(element: RawValue, scope: Scope, path: str) -> list[FieldRef]:
    if element.type == "field":
        return [scope.field(element.value, path)]
    if element.type == "header":
        header = scope.header(element.value, path)
        return [FieldRef(header.name, spec.name) for spec in header.type.fields]
    if element.type == "hexstr":
        return []  # a constant needs no copy
    raise scope.unsupported(path, f"{element.type!r} in a field list")


def _read_learn_lists(raw: RawProgram, scope: Scope) -> None:
    for index, item in enumerate(raw.learn_lists):
        path = f"learn_lists[{index}]"
        if item.id in scope.digest_names or not 0 <= item.id < 1 << 16:
            raise scope.error(path, f"{item.id} is not a unique id below 2^16")
        key = item.name if item.name not in scope.digests else f"{item.name}#{item.id}"
        scope.insert(scope.digests, key, _digest(item, scope, path), path)
        scope.digest_names[item.id] = key


def _digest(item: RawLearnList, scope: Scope, path: str) -> Digest:
    sources: list[FieldRef | SizedConstant] = []
    fields: list[tuple[str, int]] = []
    for position, element in enumerate(item.elements):
        where = f"{path}.elements[{position}]"
        if element.type == "hexstr" and element.bitwidth is not None:
            width = scope.width(element.bitwidth, where)
            sources.append(SizedConstant(scope.unsigned(element.value, width, where), width))
            fields.append((f"f{position}", width))
            continue
        if element.type not in {"field", "header"}:
            raise scope.unsupported(where, f"{element.type!r} in digest {item.name}")
        for ref in _field_list_element(element, scope, where):
            spec = scope.spec(ref)
            if spec.variable:
                raise scope.unsupported(where, f"a varbit in digest {item.name}")
            sources.append(ref)
            fields.append((f"{ref.header}.{ref.field}", spec.width_bits))
    return Digest(DigestSpec(item.name, tuple(fields)), tuple(sources))


def _read_arrays(raw: RawProgram, scope: Scope) -> None:
    for index, item in enumerate(raw.counter_arrays):
        path = f"counter_arrays[{index}]"
        if item.is_direct:
            if item.binding is None:
                raise scope.error(path, f"direct counter {item.name} has no table")
            scope.insert(scope.direct_counters, item.binding, item.name, path)
        else:
            counter = CounterSpec(item.name, _array_size(item.size, scope, path))
            scope.insert(scope.counters, item.name, counter, path)
    for index, register in enumerate(raw.register_arrays):
        path = f"register_arrays[{index}]"
        size, width = _array_size(register.size, scope, path), scope.width(register.bitwidth, path)
        scope.insert(scope.registers, register.name, RegisterSpec(register.name, size, width), path)


def _read_meters(raw: RawProgram, scope: Scope) -> None:
    for index, item in enumerate(raw.meter_arrays):
        path = f"meter_arrays[{index}]"
        if item.type not in MeterUnit.__members__.values():
            raise scope.unsupported(f"{path}.type", f"a meter of type {item.type!r}")
        if item.rate_count != 2:
            raise scope.unsupported(f"{path}.rate_count", f"meter {item.name} with {item.rate_count} rates")
        if item.is_direct:
            meter = _direct_meter(item, scope, path)
        else:
            meter = MeterSpec(item.name, _array_size(item.size, scope, path), MeterUnit(item.type))
        scope.insert(scope.meters, item.name, meter, path)


def _direct_meter(item: RawMeter, scope: Scope, path: str) -> MeterSpec:
    if item.binding is None:
        raise scope.error(path, f"direct meter {item.name} has no table")
    target = scope.field(item.result_target, f"{path}.result_target")
    if scope.spec(target).variable or target.field == VALID:
        raise scope.error(f"{path}.result_target", "a colour is stored in a field of fixed width")
    scope.insert(scope.meter_targets, item.binding, target, path)
    return MeterSpec(item.name, 0, MeterUnit(item.type), item.binding)


def _read_value_sets(raw: RawProgram, scope: Scope) -> None:
    """Record the value sets; their keys come from the P4Info, or else from the parser."""
    for index, item in enumerate(raw.parse_vsets):
        path = f"parse_vsets[{index}]"
        scope.width(item.compressed_bitwidth, path)
        size = _array_size(item.max_size, scope, path)
        scope.insert(scope.value_sets, item.name, ValueSetSpec(item.name, size, ()), path)


def _array_size(size: int | None, scope: Scope, path: str) -> int:
    if size is None or not 0 <= size <= MAX_ARRAY_CELLS:
        raise scope.error(path, f"an array of {size} cells is not possible")
    return size
