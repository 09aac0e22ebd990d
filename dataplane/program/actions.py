"""Reads the actions of a bmv2 JSON file: parameters, and primitives with their arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dataplane.program.expressions import ExpressionReader
from dataplane.program.model import Action, Header
from dataplane.program.objects import ActionSpec
from dataplane.program.operations import (
    AddHeader,
    AnyHeaderRef,
    Assign,
    AssignHeader,
    AssignStack,
    AssignUnion,
    AssignVariable,
    Check,
    Clone,
    Count,
    ExecuteMeter,
    Exit,
    FieldRef,
    GenerateDigest,
    Hash,
    HeaderRef,
    Jump,
    JumpIfZero,
    LogMessage,
    MarkToDrop,
    NoOp,
    Pop,
    Primitive,
    Push,
    Random,
    Recirculate,
    RegisterRead,
    RegisterWrite,
    RemoveHeader,
    Resubmit,
    StackRef,
    Truncate,
)
from dataplane.program.raw import RawAction, RawCall
from dataplane.program.scope import Scope, read_source

_BRACES = re.compile(r"(?<!\\)\{(?:[^}\\]|\\.)*\}")
"""A value's place in a log message; a brace after a backslash is literal."""


@dataclass(frozen=True, slots=True)
class Call:
    """A primitive call as written in the file, read argument by argument."""

    op: str
    parameters: list[Any]
    reader: ExpressionReader
    path: str
    length: int = 0
    """Number of primitives in the enclosing action, the bound of jumps."""

    @property
    def scope(self) -> Scope:
        """Return the declarations."""
        return self.reader.scope

    def at(self, index: int) -> str:
        """Return the JSON path of an argument."""
        return f"{self.path}.parameters[{index}]"

    def named(self, index: int, kind: str) -> object:
        """Return the value of an argument that must be of a named type."""
        raw = self.parameters[index]
        if not isinstance(raw, dict) or raw.get("type") != kind:
            raise self.scope.error(self.at(index), f"is not a {kind}")
        return raw.get("value")

    def counter(self, index: int) -> str:
        """Return the name of an indirect counter."""
        return self.scope.named(self.scope.counters, self.named(index, "counter_array"), "counter", self.at(index)).name

    def register(self, index: int) -> str:
        """Return the name of a register."""
        name = self.named(index, "register_array")
        return self.scope.named(self.scope.registers, name, "register", self.at(index)).name

    def meter(self, index: int) -> str:
        """Return the name of an indirect meter."""
        name = self.named(index, "meter_array")
        meter = self.scope.named(self.scope.meters, name, "meter", self.at(index))
        if meter.table is not None:
            raise self.scope.error(self.at(index), f"{meter.name} is a direct meter")
        return meter.name

    def digest(self, index: int) -> str:
        """Return the name of the digest with an id."""
        number = self.reader.constant(self.parameters[index], self.at(index))
        if number not in self.scope.digest_names:
            raise self.scope.error(self.at(index), f"no digest has the id {number}")
        return self.scope.digest_names[number]

    def field_list(self, index: int) -> int:
        """Return the id of a field list."""
        number = self.reader.constant(self.parameters[index], self.at(index))
        if number not in self.scope.field_lists:
            raise self.scope.error(self.at(index), f"no field list has the id {number}")
        return number

    def jump(self, index: int) -> int:
        """Return the number of the primitive to continue with; one past the last ends the action."""
        target = self.reader.constant(self.parameters[index], self.at(index))
        if not 0 <= target <= self.length:
            raise self.scope.error(self.at(index), f"there is no primitive {target} to jump to")
        return target


def _assign(call: Call) -> Primitive:
    return Assign(call.reader.lvalue(call.parameters[0], call.at(0)), call.reader.data(call.parameters[1], call.at(1)))


def _assign_variable(call: Call) -> Primitive:
    refs: list[FieldRef] = []
    for index in (0, 1):
        ref = call.scope.field(call.named(index, "field"), call.at(index))
        if not call.scope.spec(ref).variable:
            raise call.scope.error(call.at(index), f"{ref.header}.{ref.field} is not a varbit")
        refs.append(ref)
    return AssignVariable(refs[0], refs[1])


