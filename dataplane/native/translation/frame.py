"""The state of one kernel's translation: its blocks, locals and scope, and the rules for values."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from dataplane.native.constants import ConstantTable, ProcessTable, element_of_tuple
from dataplane.native.errors import NativeError
from dataplane.native.kernels import Kernel
from dataplane.native.scalars import BOOL, U64, Scalar
from dataplane.native.shapes import ArrayShape, Shape, StructShape, resolve, shape_of
from dataplane.native.translation.values import (
    BYTE,
    Builder,
    Literal,
    LValue,
    Operand,
    Static,
    Value,
    constant,
    store,
    untyped_alloca,
    value_type,
)

if TYPE_CHECKING:
    from dataplane.native.module import Module


@dataclass(frozen=True, slots=True)
class Loop:
    """Targets of `continue` and `break`."""

    again: Any
    after: Any


class Frame:
    """One kernel's translation to LLVM: statements and expressions extend it."""

    def __init__(self, module: Module, kernel: Kernel[..., object], function: Any) -> None:  # noqa: ANN401
        self.module, self.kernel, self.function = module, kernel, function
        self.result = kernel.signature.result
        self.closure = kernel.closure
        self.scope = kernel.function.__globals__
        self.entry = Builder(function.append_basic_block("entry"))
        self.builder = Builder(function.append_basic_block("body"))
        self.reached = {self.builder.block}
        self.locals: dict[str, LValue | Value] = {}
        self.loops: list[Loop] = []
        self.assigned = {
            node.id for node in ast.walk(kernel.tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }

    def error(self, node: ast.AST, problem: str) -> NativeError:
        """Return an error that names the node's line."""
        return self.kernel.error(problem, getattr(node, "lineno", self.kernel.line))

    # Blocks. A block that nothing branches to ends at once, and its content is not translated.

    @property
    def dead(self) -> bool:
        """Return whether the code here is unreachable."""
        return bool(self.builder.block.is_terminated)

    def block(self, name: str) -> Any:  # noqa: ANN401 - llvmlite is untyped
        """Return a new block without predecessors."""
        return self.function.append_basic_block(name)

    def go(self, target: Any) -> None:  # noqa: ANN401 - llvmlite is untyped
        """End the current block, unless it has already ended, with a jump."""
        if not self.dead:
            self.builder.branch(target)
            self.reached.add(target)

    def fork(self, truth: Any, yes: Any, no: Any) -> None:  # noqa: ANN401 - llvmlite is untyped
        """End the current block with a conditional branch; a known condition gives a jump."""
        if isinstance(truth, ir.Constant):
            self.go(yes if truth.constant else no)
            return
        self.builder.cbranch(truth, yes, no)
        self.reached |= {yes, no}

    def start(self, block: Any) -> None:  # noqa: ANN401 - llvmlite is untyped
        """Continue at the beginning of a block once all jumps to it exist."""
        self.builder.position_at_end(block)
        if block not in self.reached:
            self.builder.unreachable()

    # Names.

    def lookup(self, node: ast.Name) -> Operand:
        """Return the operand for a name that is not a local."""
        if node.id in self.assigned:
            raise self.error(node, f"{node.id} is used before it is assigned")
        in_module = node.id not in self.closure
        return self.known(node, self.thing(node), node.id if in_module else None)

    def thing(self, node: ast.expr) -> object:
        """Return the Python object for a name or a dotted name."""
        if isinstance(node, ast.Name) and node.id not in self.locals:
            for names in (self.closure, self.scope, vars(builtins)):
                if node.id in names:
                    return names[node.id]
            raise self.error(node, f"{node.id} is not defined")
        if isinstance(node, ast.Attribute):
            return getattr(self.thing(node.value), node.attr, None)
        raise self.error(node, f"`{ast.unparse(node)}` is not known before the kernel runs")

    def known(self, node: ast.AST, thing: object, variable: str | None = None) -> Operand:
        """Return a Python object as an operand; `variable` is the module's name for it, which may be annotated."""
        if isinstance(thing, bool):
            return constant(BOOL, int(thing))
        if isinstance(thing, int):
            return Literal(int(thing))
        if isinstance(thing, ConstantTable | ProcessTable):
            return Value(ArrayShape(thing.element), self.module.table(thing))
        if isinstance(thing, tuple) and thing and all(type(item) is int for item in thing):
            table = ConstantTable(self._element(variable), thing)
            return Value(ArrayShape(table.element), self.module.table(table))
        if isinstance(thing, list | dict | set | float | str | bytes):
            raise self.error(node, f"a {type(thing).__name__} cannot be used in a kernel; number tables are tuples")
        return Static(thing)

    def _element(self, variable: str | None) -> Scalar:
        text = self.scope.get("__annotations__", {}).get(variable)
        if not isinstance(text, str):
            return U64
        where = f"{self.kernel.file}: {variable}"
        text = text.removeprefix("Final[").removesuffix("]") if text.startswith("Final[") else text
        return element_of_tuple(resolve(text, self.scope, where), where) or U64

    def shape(self, node: ast.expr) -> Shape:
        """Return the shape of an annotation or a type argument in the source."""
        text = ast.unparse(node)
        try:
            return shape_of(resolve(text, {**self.scope, **self.closure}, "here"), "here")
        except NameError as error:
            raise self.error(node, str(error)) from None
        except NativeError as error:
            raise self.error(node, error.problem) from None

    # Values.

    def fit(self, node: ast.AST, operand: Operand, shape: Shape) -> Value:
        """Return the operand as a value of a shape; a literal adapts, anything else must already have it."""
        if isinstance(operand, Literal):
            return self._adapt(node, operand.number, shape)
        if isinstance(operand, Static):
            raise self.error(node, f"{_describe(operand.thing)} is not a value")
        if operand.shape == shape or _stands_for(operand.shape, shape):
            return operand
        cast = f": cast with as_{shape}()" if _castable(operand.shape, shape) else ""
        raise self.error(node, f"this is {operand.shape}, where {shape} is needed{cast}")

    def _adapt(self, node: ast.AST, number: int, shape: Shape) -> Value:
        if not isinstance(shape, Scalar):
            raise self.error(node, f"this is a number, where {shape} is needed: use view() or array_at()")
        if shape == BOOL:
            raise self.error(node, f"this is a number, where bool is needed: write {bool(number)} or compare")
        if not shape.low <= number <= shape.high:
            raise self.error(node, f"{number} does not fit {shape}")
        return constant(shape, number)

    def number(self, node: ast.AST, operand: Operand) -> Value:
        """Return the operand as a number or truth value; a literal is a u64."""
        value = self.fit(node, operand, U64) if isinstance(operand, Literal) else operand
        if isinstance(value, Value) and isinstance(value.shape, Scalar):
            return value
        what = value.shape if isinstance(value, Value) else _describe(value.thing)
        raise self.error(node, f"this is {what}, where a number is needed")

    def declare(self, node: ast.AST, name: str, shape: Shape) -> LValue:
        """Return the memory of a local, made at its first assignment; it is 0 until assigned."""
        existing = self.locals.get(name)
        if existing is None:
            variable = LValue(shape, self.reserve(BYTE if shape == BOOL else value_type(shape)))
            self.entry.store(ir.Constant(BYTE if shape == BOOL else value_type(shape), None), variable.pointer)
            self.locals[name] = variable
            return variable
        if not isinstance(existing, LValue) or existing.shape != shape:
            raise self.error(node, f"{name} is already {existing.shape}, not {shape}")
        return existing

    def reserve(self, allocated: Any) -> Any:  # noqa: ANN401 - llvmlite is untyped
        """Return memory in the kernel's stack frame."""
        return untyped_alloca(self.entry, allocated)

    def bind_parameters(self) -> None:
        """Make locals of the parameters; those that are never assigned stay values."""
        signature = self.kernel.signature
        for name, shape, argument in zip(signature.names, signature.shapes, self.function.args, strict=True):
            argument.name = name
            value = Value(shape, argument)
            if name in self.assigned:
                store(self.builder, value, self.declare(self.kernel.tree, name, shape))
            else:
                self.locals[name] = value


def _stands_for(shape: Shape, wanted: Shape) -> bool:
    """Return whether a pointer to a struct is acceptable where one to its base is wanted."""
    return (
        isinstance(shape, StructShape) and isinstance(wanted, StructShape) and issubclass(shape.struct, wanted.struct)
    )


def _castable(shape: Shape, wanted: Shape) -> bool:
    return isinstance(shape, Scalar) and isinstance(wanted, Scalar) and wanted != BOOL


def _describe(thing: object) -> str:
    return str(getattr(thing, "__name__", thing))
