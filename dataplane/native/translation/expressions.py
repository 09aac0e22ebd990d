"""Expressions of the kernel language."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from dataplane.native.kernels import Function, FunctionType
from dataplane.native.scalars import BOOL, U64, Scalar
from dataplane.native.shapes import ArrayShape, Shape, StructShape
from dataplane.native.structs import field_shapes
from dataplane.native.translation import operators
from dataplane.native.translation.frame import Frame
from dataplane.native.translation.lowering import LOWERINGS
from dataplane.native.translation.values import (
    BIT,
    HALF,
    WORD,
    Literal,
    LValue,
    Operand,
    Static,
    Value,
    constant,
    load,
    value_type,
)


class Expressions(Frame):
    """Translates expressions, in the order in which Python evaluates them."""

    def evaluate(self, node: ast.expr, expected: Shape | None = None) -> Operand:
        """Translate an expression; `expected` is the shape for a choice between literals."""
        if isinstance(node, ast.IfExp):
            return self._choice(node, expected)
        handler = self._expressions.get(type(node))
        if handler is None:
            raise self.error(node, f"`{ast.unparse(node)}` is not part of the kernel language")
        return handler(self, node)

    def value(self, node: ast.expr, shape: Shape) -> Value:
        """Translate an expression to a value of a shape."""
        return self.fit(node, self.evaluate(node, shape), shape)

    def pointer(self, node: ast.expr) -> Value:
        """Translate an expression that must be a struct or an array."""
        operand = self.evaluate(node)
        if isinstance(operand, Value) and isinstance(operand.shape, StructShape | ArrayShape):
            return operand
        raise self.error(node, f"`{ast.unparse(node)}` is neither a struct nor an array")

    def index(self, node: ast.expr) -> Any:  # noqa: ANN401 - llvmlite is untyped
        """Translate an index or a count of bytes to 64 bits, extended by its own sign."""
        operand = self.evaluate(node)
        if isinstance(operand, Literal):
            return WORD(operand.number)
        number = self.number(node, operand)
        if number.shape == BOOL:
            raise self.error(node, "this is bool, where an index is needed")
        return operators.cast(self.builder, number, U64).ir

    # Places: fields, elements, locals.

    def place(self, node: ast.expr) -> LValue:
        """Return the memory of a field, an element or a local, for stores and atomic changes."""
        if isinstance(node, ast.Name):
            variable = self.locals.get(node.id)
            if isinstance(variable, LValue):
                return variable
            raise self.error(node, f"{node.id} is not a local variable")
        if not isinstance(node, ast.Attribute | ast.Subscript):
            raise self.error(node, f"`{ast.unparse(node)}` cannot be stored to; use a field or an element")
        member = self._member(node, self.evaluate(node.value))
        if isinstance(member, LValue):
            return member
        raise self.error(
            node, f"`{ast.unparse(node)}` cannot be assigned; a struct is stored field by field, or by copy()"
        )

    def memory(self, node: ast.expr) -> LValue:
        """Return a field or an element, which other threads may see; a local is an error."""
        if isinstance(node, ast.Name):
            raise self.error(node, "a local is not shared memory: name a field or an element")
        return self.place(node)

    def _member(self, node: ast.Attribute | ast.Subscript, base: Operand) -> Operand | LValue:
        if isinstance(node, ast.Subscript):
            return self._item(node, base)
        if isinstance(base, Static):
            if not hasattr(base.thing, node.attr):
                raise self.error(node, f"`{ast.unparse(node)}` does not exist")
            return self.known(node, getattr(base.thing, node.attr))
        if isinstance(base, Literal) or not isinstance(base.shape, StructShape):
            raise self.error(node, f"`{ast.unparse(node.value)}` is not a struct and has no field {node.attr}")
        struct = base.shape.struct
        shape = field_shapes(struct).get(node.attr)
        if shape is None:
            raise self.error(node, f"{struct.__name__} has no field {node.attr}")
        kind, number = self.module.struct_type(struct), self.module.field_index(struct, node.attr)
        indices = [HALF(0), HALF(number)]
        return LValue(shape, self.builder.gep(base.ir, indices, inbounds=True, source_etype=kind))

    def _item(self, node: ast.Subscript, base: Operand) -> Value | LValue:
        if not isinstance(base, Value) or not isinstance(base.shape, ArrayShape):
            raise self.error(node, f"`{ast.unparse(node.value)}` is not an array and has no elements")
        if isinstance(node.slice, ast.Slice):
            raise self.error(node, "slices are not part of the kernel language; use offset() and copy()")
        element = base.shape.element
        kind = self.module.element_type(element)
        pointer = self.builder.gep(base.ir, [self.index(node.slice)], inbounds=True, source_etype=kind)
        return Value(element, pointer) if isinstance(element, StructShape) else LValue(element, pointer)

    # One method for each kind of node.

    def _name(self, node: ast.Name) -> Operand:
        local = self.locals.get(node.id)
        if local is None:
            return self.lookup(node)
        return load(self.builder, local) if isinstance(local, LValue) else local

    def _constant(self, node: ast.Constant) -> Operand:
        if isinstance(node.value, bool | int):
            return self.known(node, node.value)
        raise self.error(node, f"`{ast.unparse(node)}` is not part of the kernel language")

    def _read(self, node: ast.Attribute | ast.Subscript) -> Operand:
        member = self._member(node, self.evaluate(node.value))
        return load(self.builder, member) if isinstance(member, LValue) else member

    def _binary(self, node: ast.BinOp) -> Operand:
        left = self.evaluate(node.left)
        return self.combine(node, node.op, left, self.evaluate(node.right))

    def combine(self, node: ast.BinOp | ast.AugAssign, op: ast.operator, left: Operand, right: Operand) -> Operand:
        """Return `left op right`."""
        if type(op) not in operators.EXACT:
            raise self.error(
                node, f"`{ast.unparse(node)}`: this operator is not part of the kernel language; use //, %, <<"
            )
        if isinstance(left, Literal) and isinstance(right, Literal):
            return self._exact(node, op, left.number, right.number)
        first, second, shape = self.of_one_shape(node, left, right)
        if shape == BOOL and not isinstance(op, operators.BITWISE):
            raise self.error(node, "bool is not a number: cast with as_u64()")
        if isinstance(right, Literal) and right.number == 0 and isinstance(op, ast.FloorDiv | ast.Mod):
            raise self.error(node, "division by zero")
        return operators.calculate(self.builder, op, shape, first.ir, second.ir)

    def _exact(self, node: ast.AST, op: ast.operator, left: int, right: int) -> Literal:
        if isinstance(op, ast.LShift) and right > 64:
            raise self.error(node, f"{left} << {right} fits no type")
        try:
            return Literal(operators.EXACT[type(op)](left, right))
        except (ZeroDivisionError, ValueError) as error:
            raise self.error(node, str(error)) from None

    def of_one_shape(self, node: ast.AST, left: Operand, right: Operand) -> tuple[Value, Value, Scalar]:
        """Return both operands as values of the shape that one of them has."""
        if isinstance(left, Literal):
            second = self.number(node, right)
            first = self.fit(node, left, second.shape)
        else:
            first = self.number(node, left)
            second = self.fit(node, right, first.shape) if isinstance(right, Literal) else self.number(node, right)
        if first.shape != second.shape or not isinstance(first.shape, Scalar):
            raise self.error(
                node, f"{first.shape} and {second.shape} do not mix: cast one of them with as_{first.shape}()"
            )
        return first, second, first.shape

    def _unary(self, node: ast.UnaryOp) -> Operand:
        if isinstance(node.op, ast.Not):
            return self._truth_value(node)
        operand = self.evaluate(node.operand)
        if isinstance(operand, Literal):
            number = operand.number
            exact = -number if isinstance(node.op, ast.USub) else ~number if isinstance(node.op, ast.Invert) else number
            return Literal(exact)
        value = self.number(node, operand)
        if value.shape == BOOL:
            raise self.error(node, "bool is not a number: write `not`, or cast with as_u64()")
        if isinstance(node.op, ast.UAdd):
            return value
        emit = self.builder.neg if isinstance(node.op, ast.USub) else self.builder.not_
        return Value(value.shape, emit(value.ir))

    def _compare(self, node: ast.Compare) -> Value:
        for op in node.ops:
            if type(op) not in operators.COMPARISONS:
                text = f"`{ast.unparse(node)}`: `is` and `in` are not part of the kernel language"
                raise self.error(node, f"{text}; a null pointer has address(p) == 0")
        if len(node.ops) > 1:
            return self._truth_value(node)
        left = self.evaluate(node.left)
        return self._relation(node, node.ops[0], left, self.evaluate(node.comparators[0]))

    def _relation(self, node: ast.Compare, op: ast.cmpop, left: Operand, right: Operand) -> Value:
        for side in (left, right):
            if isinstance(side, Value) and not isinstance(side.shape, Scalar):
                raise self.error(node, "pointers are compared by address(): address(p) == 0, address(p) == address(q)")
        if isinstance(left, Literal) and isinstance(right, Literal):
            return constant(BOOL, operators.EXACT[type(op)](left.number, right.number))
        first, second, shape = self.of_one_shape(node, left, right)
        return operators.compare(self.builder, op, shape, first.ir, second.ir)

    # Truth: and, or, not and chains are jumps.

    def branch(self, node: ast.expr, yes: Any, no: Any) -> None:  # noqa: ANN401 - llvmlite is untyped
        """Branch to one block or the other by the truth of an expression."""
        if isinstance(node, ast.BoolOp):
            for part in node.values[:-1]:
                more = self.block("and" if isinstance(node.op, ast.And) else "or")
                self.branch(part, *((more, no) if isinstance(node.op, ast.And) else (yes, more)))
                self.start(more)
                if self.dead:
                    return
            self.branch(node.values[-1], yes, no)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.branch(node.operand, no, yes)
        elif isinstance(node, ast.Compare) and len(node.ops) > 1:
            self._branch_chain(node, yes, no)
        else:
            self.fork(self._truth(node), yes, no)

    def _branch_chain(self, node: ast.Compare, yes: Any, no: Any) -> None:  # noqa: ANN401 - llvmlite is untyped
        left = self.evaluate(node.left)
        for op, comparator in zip(node.ops[:-1], node.comparators[:-1], strict=True):
            right = self.evaluate(comparator)
            more = self.block("and")
            self.fork(self._relation(node, op, left, right).ir, more, no)
            self.start(more)
            if self.dead:
                return
            left = right
        self.fork(self._relation(node, node.ops[-1], left, self.evaluate(node.comparators[-1])).ir, yes, no)

    def _truth(self, node: ast.expr) -> Any:  # noqa: ANN401 - llvmlite is untyped
        operand = self.evaluate(node)
        if isinstance(operand, Literal):
            return BIT(int(operand.number != 0))
        if isinstance(operand, Value) and not isinstance(operand.shape, Scalar):
            raise self.error(node, "a pointer has no truth value: write address(p) != 0")
        value = self.number(node, operand)
        return value.ir if value.shape == BOOL else self.builder.icmp_unsigned("!=", value.ir, value.ir.type(0))

    def _truth_value(self, node: ast.expr) -> Value:
        yes, no, merged = self.block("true"), self.block("false"), self.block("truth")
        self.branch(node, yes, no)
        ways = [(truth, block) for truth, block in ((1, yes), (0, no)) if block in self.reached]
        for block in (yes, no):
            self.start(block)
            self.go(merged)
        self.start(merged)
        if len(ways) == 1:
            return constant(BOOL, ways[0][0])
        phi = self.builder.phi(BIT)
        for truth, block in ways:
            phi.add_incoming(BIT(truth), block)
        return Value(BOOL, phi)

    def _boolean(self, node: ast.BoolOp) -> Value:
        for part in node.values:
            if isinstance(part, ast.Constant) and not isinstance(part.value, bool):
                raise self.error(part, "`and` and `or` give truth values here, not one of their operands")
        return self._truth_value(node)

    def _choice(self, node: ast.IfExp, expected: Shape | None) -> Operand:
        yes, no, merged = self.block("then"), self.block("else"), self.block("chosen")
        self.branch(node.test, yes, no)
        ways: list[tuple[ast.expr, Operand, Any]] = []
        for block, branch in ((yes, node.body), (no, node.orelse)):
            self.start(block)
            if not self.dead:
                operand = self.evaluate(branch, expected)
                ways.append((branch, operand, self.builder.block))
        shape = self._shape_of_choice(node, [operand for _, operand, _ in ways], expected)
        incoming = []
        for branch, operand, block in ways:
            self.builder.position_at_end(block)
            incoming.append((self.fit(branch, operand, shape).ir, block))
            self.go(merged)
        self.start(merged)
        if len(incoming) == 1:
            return Value(shape, incoming[0][0])
        phi = self.builder.phi(value_type(shape))
        for value, block in incoming:
            phi.add_incoming(value, block)
        return Value(shape, phi)

    def _shape_of_choice(self, node: ast.IfExp, operands: list[Operand], expected: Shape | None) -> Shape:
        shapes = [operand.shape for operand in operands if isinstance(operand, Value)]
        if any(isinstance(operand, Static) for operand in operands):
            raise self.error(node, "a choice is between numbers or pointers")
        return shapes[0] if shapes else expected or U64

    # Calls.

    def call(self, node: ast.Call) -> Operand | None:
        """Translate a call; None is a call without a result."""
        callee = self.evaluate(node.func)
        if not isinstance(callee, Static):
            raise self.error(node, f"`{ast.unparse(node.func)}` cannot be called")
        if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            raise self.error(node, "arguments are passed by position")
        if isinstance(callee.thing, FunctionType):
            raise self.error(node, f"{callee.thing.name} is a function type: call one with invoke()")
        if isinstance(callee.thing, Function):
            values = self.arguments(node, callee.thing, node.args)
            return self.result_of(callee.thing, self.builder.call(self.module.function(callee.thing), values))
        lowering = LOWERINGS.get(callee.thing) if callable(callee.thing) else None
        if lowering is None:
            raise self.error(
                node, f"`{ast.unparse(node.func)}` is neither a kernel nor an operation of the kernel language"
            )
        if lowering.arguments is not None and len(node.args) != lowering.arguments:
            raise self.error(
                node, f"{ast.unparse(node.func)} takes {lowering.arguments} arguments, not {len(node.args)}"
            )
        return lowering.emit(self, node)

    def arguments(self, node: ast.Call, callee: Function[..., object], given: Sequence[ast.expr]) -> list[Any]:
        """Return the arguments of a call as values of the function's parameter shapes."""
        shapes = callee.signature.shapes
        if len(given) != len(shapes):
            raise self.error(node, f"{callee.name} takes {len(shapes)} arguments, not {len(given)}")
        return [self.value(argument, shape).ir for argument, shape in zip(given, shapes, strict=True)]

    @staticmethod
    def result_of(callee: Function[..., object], called: Any) -> Value | None:  # noqa: ANN401 - llvmlite is untyped
        """Return the result of a call, if the function has one."""
        shape = callee.signature.result
        return None if shape is None else Value(shape, called)

    def _call_for_value(self, node: ast.Call) -> Operand:
        result = self.call(node)
        if result is None:
            raise self.error(node, f"{ast.unparse(node.func)} returns no value")
        return result

    _expressions: ClassVar[dict[type[ast.expr], Callable[[Any, Any], Operand]]] = {
        ast.Name: _name,
        ast.Constant: _constant,
        ast.Attribute: _read,
        ast.Subscript: _read,
        ast.BinOp: _binary,
        ast.UnaryOp: _unary,
        ast.Compare: _compare,
        ast.BoolOp: _boolean,
        ast.Call: _call_for_value,
    }
