"""Reads bmv2 JSON's type-value objects and expressions; checks that each yields the kind its context requires."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from dataplane.program.model import VALID
from dataplane.program.operations import (
    AnyHeaderRef,
    ArgumentRef,
    Binary,
    BinaryOp,
    Choice,
    Constant,
    ElementFieldRef,
    ElementRef,
    Expression,
    FieldRef,
    HeaderRef,
    HeadersEqual,
    LastFieldRef,
    LValue,
    StackRef,
    Truth,
    Unary,
    UnaryOp,
    UnionRef,
)
from dataplane.program.scope import Scope

MAX_DEPTH = 120
"""Maximum nesting depth of expressions."""

_COMPARISONS = {BinaryOp.GT, BinaryOp.GE, BinaryOp.LT, BinaryOp.LE}
_EQUALITIES = {BinaryOp.EQ, BinaryOp.NE}
_LOGICAL = {BinaryOp.LOGICAL_AND, BinaryOp.LOGICAL_OR}
_CASTS = {BinaryOp.TWO_COMP_MOD, BinaryOp.USAT_CAST, BinaryOp.SAT_CAST}
_UNION_STACKS = {"access_union_header", "dereference_union_stack"}


class Kind(StrEnum):
    """Kind of value that an expression yields."""

    DATA = "data"
    BOOL = "a truth value"
    HEADER = "a header"
    STACK = "a header stack"
    UNION = "a header union"


Operand: TypeAlias = Expression | HeaderRef | ElementRef | StackRef | UnionRef


@dataclass(frozen=True, slots=True)
class ExpressionReader:
    """Reads expressions in one context: `parameters` are those of the enclosing action, none outside of one."""

    scope: Scope
    parameters: int = 0

    def data(self, raw: object, path: str) -> Expression:
        """Return an expression that yields an integer."""
        node, kind = self._read(raw, path, 0)
        if kind is not Kind.DATA or isinstance(node, _NOT_VALUES):
            raise self.scope.error(path, f"is {kind} where data is expected")
        return node

    def truth(self, raw: object, path: str) -> Expression:
        """Return an expression that yields a truth value."""
        node, kind = self._read(raw, path, 0)
        if kind is not Kind.BOOL or isinstance(node, _NOT_VALUES):
            raise self.scope.error(path, f"is {kind} where a truth value is expected")
        return node

    def header(self, raw: object, path: str) -> AnyHeaderRef:
        """Return a header, at a fixed or a run-time index."""
        node, kind = self._read(raw, path, 0)
        if not isinstance(node, HeaderRef | ElementRef):
            raise self.scope.error(path, f"is {kind} where a header is expected")
        return node

    def stack(self, raw: object, path: str) -> StackRef:
        """Return a stack of headers or of header unions."""
        node, kind = self._read(raw, path, 0)
        if not isinstance(node, StackRef):
            raise self.scope.error(path, f"is {kind} where a header stack is expected")
        return node

    def union(self, raw: object, path: str) -> UnionRef:
        """Return a header union."""
        node, kind = self._read(raw, path, 0)
        if not isinstance(node, UnionRef):
            raise self.scope.error(path, f"is {kind} where a header union is expected")
        return node

    def lvalue(self, raw: object, path: str) -> LValue:
        """Return a field that can be written to."""
        node, _ = self._read(raw, path, 0)
        if not isinstance(node, FieldRef | ElementFieldRef | LastFieldRef):
            raise self.scope.error(path, "cannot be assigned to")
        if isinstance(node, FieldRef):
            self._fixed(node, path)
        if node.field == VALID:
            raise self.scope.error(path, "the valid bit of a header cannot be assigned to")
        return node

    def constant(self, raw: object, path: str) -> int:
        """Return the value of an expression that must be constant."""
        node = self.data(raw, path)
        if not isinstance(node, Constant):
            raise self.scope.unsupported(path, "a value that is not a constant")
        return node.value

    def _read(self, raw: object, path: str, depth: int) -> tuple[Operand, Kind]:
        if depth > MAX_DEPTH:
            raise self.scope.error(path, f"is nested more than {MAX_DEPTH} deep")
        if not isinstance(raw, dict):
            raise self.scope.error(path, "is not an object with type and value")
        kind, value = raw.get("type"), raw.get("value")
        if kind == "expression" or (kind is None and "op" in raw):
            return self._operator(value if kind else raw, f"{path}.value", depth)
        return self._leaf(kind, value, path)

    def _leaf(self, kind: object, value: Any, path: str) -> tuple[Operand, Kind]:  # noqa: ANN401 - any JSON value
        scope = self.scope
        match kind:
            case "field":
                return self._any_field(value, path), Kind.DATA
            case "hexstr":
                return Constant(scope.hexstr(value, path)), Kind.DATA
            case "bool":
                if not isinstance(value, bool):
                    raise scope.error(path, f"{value!r} is neither true nor false")
                return Truth(value), Kind.BOOL
            case "local" | "runtime_data":
                return ArgumentRef(self._argument(value, path)), Kind.DATA
            case "header":
                return HeaderRef(scope.header(value, path).name), Kind.HEADER
            case "header_stack":
                return StackRef(scope.stack(value, path).name), Kind.STACK
            case "header_union":
                return UnionRef(scope.named(scope.unions, value, "header union", path).name), Kind.UNION
            case "header_union_stack":
                return StackRef(scope.named(scope.union_stacks, value, "union stack", path).name), Kind.STACK
            case "stack_field":
                return self._last(value, path)
            case "union_stack_field":
                return self._last_union_field(value, path), Kind.DATA
        raise scope.unsupported(path, f"a value of type {kind!r}")

    def _any_field(self, value: object, path: str) -> LValue:
        """Return a field of a header, or what p4c writes like one.

        `u.last.a.f` of a stack `u` of unions is a field `a.f` of a header `u`; the valid bit of a stack's element at a
        run-time index is a field of an expression.
        """
        match value:
            case [str(stack), str(members)] if stack in self.scope.union_stacks and members.count(".") == 1:
                return self._last_union_field([stack, *members.split(".")], path)
            case [dict(element), name] if element.get("op") == "dereference_header_stack" and name == VALID:
                return ElementFieldRef(self._element(element, path, 0), VALID)
        return self.scope.field(value, path)

    def key_field(self, kind: str, value: object, path: str) -> FieldRef | LastFieldRef:
        """Return a field that a parser's select can use: not a varbit, but possibly a valid bit."""
        node, _ = self._leaf(kind, value, path)
        if not isinstance(node, FieldRef | LastFieldRef):
            raise self.scope.error(path, "is not a field")
        return self._fixed(node, path) if isinstance(node, FieldRef) else node

    def _fixed(self, ref: FieldRef, path: str) -> FieldRef:
        if self.scope.spec(ref).variable:
            raise self.scope.error(path, f"{ref.header}.{ref.field} is a varbit, which is only assigned to as a whole")
        return ref

    def _argument(self, value: object, path: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < self.parameters:
            raise self.scope.error(path, f"the action has no parameter {value!r}")
        return value

    def _last(self, value: object, path: str) -> tuple[Operand, Kind]:
        """Return a field of a stack's last element; p4c also writes the element itself as field `last`."""
        if not isinstance(value, list) or len(value) != 2:
            raise self.scope.error(path, "a stack field is a pair of stack and field name")
        stack = self.scope.stack(value[0], path)
        if value[1] == "last" and stack.type.field("last") is None:
            index = Unary(UnaryOp.LAST_STACK_INDEX, StackRef(stack.name))
            return ElementRef(stack.name, index), Kind.HEADER
        return LastFieldRef(stack.name, self._stack_field(stack.elements[0], value[1], path)), Kind.DATA

    def _last_union_field(self, value: object, path: str) -> LastFieldRef:
        if not isinstance(value, list) or len(value) != 3:
            raise self.scope.error(path, "a union stack field is a triple of stack, header and field name")
        member = self.scope.member(value[0], value[1], path)
        header = self.scope.rows(value[0])[0][member]
        return LastFieldRef(value[0], self._stack_field(header.name, value[2], path), member)

    def _stack_field(self, header: str, name: object, path: str) -> str:
        return self._fixed(self.scope.field([header, name], path), path).field

    def _operator(self, raw: object, path: str, depth: int) -> tuple[Operand, Kind]:
        if not isinstance(raw, dict):
            raise self.scope.error(path, "is not an expression")
        if "op" not in raw:
            return self._read(raw, path, depth + 1)
        op = raw["op"]
        if not isinstance(op, str):
            raise self.scope.error(path, f"{op!r} is not an operator")
        if op in UnaryOp.__members__.values():
            return self._unary(UnaryOp(op), raw, path, depth)
        if op in BinaryOp.__members__.values():
            return self._binary(BinaryOp(op), raw, path, depth)
        match op:
            case "?":
                return self._choice(raw, path, depth)
            case "dereference_header_stack":
                return self._element(raw, path, depth), Kind.HEADER
            case "access_field":
                return self._element_field(raw, path, depth)
            case "valid_union":
                return self._valid_union(raw.get("right"), f"{path}.right"), Kind.BOOL
        if op in _UNION_STACKS:
            raise self.scope.unsupported(path, f"a header union chosen at run time ({op})")
        raise self.scope.unsupported(path, f"operator {op!r}")

    def _operand(self, raw: dict[str, Any], side: str, wanted: Kind, path: str, depth: int) -> Any:  # noqa: ANN401
        node, kind = self._read(raw.get(side), f"{path}.{side}", depth + 1)
        if kind is not wanted:
            raise self.scope.error(f"{path}.{side}", f"is {kind} where {wanted} is expected")
        return node

    def _unary(self, op: UnaryOp, raw: dict[str, Any], path: str, depth: int) -> tuple[Operand, Kind]:
        wanted, result = {
            UnaryOp.NOT: (Kind.BOOL, Kind.BOOL),
            UnaryOp.COMPLEMENT: (Kind.DATA, Kind.DATA),
            UnaryOp.VALID: (Kind.HEADER, Kind.BOOL),
            UnaryOp.DATA_TO_BOOL: (Kind.DATA, Kind.BOOL),
            UnaryOp.BOOL_TO_DATA: (Kind.BOOL, Kind.DATA),
            UnaryOp.LAST_STACK_INDEX: (Kind.STACK, Kind.DATA),
            UnaryOp.SIZE_STACK: (Kind.STACK, Kind.DATA),
        }[op]
        return Unary(op, self._operand(raw, "right", wanted, path, depth)), result

    def _binary(self, op: BinaryOp, raw: dict[str, Any], path: str, depth: int) -> tuple[Operand, Kind]:
        left, left_kind = self._read(raw.get("left"), f"{path}.left", depth + 1)
        right, right_kind = self._read(raw.get("right"), f"{path}.right", depth + 1)
        if left_kind is not right_kind:
            raise self.scope.error(path, f"{op.value} of {left_kind} and {right_kind}")
        if op in _EQUALITIES and isinstance(left, HeaderRef | ElementRef) and isinstance(right, HeaderRef | ElementRef):
            return HeadersEqual(left, right, negated=op is BinaryOp.NE), Kind.BOOL
        if op in _EQUALITIES and isinstance(left, UnionRef) and isinstance(right, UnionRef):
            return self._unions_equal(left, right, op, path), Kind.BOOL
        wanted = left_kind if op in _EQUALITIES else Kind.BOOL if op in _LOGICAL else Kind.DATA
        if left_kind is not wanted or isinstance(left, _NOT_VALUES) or isinstance(right, _NOT_VALUES):
            raise self.scope.error(path, f"{op.value} of {left_kind}")
        if op in _CASTS and not (isinstance(right, Constant) and 0 < right.value <= 1 << 16):
            raise self.scope.error(f"{path}.right", "the width of a cast is a constant from 1")
        result = Kind.BOOL if op in _EQUALITIES | _COMPARISONS | _LOGICAL else Kind.DATA
        return Binary(op, left, right), result

    def _choice(self, raw: dict[str, Any], path: str, depth: int) -> tuple[Operand, Kind]:
        condition = self._operand(raw, "cond", Kind.BOOL, path, depth)
        left, left_kind = self._read(raw.get("left"), f"{path}.left", depth + 1)
        right, right_kind = self._read(raw.get("right"), f"{path}.right", depth + 1)
        if left_kind is not right_kind or isinstance(left, _NOT_VALUES) or isinstance(right, _NOT_VALUES):
            raise self.scope.error(path, f"? between {left_kind} and {right_kind}")
        return Choice(condition, left, right), left_kind

    def _valid_union(self, raw: object, path: str) -> Expression:
        """Return the expression that is true if any header of a union is valid.

        p4c calls the element of a stack of unions a header, though it has the name of a union.
        """
        kinds = ("header_union", "header")  # a file may have anything as its type, even unhashable values
        name = raw.get("value") if isinstance(raw, dict) and raw.get("type") in kinds else None
        union = self.scope.named(self.scope.unions, name, "header union", path)
        valid: Expression = Truth(value=False)
        for member in union.members:
            valid = Binary(BinaryOp.LOGICAL_OR, valid, Unary(UnaryOp.VALID, HeaderRef(member)))
        return valid

    def _unions_equal(self, left: UnionRef, right: UnionRef, op: BinaryOp, path: str) -> Expression:
        """Return the expression that is true if the same header of both unions is valid and equal, or the negation."""
        unions = self.scope.unions
        if not self.scope.same_members(left.name, right.name):
            raise self.scope.error(path, f"compares union {left.name} with union {right.name} of another type")
        equal: Expression = Truth(value=False)
        for name, other in zip(unions[left.name].members, unions[right.name].members, strict=True):
            pair = HeadersEqual(HeaderRef(name), HeaderRef(other), negated=False)
            equal = Binary(BinaryOp.LOGICAL_OR, equal, pair)
        return Unary(UnaryOp.NOT, equal) if op is BinaryOp.NE else equal

    def _element(self, raw: dict[str, Any], path: str, depth: int) -> ElementRef:
        stack = self._operand(raw, "left", Kind.STACK, path, depth)
        if stack.name not in self.scope.stacks:
            raise self.scope.unsupported(path, f"an element chosen at run time of union stack {stack.name}")
        return ElementRef(stack.name, self._operand(raw, "right", Kind.DATA, path, depth))

    def _element_field(self, raw: dict[str, Any], path: str, depth: int) -> tuple[Operand, Kind]:
        header = self._operand(raw, "left", Kind.HEADER, path, depth)
        scope, offset = self.scope, raw.get("right")
        first = header.name if isinstance(header, HeaderRef) else scope.stacks[header.stack].elements[0]
        names = [*(spec.name for spec in scope.headers[first].type.fields), VALID]
        if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset < len(names):
            raise scope.error(f"{path}.right", f"header {first} has no field at {offset!r}")
        ref = self._fixed(FieldRef(first, names[offset]), path)
        return (ref if isinstance(header, HeaderRef) else ElementFieldRef(header, ref.field)), Kind.DATA


_NOT_VALUES = (HeaderRef, ElementRef, StackRef, UnionRef)
