"""Known kinds of operators: the sizes that they have, and how much work they are, where that is well defined.

Bytes are the compulsory ones: each operand read once and each result written once, as if caches held all else. Counts
of operations follow the source that each kind names; where a count depends on the algorithm it is said to be nominal,
or a lower bound, or there is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from controller.cluster.operators.errors import OperatorError
from controller.cluster.operators.values import Operator
from dataplane.topology.values import NumberFormat

_BITS: Final = {
    known: int("".join(filter(str.isdecimal, known.value))) if known is not NumberFormat.TF32 else 32
    for known in NumberFormat
}
"""As they lie in memory: TF32 numbers do in 32 bits."""
_INDEX_BYTES: Final = 4
Sizes = Mapping[str, int]


class Counting(StrEnum):
    """What a count of operations is: that of the definition, a convention, or what no algorithm gets below."""

    EXACT = "exact"
    NOMINAL = "nominal"
    LOWER_BOUND = "lower bound"


@dataclass(frozen=True, slots=True)
class Work:
    """What an execution takes: operations of a unit ("flop", on integers "op", "comparison", ...), bytes read, written.

    `operations` is None where their number depends on the algorithm, `counting` says what number it is else.
    """

    operations: int | None
    unit: str
    counting: Counting
    read_bytes: int
    written_bytes: int

    @property
    def intensity(self) -> float | None:
        """Operations a byte of compulsory traffic (Williams et al., Roofline, CACM 2009), None if not known."""
        nbytes = self.read_bytes + self.written_bytes
        return None if self.operations is None or nbytes == 0 else self.operations / nbytes


@dataclass(frozen=True, slots=True)
class Kind:
    """A known kind: what it computes, the sizes that its shape has, and its work as functions of these.

    `traffic` returns bytes read and written; its second argument is the width of a number in bytes (4 bits are half a
    byte). `optional` are sizes that a shape may leave out, with what they are then. `source` is where the count is
    from; kinds that work on rows of tables (`of_rows`) need no number format.
    """

    meaning: str
    sizes: tuple[str, ...]
    operations: Callable[[Sizes], int] | None
    traffic: Callable[[Sizes, float], tuple[float, float]]
    source: str
    unit: str = "flop"
    counting: Counting = Counting.EXACT
    optional: tuple[tuple[str, int], ...] = ()
    of_rows: bool = False


def work_of(operator: Operator) -> Work | None:
    """Return what one execution of an operator takes, None for a kind that is not known.

    Raises OperatorError for sizes that its kind lacks or does not have, and for numbers without a format.
    """
    if (kind := KINDS.get(operator.kind)) is None:
        return None
    sizes = _sizes(operator, kind)
    if operator.number_format is None and not kind.of_rows:
        raise OperatorError(f"{operator.name}: {operator.kind} of numbers without a format", at="format")
    width = 0.0 if operator.number_format is None else _BITS[operator.number_format] / 8
    read, written = kind.traffic(sizes, width)
    operations = None if kind.operations is None else kind.operations(sizes)
    return Work(operations, _unit(operator, kind), kind.counting, math.ceil(read), math.ceil(written))


def _unit(operator: Operator, kind: Kind) -> str:
    """Return what is counted: what is a floating-point operation else is an integer one on integers."""
    is_integer = operator.number_format is not None and operator.number_format.value.startswith("int")
    return "op" if is_integer and kind.unit == "flop" else kind.unit


def _sizes(operator: Operator, kind: Kind) -> Sizes:
    given = dict(operator.shape)
    if lacking := [name for name in kind.sizes if name not in given]:
        raise OperatorError(f"{operator.name}: {operator.kind} without {', '.join(lacking)}", at="shape")
    optional = dict(kind.optional)
    if strange := sorted(given.keys() - {*kind.sizes, *optional}):
        known = ", ".join((*kind.sizes, *optional))
        raise OperatorError(
            f"{operator.name}: {operator.kind} has no {strange[0]}, only {known}", at=f"shape.{strange[0]}"
        )
    sizes = optional | given
    groups = sizes.get("groups", 1)
    if operator.kind == "conv2d" and (groups < 1 or sizes["in_channels"] % groups or sizes["out_channels"] % groups):
        raise OperatorError(f"{operator.name}: channels cannot be divided into {groups} groups", at="shape.groups")
    return sizes


def _conv2d_operations(s: Sizes) -> int:
    outputs = s["batch"] * s["out_channels"] * s["out_height"] * s["out_width"]
    return 2 * outputs * (s["in_channels"] // s["groups"]) * s["kernel_height"] * s["kernel_width"]


def _conv2d_traffic(s: Sizes, width: float) -> tuple[float, float]:
    inputs = s["batch"] * s["in_channels"] * s["in_height"] * s["in_width"]
    weights = s["out_channels"] * (s["in_channels"] // s["groups"]) * s["kernel_height"] * s["kernel_width"]
    outputs = s["batch"] * s["out_channels"] * s["out_height"] * s["out_width"]
    return (inputs + weights) * width, outputs * width


def _spmv_traffic(s: Sizes, width: float) -> tuple[float, float]:
    """Compressed sparse rows with indices of 32 bits."""
    matrix = s["nonzeros"] * (width + _INDEX_BYTES) + (s["rows"] + 1) * _INDEX_BYTES
    return matrix + s["columns"] * width, s["rows"] * width


def _comparisons_of_sort(s: Sizes) -> int:
    """ceil(log2(n!)): what tells all orders of n rows apart."""
    return math.ceil(math.lgamma(s["rows"] + 1) / math.log(2) - 1e-9)


_BLAS: Final = "Blackford and Dongarra, LAPACK Working Note 41: a multiplication and an addition are two"
_ROWS: Final = "one test of each row"

KINDS: Final[Mapping[str, Kind]] = {
    "gemm": Kind(
        "C = A B, A of m x k, B of k x n: dgemm in fp64, sgemm in fp32",
        ("m", "n", "k"),
        lambda s: 2 * s["m"] * s["n"] * s["k"],
        lambda s, w: ((s["m"] * s["k"] + s["k"] * s["n"]) * w, s["m"] * s["n"] * w),
        _BLAS,
    ),
    "gemv": Kind(
        "y = A x, A of m x n",
        ("m", "n"),
        lambda s: 2 * s["m"] * s["n"],
        lambda s, w: ((s["m"] * s["n"] + s["n"]) * w, s["m"] * w),
        _BLAS,
    ),
    "axpy": Kind(
        "y = a x + y, of n numbers",
        ("n",),
        lambda s: 2 * s["n"],
        lambda s, w: (2 * s["n"] * w, s["n"] * w),
        _BLAS,
    ),
    "fft": Kind(
        "discrete Fourier transform of n complex numbers, `batch` times",
        ("n",),
        lambda s: round(5 * s["n"] * math.log2(s["n"])) * s["batch"] if s["n"] > 1 else 0,
        lambda s, w: (2 * s["n"] * s["batch"] * w, 2 * s["n"] * s["batch"] * w),
        "Frigo and Johnson, benchFFT: 5 n log2(n), whatever the algorithm",
        counting=Counting.NOMINAL,
        optional=(("batch", 1),),
    ),
    "spmv": Kind(
        "y = A x, A sparse with so many nonzeros",
        ("rows", "columns", "nonzeros"),
        lambda s: 2 * s["nonzeros"],
        _spmv_traffic,
        "Williams et al., Optimization of Sparse Matrix-Vector Multiplication, SC 2007: two a nonzero",
    ),
    "conv2d": Kind(
        "convolution of images with kernels, as layers of networks have it, each output summed up directly",
        (
            *("batch", "in_channels", "in_height", "in_width"),
            *("out_channels", "out_height", "out_width", "kernel_height", "kernel_width"),
        ),
        _conv2d_operations,
        _conv2d_traffic,
        "Chetlur et al., cuDNN, 2014: direct; transforms (Winograd, FFT) need fewer",
        counting=Counting.NOMINAL,
        optional=(("groups", 1),),
    ),
    "trigonometric": Kind(
        "a function such as sine of each of n numbers",
        ("n",),
        lambda s: s["n"],
        lambda s, w: (s["n"] * w, s["n"] * w),
        "evaluations: how many operations each takes is the library's",
        unit="evaluation",
    ),
    "filter": Kind(
        "the rows of a table that pass a test",
        ("rows", "row_bytes", "kept_rows"),
        lambda s: s["rows"],
        lambda s, _: (s["rows"] * s["row_bytes"], s["kept_rows"] * s["row_bytes"]),
        _ROWS,
        unit="comparison",
        of_rows=True,
    ),
    "aggregate": Kind(
        "one row for each group of rows, such as a sum",
        ("rows", "row_bytes", "groups", "group_bytes"),
        lambda s: s["rows"],
        lambda s, _: (s["rows"] * s["row_bytes"], s["groups"] * s["group_bytes"]),
        "one update a row",
        unit="update",
        of_rows=True,
    ),
    "join": Kind(
        "pairs of rows of two tables that match; comparisons depend on the algorithm (hash, merge, nested loops)",
        ("left_rows", "left_row_bytes", "right_rows", "right_row_bytes", "out_rows", "out_row_bytes"),
        None,
        lambda s, _: (
            s["left_rows"] * s["left_row_bytes"] + s["right_rows"] * s["right_row_bytes"],
            s["out_rows"] * s["out_row_bytes"],
        ),
        "no count holds for all algorithms",
        unit="comparison",
        of_rows=True,
    ),
    "sort": Kind(
        "rows in order of a key",
        ("rows", "row_bytes"),
        _comparisons_of_sort,
        lambda s, _: (s["rows"] * s["row_bytes"], s["rows"] * s["row_bytes"]),
        "Knuth, The Art of Computer Programming 3, 5.3.1: log2(n!), for orders that comparisons alone tell",
        unit="comparison",
        counting=Counting.LOWER_BOUND,
        of_rows=True,
    ),
}
"""Kinds by name; an operator of another one is allowed, and its work is not known."""
