"""Functions of the kernel language: the decorators' products, and access to their source."""

from __future__ import annotations

import ast
import functools
import linecache
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar, cast, get_type_hints, overload

from dataplane.native.errors import NativeError
from dataplane.native.shapes import InlineShape, NestedShape, Shape, shape_of

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Signature:
    """Parameter and result types of a function; a result of None is no result."""

    names: tuple[str, ...]
    shapes: tuple[Shape, ...]
    result: Shape | None


class Function(Generic[P, R_co]):
    """A typed function that native code can call."""

    def __init__(self, function: Callable[P, R_co], symbol: str) -> None:
        self.function = cast("types.FunctionType", function)
        self.symbol = symbol
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:  # noqa: ARG002 - mypy checks calls by them
        """Raise: only kernels call it; Python calls the result of `Library.bind`."""
        raise NativeError(f"{self.symbol} is native: call it from a kernel, or bind it (see kernel_library)")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.symbol}>"

    @property
    def name(self) -> str:
        """Return the function's name in the source."""
        return self.function.__name__

    @property
    def file(self) -> str:
        """Return the name of the source file."""
        return self.function.__code__.co_filename

    @property
    def line(self) -> int:
        """Return the line of the function's first decorator."""
        return self.function.__code__.co_firstlineno

    @functools.cached_property
    def signature(self) -> Signature:
        """The types of parameters and result, from the annotations."""
        code = self.function.__code__
        names = code.co_varnames[: code.co_argcount]
        if code.co_kwonlyargcount or code.co_flags & 0x0C or self.function.__defaults__:
            raise self.error("a kernel takes plain parameters only: no defaults, no keywords, no stars")
        try:
            hints = get_type_hints(self.function, localns=self.closure, include_extras=True)
        except (NameError, TypeError) as error:
            raise self.error(f"an annotation cannot be resolved: {error}") from None
        if missing := [name for name in (*names, "return") if name not in hints]:
            raise self.error(f"{missing[0]} lacks an annotation")
        shapes = tuple(self._shape(name, hints[name]) for name in names)
        result = hints["return"]
        return Signature(names, shapes, None if result is type(None) else self._shape("return", result))

    def _shape(self, name: str, annotation: object) -> Shape:
        shape = shape_of(annotation, f"{self.file}:{self.line}: {name}")
        if isinstance(shape, InlineShape):
            raise self.error(f"{name}: Inline is for fields; a parameter is an Array")
        if isinstance(shape, NestedShape):
            raise self.error(f"{name}: InPlace is for fields; a parameter is the struct itself")
        return shape

    @property
    def closure(self) -> dict[str, Any]:
        """Return the free variables that the function captured from its enclosing function."""
        cells = zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True)
        return {name: cell.cell_contents for name, cell in cells}

    def error(self, problem: str, line: int | None = None) -> NativeError:
        """Return an error that names the function's file and a line of it."""
        return NativeError(problem, file=self.file, line=self.line if line is None else line)


class Kernel(Function[P, R_co]):
    """A function in the kernel language, translated when a module first needs it."""

    def __init__(self, function: Callable[P, R_co], symbol: str, *, inline: bool | None) -> None:
        super().__init__(function, symbol)
        self.inline = inline

    @functools.cached_property
    def tree(self) -> ast.FunctionDef:
        """The function's source tree, with the file's line numbers."""
        lines = linecache.getlines(self.file, self.function.__globals__)
        tree = _definitions(self.file, tuple(lines)).get(self.line)
        if tree is None:
            raise self.error("the source of this kernel cannot be read")
        return tree


class External(Function[P, R_co]):
    """A C function, or one that other parts of a module define."""


class FunctionType(Function[P, R_co]):
    """The type of functions that are known only by their address at run time."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:  # noqa: ARG002 - as of Function
        """Raise: there is nothing to call."""
        raise NativeError(f"{self.symbol} is a function type: a kernel calls one with invoke()")


@functools.lru_cache(maxsize=64)
def _definitions(file: str, lines: tuple[str, ...]) -> dict[int, ast.FunctionDef]:
    """Return the functions of a file by the line of their first decorator."""
    tree = ast.parse("".join(lines), filename=file)
    return {
        min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]): node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }


@overload
def kernel(function: Callable[P, R_co], /) -> Kernel[P, R_co]: ...
@overload
def kernel(
    *, inline: bool | None = None, name: str | None = None
) -> Callable[[Callable[P, R_co]], Kernel[P, R_co]]: ...
def kernel(
    function: Callable[P, R_co] | None = None, /, *, inline: bool | None = None, name: str | None = None
) -> Kernel[P, R_co] | Callable[[Callable[P, R_co]], Kernel[P, R_co]]:
    """Turn a typed function into a kernel; `inline` forces or forbids inlining, `name` is its exported symbol."""
    if function is not None:
        return Kernel(function, _symbol(function), inline=inline)
    return lambda decorated: Kernel(decorated, name or _symbol(decorated), inline=inline)


def _symbol(function: Callable[..., object]) -> str:
    return f"{function.__module__}.{function.__qualname__}".replace(".<locals>", "")


@overload
def external(function: Callable[P, R_co], /) -> External[P, R_co]: ...
@overload
def external(*, symbol: str) -> Callable[[Callable[P, R_co]], External[P, R_co]]: ...
def external(
    function: Callable[P, R_co] | None = None, /, *, symbol: str | None = None
) -> External[P, R_co] | Callable[[Callable[P, R_co]], External[P, R_co]]:
    """Declare a C function or one of generated code, by its own name or by `symbol`; the body never runs."""
    if function is not None:
        return External(function, function.__name__)
    return lambda decorated: External(decorated, symbol or decorated.__name__)


def signature(function: Callable[P, R_co], /) -> FunctionType[P, R_co]:
    """Declare a function type with C's calling convention; the body never runs."""
    return FunctionType(function, _symbol(function))