def _header_of(scope: Scope, ref: AnyHeaderRef) -> Header:
    return scope.headers[ref.name if isinstance(ref, HeaderRef) else scope.stacks[ref.stack].elements[0]]


def _assign_header(call: Call) -> Primitive:
    target, source = (call.reader.header(call.parameters[index], call.at(index)) for index in (0, 1))
    left, right = _header_of(call.scope, target), _header_of(call.scope, source)
    if left.type is not right.type:
        raise call.scope.error(call.path, f"copies a {right.type.name} to a {left.type.name}")
    return AssignHeader(target, source)


def _assign_union(call: Call) -> Primitive:
    target, source = (call.reader.union(call.parameters[index], call.at(index)) for index in (0, 1))
    if not call.scope.same_members(target.name, source.name):
        raise call.scope.error(call.path, f"copies union {source.name} to union {target.name} of another type")
    return AssignUnion(target, source)


def _assign_stack(call: Call) -> Primitive:
    target, source = (call.reader.stack(call.parameters[index], call.at(index)) for index in (0, 1))
    left, right = (
        [[header.type for header in row] for row in call.scope.rows(stack.name)] for stack in (target, source)
    )
    if left != right:
        raise call.scope.error(call.path, f"copies stack {source.name} to stack {target.name} of another type or size")
    return AssignStack(target, source)


def _on_wire_header(call: Call) -> AnyHeaderRef:
    ref = call.reader.header(call.parameters[0], call.at(0))
    if _header_of(call.scope, ref).metadata:
        raise call.scope.error(call.at(0), "metadata are always valid")
    return ref


def _shift(call: Call) -> tuple[StackRef, int]:
    count = call.reader.constant(call.parameters[1], call.at(1))
    if count < 0:
        raise call.scope.error(call.at(1), "a stack cannot move by a negative number")
    return call.reader.stack(call.parameters[0], call.at(0)), count


def _hash(call: Call) -> Primitive:
    name = call.named(2, "calculation")
    calculation = call.scope.named(call.scope.calculations, name, "calculation", call.at(2))
    return Hash(
        call.reader.lvalue(call.parameters[0], call.at(0)),
        call.reader.data(call.parameters[1], call.at(1)),
        calculation,
        call.reader.data(call.parameters[3], call.at(3)),
    )


def _random(call: Call) -> Primitive:
    return Random(
        call.reader.lvalue(call.parameters[0], call.at(0)),
        call.reader.data(call.parameters[1], call.at(1)),
        call.reader.data(call.parameters[2], call.at(2)),
    )


def _register_read(call: Call) -> Primitive:
    return RegisterRead(
        call.reader.lvalue(call.parameters[0], call.at(0)),
        call.register(1),
        call.reader.data(call.parameters[2], call.at(2)),
    )


def _register_write(call: Call) -> Primitive:
    return RegisterWrite(
        call.register(0),
        call.reader.data(call.parameters[1], call.at(1)),
        call.reader.data(call.parameters[2], call.at(2)),
    )


def _execute_meter(call: Call) -> Primitive:
    target = call.reader.lvalue(call.parameters[2], call.at(2))
    return ExecuteMeter(call.meter(0), call.reader.data(call.parameters[1], call.at(1)), target)


def _generate_digest(call: Call) -> Primitive:
    call.reader.data(call.parameters[0], call.at(0))  # the receiver, which bmv2 ignores, too
    return GenerateDigest(call.digest(1))


def _mark_to_drop(call: Call) -> Primitive:
    ref = call.reader.header(call.parameters[0], call.at(0))
    if not isinstance(ref, HeaderRef) or call.scope.headers[ref.name].type.field("egress_spec") is None:
        raise call.scope.error(call.at(0), "is not a standard_metadata_t")
    return MarkToDrop(ref.name)


def _clone(call: Call) -> Primitive:
    return Clone(call.reader.data(call.parameters[0], call.at(0)), call.field_list(1))


