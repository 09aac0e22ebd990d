"""Statements of the kernel language, and the translation of a whole kernel."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dataplane.native.kernels import Kernel
from dataplane.native.scalars import BOOL, U64, Scalar
from dataplane.native.shapes import InlineShape, NestedShape
from dataplane.native.translation import operators
from dataplane.native.translation.expressions import Expressions
from dataplane.native.translation.frame import Loop
from dataplane.native.translation.values import Literal, LValue, Static, Value, load, store

if TYPE_CHECKING:
    from dataplane.native.module import Module


def translate(module: Module, kernel: Kernel[..., object], function: Any) -> None:  # noqa: ANN401
    """Give a declared function the body of its kernel."""
    Statements(module, kernel, function).translate()


class Statements(Expressions):
    """Translates statements."""

    def translate(self) -> None:
        """Translate the whole kernel."""
        self.bind_parameters()
        body = self.builder.block
        self.run(self.kernel.tree.body)
        if not self.dead:
            if self.result is not None:
                raise self.error(self.kernel.tree.body[-1], f"{self.kernel.name} can end without returning a value")
            self.builder.ret_void()
        self.entry.branch(body)

    def run(self, statements: Sequence[ast.stmt]) -> None:
        """Translate statements until one never completes."""
        for statement in statements:
            if self.dead:
                return
            handler = self._statements.get(type(statement))
            if handler is None:
                text = ast.unparse(statement).splitlines()[0]
                raise self.error(statement, f"`{text}` is not part of the kernel language")
            handler(self, statement)

    def _expression(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.call(node.value)
        elif not isinstance(node.value, ast.Constant):
            raise self.error(node, f"`{ast.unparse(node)}` has no effect")

    def _pass(self, node: ast.Pass) -> None:
        del node

    def _return(self, node: ast.Return) -> None:
        if node.value is None or self.result is None:
            if node.value is not None or self.result is not None:
                wanted = "no value" if self.result is None else str(self.result)
                raise self.error(node, f"{self.kernel.name} returns {wanted}")
            self.builder.ret_void()
        else:
            self.builder.ret(self.value(node.value, self.result).ir)

    def _assign(self, node: ast.Assign) -> None:
        target = node.targets[0]
        if len(node.targets) > 1 or isinstance(target, ast.Tuple | ast.List | ast.Starred):
            raise self.error(node, "one assignment has one target")
        if isinstance(target, ast.Name):
            existing = self.locals.get(target.id)
            operand = self.evaluate(node.value, existing.shape if existing else None)
            self._set_local(node, target.id, operand)
            return
        if isinstance(node.value, ast.IfExp):  # a choice between literals needs its target's type
            lvalue = self.place(target)
            operand = self.evaluate(node.value, lvalue.shape)
        else:
            operand = self.evaluate(node.value)
            lvalue = self.place(target)
        store(self.builder, self.fit(node.value, operand, lvalue.shape), lvalue)

    def _set_local(self, node: ast.AST, name: str, operand: Value | Literal | Static) -> None:
        existing = self.locals.get(name)
        if isinstance(operand, Static):
            raise self.error(
                node, f"{name} would not be a value, but {getattr(operand.thing, '__name__', operand.thing)}"
            )
        if existing is not None:
            value = self.fit(node, operand, existing.shape)
        elif isinstance(operand, Literal):
            if operand.number < 0:
                raise self.error(node, f"{name} starts negative: annotate it, as in `{name}: i64 = {operand.number}`")
            value = self.fit(node, operand, U64)
        else:
            value = operand
        store(self.builder, value, self.declare(node, name, value.shape if existing is None else existing.shape))

    def _annotated(self, node: ast.AnnAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise self.error(node, "only locals are annotated")
        shape = self.shape(node.annotation)
        if isinstance(shape, InlineShape):
            raise self.error(node, "Inline is for fields; elements in the frame are stack_array()")
        if isinstance(shape, NestedShape):
            raise self.error(node, "InPlace is for fields; a local of struct type is a reference")
        value = None if node.value is None else self.value(node.value, shape)
        variable = self.declare(node, node.target.id, shape)
        if value is not None:
            store(self.builder, value, variable)

    def _augmented(self, node: ast.AugAssign) -> None:
        lvalue = self._target_of_change(node.target)
        before = load(self.builder, lvalue)
        operand = self.evaluate(node.value, lvalue.shape)
        result = self.combine(node, node.op, before, operand)
        store(self.builder, self.fit(node, result, lvalue.shape), lvalue)

    def _target_of_change(self, target: ast.expr) -> LValue:
        if isinstance(target, ast.Name) and target.id not in self.locals:
            raise self.error(target, f"{target.id} is used before it is assigned")
        return self.place(target)

    # Choice and loops.

    def _if(self, node: ast.If) -> None:
        yes, no, after = self.block("then"), self.block("else"), self.block("endif")
        self.branch(node.test, yes, no)
        for block, statements in ((yes, node.body), (no, node.orelse)):
            self.start(block)
            self.run(statements)
            self.go(after)
        self.start(after)

    def _while(self, node: ast.While) -> None:
        if node.orelse:
            raise self.error(node.orelse[0], "a loop has no else")
        test, body, after = self.block("while"), self.block("do"), self.block("endwhile")
        self.go(test)
        self.start(test)
        self.branch(node.test, body, after)
        self._loop_body(node.body, body, Loop(test, after))
        self.go(test)
        self.start(after)

    def _loop_body(self, statements: Sequence[ast.stmt], body: Any, loop: Loop) -> None:  # noqa: ANN401
        self.start(body)
        self.loops.append(loop)
        self.run(statements)
        self.loops.pop()

    def _break(self, node: ast.Break) -> None:
        del node
        self.go(self.loops[-1].after)

    def _continue(self, node: ast.Continue) -> None:
        del node
        self.go(self.loops[-1].again)

    def _for(self, node: ast.For) -> None:
        """Count as Python does: bounds are evaluated once, and changes of the variable do not affect the count."""
        if node.orelse:
            raise self.error(node.orelse[0], "a loop has no else")
        if not isinstance(node.target, ast.Name):
            raise self.error(node, "a loop has one variable")
        start, stop, step, shape = self._range(node)
        count = LValue(shape, self.reserve(start.ir.type))
        store(self.builder, start, count)
        body, latch, after = self.block("for"), self.block("next"), self.block("endfor")
        less = operators.compare(self.builder, ast.Lt(), shape, start.ir, stop.ir)
        self.fork(less.ir, body, after)
        self.start(body)
        if not self.dead:
            now = load(self.builder, count)
            self._set_local(node, node.target.id, now)
            self._loop_body(node.body, body, Loop(latch, after))
            self.go(latch)
            self.start(latch)
            self._next(count, stop, step, body, after)
        self.start(after)

    def _next(self, count: LValue, stop: Value, step: int, body: Any, after: Any) -> None:  # noqa: ANN401
        """Loop again while a step remains; neither the sum nor the difference can overflow here."""
        if self.dead or not isinstance(count.shape, Scalar):
            return
        now = load(self.builder, count).ir
        left = self.builder.sub(stop.ir, now)
        more = self.builder.icmp_unsigned(">", left, now.type(step))
        flags = ("nsw",) if count.shape.signed else ("nuw",)
        ahead = self.builder.add(now, now.type(step), flags=flags)
        if step == 1:
            more = operators.compare(self.builder, ast.Lt(), count.shape, ahead, stop.ir).ir
        store(self.builder, Value(count.shape, ahead), count)
        self.fork(more, body, after)

    def _range(self, node: ast.For) -> tuple[Value, Value, int, Scalar]:
        """Return start, stop, step and the shape of the variable of `for i in range(...)`."""
        call = node.iter
        if not isinstance(call, ast.Call) or self.evaluate(call.func) != Static(range) or call.keywords:
            raise self.error(node, "a kernel iterates over range(...) only")
        if not 1 <= len(call.args) <= 3:
            raise self.error(node, "range takes one to three numbers")
        existing = self.locals.get(node.target.id) if isinstance(node.target, ast.Name) else None
        expected = existing.shape if existing else None
        bounds = [self.evaluate(argument, expected) for argument in call.args]
        start, stop = (Literal(0), bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
        step = bounds[2] if len(bounds) == 3 else Literal(1)
        if not isinstance(step, Literal) or step.number < 1:
            raise self.error(node, "the step of a range is a positive constant")
        if isinstance(start, Literal) and isinstance(stop, Literal):
            shape = expected if isinstance(expected, Scalar) else U64
        else:
            shape = self._scalar(node, stop if isinstance(start, Literal) else start)
        self.fit(call, step, shape)
        return self.fit(call, start, shape), self.fit(call, stop, shape), step.number, shape

    def _scalar(self, node: ast.AST, operand: Value | Literal | Static) -> Scalar:
        shape = self.number(node, operand).shape
        if not isinstance(shape, Scalar) or shape == BOOL:
            raise self.error(node, f"a range takes numbers, not {shape}")
        return shape

    _statements: ClassVar[dict[type[ast.stmt], Callable[[Any, Any], None]]] = {
        ast.Expr: _expression,
        ast.Pass: _pass,
        ast.Return: _return,
        ast.Assign: _assign,
        ast.AnnAssign: _annotated,
        ast.AugAssign: _augmented,
        ast.If: _if,
        ast.While: _while,
        ast.Break: _break,
        ast.Continue: _continue,
        ast.For: _for,
    }
