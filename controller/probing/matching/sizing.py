"""An operator's sizes in another kind's terms: of a user's function by its arguments, of a relative by its definition.

The sizes of a user's function are those of its arguments: `arg0_0` and `arg0_1` are the rows and columns of the first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

from controller.cluster.operators.errors import OperatorError
from controller.cluster.operators.kinds import work_of
from controller.cluster.operators.values import Operator

Sizes = dict[str, int]
_ARGUMENT: Final = re.compile(r"arg(\d+)_(\d+)")


def sizes_as(operator: Operator, kind: str) -> Sizes | None:
    """Return an operator's sizes as a kind names them, None if they cannot be derived."""
    sizes = dict(operator.shape)
    if operator.kind == kind:
        return sizes
    if operator.code:
        arguments = _arguments(sizes)
        return _OF_ARGUMENTS[kind](arguments) if arguments and kind in _OF_ARGUMENTS else None
    change = _OF_RELATIVES.get((operator.kind, kind))
    try:
        return None if change is None else change(sizes)
    except KeyError:
        # An operator declared without all sizes of its kind.
        return None


def as_kind(operator: Operator, kind: str) -> Operator:
    """Return an operator with its sizes as a kind names them, without sizes if they cannot be derived."""
    return Operator.of(operator.name, kind, sizes_as(operator, kind) or {}, operator.number_format, operator.executions)


def work_ratio(operator: Operator, other: Operator) -> float | None:
    """Return the work of an operator over another one's: operations of one unit, else bytes; None if unknown."""
    try:
        own, others = work_of(operator), work_of(other)
    except OperatorError:
        return None
    if own is None or others is None:
        return None
    if own.unit == others.unit and own.operations and others.operations:
        return own.operations / others.operations
    moved = own.read_bytes + own.written_bytes, others.read_bytes + others.written_bytes
    return moved[0] / moved[1] if all(moved) else None


def _arguments(sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
    """Return the shapes of a function's arguments that are arrays, in their order."""
    shapes: dict[int, dict[int, int]] = {}
    for name, size in sizes.items():
        if part := _ARGUMENT.fullmatch(name):
            shapes.setdefault(int(part[1]), {})[int(part[2])] = size
    return [tuple(size for _, size in sorted(axes.items())) for _, axes in sorted(shapes.items())]


def _of_dimensions(shapes: list[tuple[int, ...]], count: int) -> list[tuple[int, ...]]:
    return [shape for shape in shapes if len(shape) == count]


def _product(shapes: list[tuple[int, ...]]) -> Sizes | None:
    planes = _of_dimensions(shapes, 2)
    if len(planes) < 2 or planes[0][1] != planes[1][0]:
        return None
    return {"m": planes[0][0], "k": planes[0][1], "n": planes[1][1]}


def _matrix_vector(shapes: list[tuple[int, ...]]) -> Sizes | None:
    planes = _of_dimensions(shapes, 2)
    return {"m": planes[0][0], "n": planes[0][1]} if planes else None


def _sparse(shapes: list[tuple[int, ...]]) -> Sizes | None:
    lines = sorted(shape[0] for shape in _of_dimensions(shapes, 1))
    if len(lines) < 4:
        return None
    # Rows are one less than their starts; the vectors match the matrix's width and height.
    rows = lines[0]
    return {"nonzeros": lines[-1], "rows": rows, "columns": rows}


def _grid(shapes: list[tuple[int, ...]]) -> Sizes | None:
    if not shapes:
        return None
    *planes, rows, columns = (1, *shapes[0]) if len(shapes[0]) == 1 else shapes[0]
    return {"rows": rows, "columns": columns, **({"planes": math.prod(planes)} if planes else {})}


def _planes(shapes: list[tuple[int, ...]]) -> Sizes | None:
    planes = sorted(_of_dimensions(shapes, 2), key=math.prod, reverse=True)
    if len(planes) < 2:
        return None
    image, kernel = planes[0], planes[-1]
    out = [max(image[axis] - kernel[axis] + 1, 1) for axis in (0, 1)]
    sizes = {"batch": 1, "in_channels": 1, "out_channels": 1, "in_height": image[0], "in_width": image[1]}
    return sizes | {"out_height": out[0], "out_width": out[1], "kernel_height": kernel[0], "kernel_width": kernel[1]}


def _numbers(shapes: list[tuple[int, ...]]) -> Sizes | None:
    return {"n": max(map(math.prod, shapes))} if shapes else None


def _rows(shapes: list[tuple[int, ...]]) -> Sizes | None:
    return {"rows": max(shape[0] for shape in shapes), "row_bytes": 8} if shapes else None


def _accesses(shapes: list[tuple[int, ...]]) -> Sizes | None:
    counts = sorted(map(math.prod, shapes))
    return {"words": counts[-1], "updates": counts[0]} if counts else None


_OF_ARGUMENTS: Final[Mapping[str, Callable[[list[tuple[int, ...]]], Sizes | None]]] = {
    "gemm": _product,
    "gemv": _matrix_vector,
    "spmv": _sparse,
    "stencil": _grid,
    "conv2d": _planes,
    "sort": _rows,
    "random-access": _accesses,
    **dict.fromkeys(
        ("dot", "axpy", "stream-triad", "fft", "trigonometric", "reduction", "scan", "elementwise", "copy"), _numbers
    ),
}


def _same_n(sizes: Sizes) -> Sizes:
    return {"n": sizes["n"]}


def _spmv(sizes: Sizes) -> Sizes:
    return {name: sizes[name] for name in ("rows", "columns", "nonzeros")}


def _cube(sizes: Sizes) -> Sizes:
    return dict.fromkeys("mnk", sizes["n"])


_VECTORS: Final = ("axpy", "stream-triad", "elementwise", "copy", "dot", "reduction", "scan")
_SQUARE: Final = ("factorise", "inverse", "cholesky")
_OF_RELATIVES: Final[Mapping[tuple[str, str], Callable[[Sizes], Sizes]]] = {
    **{(kind, other): _same_n for kind in _VECTORS for other in _VECTORS if kind != other},
    **{(kind, other): _same_n for kind in _SQUARE for other in _SQUARE if kind != other},
    **{(kind, "solve"): lambda sizes: {"n": sizes["n"], "columns": 1} for kind in _SQUARE},
    **{("solve", other): _same_n for other in _SQUARE},
    **{(kind, "gemm"): _cube for kind in (*_SQUARE, "solve")},
    ("spmm", "spmv"): _spmv,
    ("complex-gemm", "gemm"): lambda sizes: {"m": sizes["m"], "n": 2 * sizes["n"], "k": 2 * sizes["k"]},
    ("complex-gemv", "gemv"): lambda sizes: {"m": 2 * sizes["m"], "n": 2 * sizes["n"]},
    ("complex-dot", "dot"): lambda sizes: {"n": 2 * sizes["n"]},
    ("top-n", "filter"): lambda sizes: sizes,
    ("table-scan", "filter"): lambda sizes: {**sizes, "kept_rows": sizes["rows"]},
}
"""Sizes of a kind in terms of a related one."""
