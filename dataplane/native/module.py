"""A module of LLVM code that kernels, structs and generated code share."""

from __future__ import annotations

import ctypes
import platform
from collections import deque
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from dataplane.native.constants import ConstantTable, ProcessTable
from dataplane.native.kernels import External, Function, Kernel
from dataplane.native.scalars import BOOL, Scalar
from dataplane.native.shapes import InlineShape, NestedShape, Shape, StructShape, ctype_in_memory
from dataplane.native.structs import field_shapes
from dataplane.native.translation.statements import translate
from dataplane.native.translation.values import BYTE, POINTER, value_type


class Module:
    """Kernels, each translated once on demand, alongside whatever else is written to `ir`.

    The compiled library exports the functions that are defined and not internal.
    """

    def __init__(self, name: str) -> None:
        self.ir = ir.Module(name, context=ir.Context())
        self.is_x86 = platform.machine() in ("x86_64", "AMD64")
        self._functions: dict[Function[..., object], Any] = {}
        self._structs: dict[type[ctypes.Structure], tuple[Any, dict[str, int]]] = {}
        self._tables: dict[ConstantTable | ProcessTable, Any] = {}
        self._waiting: deque[Kernel[..., object]] = deque()
        self._translating = False

    def function(self, function: Function[..., object]) -> Any:  # noqa: ANN401 - llvmlite is untyped
        """Return the LLVM function of a kernel, internal unless exported, or of an external function's declaration."""
        existing = self._functions.get(function)
        if existing is not None:
            return existing
        declared = self._declare(function)
        self._functions[function] = declared
        if isinstance(function, Kernel):
            self._waiting.append(function)
            self._translate_waiting()
        return declared

    def export(self, kernel: Kernel[..., object]) -> Any:  # noqa: ANN401 - llvmlite is untyped
        """Export a kernel under its symbol, and return its LLVM function."""
        function = self.function(kernel)
        if function.name != kernel.symbol:
            raise kernel.error(f"another kernel of this module is called {kernel.symbol}: give this one a name")
        function.linkage = ""
        return function

    @property
    def exports(self) -> tuple[str, ...]:
        """Return the names that a compiled library of this module exports."""
        return tuple(f.name for f in self.ir.functions if f.blocks and f.linkage in ("", "external"))

    def struct_type(self, struct: type[ctypes.Structure]) -> Any:  # noqa: ANN401 - llvmlite is untyped
        """Return the LLVM type of a struct, with ctypes' layout."""
        return self._struct(struct)[0]

    def field_index(self, struct: type[ctypes.Structure], name: str) -> int:
        """Return the index of a field in `struct_type`, for a getelementptr."""
        return self._struct(struct)[1][name]

    def element_type(self, element: Shape) -> Any:  # noqa: ANN401 - llvmlite is untyped
        """Return the LLVM type of an array's element; structs are in place."""
        return self.struct_type(element.struct) if isinstance(element, StructShape) else self._memory_type(element)

    def table(self, table: ConstantTable | ProcessTable) -> Any:  # noqa: ANN401 - llvmlite is untyped
        """Return a pointer to the first number of a table."""
        variable = self._tables.get(table)
        if variable is None:
            kind = ir.ArrayType(self._memory_type(table.element), len(table))
            name = table.symbol if isinstance(table, ProcessTable) else self.ir.get_unique_name("table")
            variable = ir.GlobalVariable(self.ir, kind, name)
            variable.linkage, variable.global_constant = "external", True
            if isinstance(table, ConstantTable):
                variable.linkage, variable.initializer = "internal", ir.Constant(kind, list(table.numbers))
            variable.type = POINTER
            self._tables[table] = variable
        return variable

    def intrinsic(self, name: str, result: Any, arguments: Sequence[Any]) -> Any:  # noqa: ANN401
        """Return an LLVM intrinsic function."""
        existing = self.ir.globals.get(name)
        return existing or ir.Function(self.ir, ir.FunctionType(result, arguments), name)

    def _declare(self, function: Function[..., object]) -> Any:  # noqa: ANN401 - llvmlite is untyped
        signature = function.signature
        kind = ir.FunctionType(value_type(signature.result), [value_type(shape) for shape in signature.shapes])
        existing = self.ir.globals.get(function.symbol)
        if isinstance(function, External) and existing is not None:
            if existing.function_type != kind:
                raise function.error(
                    f"{function.symbol} is already {existing.function_type} in this module, not {kind}"
                )
            return existing
        name = function.symbol if existing is None else self.ir.get_unique_name(function.symbol)
        declared = ir.Function(self.ir, kind, name)
        for argument, shape in zip(declared.args, signature.shapes, strict=True):
            _extend(argument, shape)
        _extend(declared.return_value, signature.result)
        declared.attributes.add("nounwind")
        if isinstance(function, Kernel):
            declared.linkage = "internal"
            if function.inline is not None:
                declared.attributes.add("alwaysinline" if function.inline else "noinline")
        return declared

    def _translate_waiting(self) -> None:
        """Translate pending kernels; those referenced by a translation are queued, so that nothing recurses."""
        if self._translating:
            return
        self._translating = True
        try:
            while self._waiting:
                kernel = self._waiting.popleft()
                translate(self, kernel, self._functions[kernel])
        finally:
            self._translating = False
            self._waiting.clear()

    def _memory_type(self, shape: Shape) -> Any:  # noqa: ANN401 - llvmlite is untyped
        if isinstance(shape, InlineShape):
            return ir.ArrayType(self.element_type(shape.element), shape.count)
        if isinstance(shape, NestedShape):
            return self.struct_type(shape.struct)
        return BYTE if shape == BOOL else value_type(shape)

    def _struct(self, struct: type[ctypes.Structure]) -> tuple[Any, dict[str, int]]:
        existing = self._structs.get(struct)
        if existing is not None:
            return existing
        elements: list[Any] = []
        numbers: dict[str, int] = {}
        end = 0
        for name, shape in field_shapes(struct).items():
            begin: int = getattr(struct, name).offset
            if begin > end:
                elements.append(ir.ArrayType(BYTE, begin - end))
            numbers[name] = len(elements)
            elements.append(self._memory_type(shape))
            end = begin + ctypes.sizeof(ctype_in_memory(shape))
        if ctypes.sizeof(struct) > end:
            elements.append(ir.ArrayType(BYTE, ctypes.sizeof(struct) - end))
        kind = self.ir.context.get_identified_type(self._struct_name(struct))
        kind.set_body(*elements)
        self._structs[struct] = kind, numbers
        return kind, numbers

    def _struct_name(self, struct: type[ctypes.Structure]) -> str:
        name = f"{struct.__module__}.{struct.__qualname__}"
        taken = sum(other.__qualname__ == struct.__qualname__ for other in self._structs)
        return f"{name}.{taken}" if taken else name


def _extend(value: Any, shape: Shape | None) -> None:  # noqa: ANN401 - llvmlite is untyped
    """Mark narrow numbers as sign- or zero-extended, as C passes them."""
    if isinstance(shape, Scalar) and shape.bits < 32:
        value.add_attribute("signext" if shape.signed else "zeroext")