def _log_message(call: Call) -> Primitive:
    text, values = call.named(0, "string"), call.named(1, "parameters_vector") or []  # p4c writes {} for no values
    if not isinstance(text, str) or not isinstance(values, list):
        raise call.scope.error(call.path, "a log message is a text and a list of values")
    path = call.at(1)
    read = tuple(call.reader.data(raw, f"{path}.value[{index}]") for index, raw in enumerate(values))
    pieces = [piece.replace("\\{", "{").replace("\\}", "}") for piece in _BRACES.split(text)]
    if len(pieces) != len(read) + 1:
        raise call.scope.error(call.path, f"the text {text!r} does not have {len(read)} places for values")
    return LogMessage(tuple(pieces), read)


def _check(call: Call) -> Primitive:
    return Check(call.reader.data(call.parameters[0], call.at(0)), assume=call.op == "assume")


def _jump_if_zero(call: Call) -> Primitive:
    return JumpIfZero(call.reader.data(call.parameters[0], call.at(0)), call.jump(1))


_PRIMITIVES: dict[str, tuple[int, Callable[[Call], Primitive]]] = {
    "assign": (2, _assign),
    "assign_VL": (2, _assign_variable),
    "assign_header": (2, _assign_header),
    "assign_union": (2, _assign_union),
    "assign_header_stack": (2, _assign_stack),
    "assign_union_stack": (2, _assign_stack),
    "add_header": (1, lambda call: AddHeader(_on_wire_header(call))),
    "remove_header": (1, lambda call: RemoveHeader(_on_wire_header(call))),
    "push": (2, lambda call: Push(*_shift(call))),
    "pop": (2, lambda call: Pop(*_shift(call))),
    "count": (2, lambda call: Count(call.counter(0), call.reader.data(call.parameters[1], call.at(1)))),
    "register_read": (3, _register_read),
    "register_write": (3, _register_write),
    "execute_meter": (3, _execute_meter),
    "generate_digest": (2, _generate_digest),
    "modify_field_with_hash_based_offset": (4, _hash),
    "modify_field_rng_uniform": (3, _random),
    "mark_to_drop": (1, _mark_to_drop),
    "drop": (0, lambda _call: MarkToDrop("standard_metadata")),  # p4c's mark_to_drop until 2019
    "clone_ingress_pkt_to_egress": (2, _clone),
    "clone_egress_pkt_to_egress": (2, _clone),
    "resubmit": (1, lambda call: Resubmit(call.field_list(0))),
    "recirculate": (1, lambda call: Recirculate(call.field_list(0))),
    "truncate": (1, lambda call: Truncate(call.reader.data(call.parameters[0], call.at(0)))),
    "log_msg": (2, _log_message),
    "assert": (1, _check),
    "assume": (1, _check),
    "exit": (0, lambda _call: Exit()),
    "no_op": (0, lambda _call: NoOp()),
    "_jump": (1, lambda call: Jump(call.jump(0))),
    "_jump_if_zero": (2, _jump_if_zero),
}


def read_primitive(call: Call) -> Primitive:
    """Return a primitive with its arguments; raise ProgramError if it is unsupported or malformed."""
    if call.op not in _PRIMITIVES:
        raise call.scope.unsupported(call.path, f"primitive {call.op!r}")
    count, read = _PRIMITIVES[call.op]
    if len(call.parameters) != count:
        raise call.scope.error(call.path, f"{call.op} takes {count} parameters, not {len(call.parameters)}")
    return read(call)


def read_primitives(calls: list[RawCall], reader: ExpressionReader, path: str) -> tuple[Primitive, ...]:
    """Return the primitives of an action's (or deparser's) body."""
    return tuple(
        read_primitive(Call(call.op, call.parameters, reader, f"{path}.primitives[{index}]", len(calls)))
        for index, call in enumerate(calls)
    )


def read_action(raw: RawAction, scope: Scope, path: str) -> Action:
    """Return an action with its body."""
    names = [parameter.name for parameter in raw.runtime_data]
    if len(set(names)) != len(names):
        raise scope.error(f"{path}.runtime_data", "has two parameters of the same name")
    parameters = tuple(
        (parameter.name, scope.width(parameter.bitwidth, f"{path}.runtime_data[{index}]", 0))
        for index, parameter in enumerate(raw.runtime_data)
    )
    reader = ExpressionReader(scope, len(parameters))
    sources = tuple(read_source(call.source_info) for call in raw.primitives)
    return Action(ActionSpec(raw.name, parameters), read_primitives(raw.primitives, reader, path), sources)
