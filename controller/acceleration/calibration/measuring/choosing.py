"""Choice of operators, sizes and code to measure: enough sizes to separate the coefficients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from controller.probing.kernels.built_in import BUILT_IN
from controller.probing.values import Implementation, Library
from dataplane.topology.values import DeviceKind, NumberFormat

_HERE: Final = "controller.acceleration.calibration.measuring"
Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Subject:
    """A kind of operator to measure, with its code and sizes; `tolerance` is the allowed error."""

    kind: str
    number_format: NumberFormat | None
    implementation: Implementation
    sizes: tuple[Sizes, ...]
    tolerance: float

    @property
    def name(self) -> str:
        """Display name."""
        words = (
            self.kind,
            self.number_format or "",
            f"on {self.implementation.device} by {self.implementation.library}",
        )
        return " ".join(filter(None, words))


def _filters(rows: Sequence[int]) -> tuple[Sizes, ...]:
    return tuple(
        {"rows": count, "row_bytes": row_bytes, "kept_rows": count // part}
        for count, row_bytes, part in product(rows, (16, 64), (2, 16))
    )


def _projections(rows: Sequence[int]) -> tuple[Sizes, ...]:
    return tuple(
        {"rows": count, "row_bytes": row_bytes, "expressions": many}
        for count, row_bytes, many in product(rows, (16, 64), (1, 4))
    )


def _joins(rows: Sequence[int]) -> tuple[Sizes, ...]:
    return tuple(
        {
            "left_rows": count,
            "left_row_bytes": 16,
            "right_rows": max(count // part, 1),
            "right_row_bytes": 16,
            "out_rows": max(count // kept, 1),
            "out_row_bytes": 24,
        }
        for count, part, kept in product(rows, (1, 16), (1, 4))
    )


def _aggregates(rows: Sequence[int]) -> tuple[Sizes, ...]:
    return tuple(
        {"rows": count, "row_bytes": row_bytes, "groups": max(count // part, 1), "group_bytes": row_bytes}
        for count, row_bytes, part in product(rows, (16, 48), (8, 1024))
    )


def _sorts(rows: Sequence[int]) -> tuple[Sizes, ...]:
    return tuple({"rows": count, "row_bytes": row_bytes} for count, row_bytes in product(rows, (8, 32, 64)))


def _firsts(rows: Sequence[int]) -> tuple[Sizes, ...]:
    return tuple({"rows": count, "row_bytes": 32, "kept_rows": kept} for count, kept in product(rows, (10, 1000)))


def _scans(rows: Sequence[int]) -> tuple[Sizes, ...]:
    return tuple({"rows": count, "row_bytes": row_bytes} for count, row_bytes in product(rows, (16, 64)))


_TABLES: Final = {
    "filter": _filters,
    "project": _projections,
    "join": _joins,
    "aggregate": _aggregates,
    "sort": _sorts,
    "top-n": _firsts,
    "table-scan": _scans,
}
_OF_PROBES: Final = {"filter": "filter_scan", "join": "hash_join", "aggregate": "aggregate", "sort": "sort"}
"""Kinds that probe kernels run by DuckDB; the others are implemented here."""
_ROWS: Final = (1 << 12, 1 << 18, 1 << 19, 1 << 20, 1 << 21)
"""The smallest shows the start-up cost of an operator; the others exceed a database's single-core range."""
_QUICK_ROWS: Final = (1 << 12, 1 << 14, 1 << 16)
_OF_NUMBERS: Final = (
    *("dgemm", "sgemm", "dgemv", "dot", "fft", "spmv", "stencil", "trigonometric", "elementwise", "elementwise-fp32"),
    *("reduction", "reduction-fp32", "scan", "copy", "stream-triad"),
)
"""Probe kernels that stand for the numeric kinds."""
_SHRUNK: Final = (1024, 8, 5, 3, 2, 1)
_QUICK_SHRUNK: Final = (1024, 256, 128, 64)
_GROWN: Final = {"dot": 16, "gemv": 4, "reduction": 2, "elementwise": 2, "copy": 2}
"""Kinds whose default sizes fit into large caches, with their growth factors."""
_CUBIC: Final = frozenset({"gemm"})
_SQUARE: Final = frozenset({"gemv", "stencil"})
_FIXED: Final = frozenset({"operands", "planes", "neighbours", "batch"})


def subjects(devices: frozenset[DeviceKind], libraries: frozenset[Library], *, is_quick: bool) -> tuple[Subject, ...]:
    """Return the subjects to measure on these devices with these libraries."""
    chosen = [*_of_tables(devices, libraries, is_quick=is_quick), *_of_numbers(devices, libraries, is_quick=is_quick)]
    return tuple(chosen)


def _of_tables(devices: frozenset[DeviceKind], libraries: frozenset[Library], *, is_quick: bool) -> list[Subject]:
    rows = _QUICK_ROWS if is_quick else _ROWS
    subjects = []
    if DeviceKind.CPU in devices and Library.DUCKDB in libraries:
        for kind, sizes in _TABLES.items():
            subjects.append(Subject(kind, None, _by_duckdb(kind), sizes(rows), 1e-12))
    for device, name in ((DeviceKind.CPU, "cpu"), (DeviceKind.GPU, "cuda")):
        if device not in devices or Library.TORCH not in libraries:
            continue
        for kind in ("filter", "project", "join", "aggregate", "sort"):
            code = Implementation(device, Library.TORCH, f"{_HERE}.torch_tables:{kind}_{name}", threads=True)
            subjects.append(Subject(kind, None, code, _TABLES[kind](rows), 1e-9))
    return subjects


def _by_duckdb(kind: str) -> Implementation:
    if kind in _OF_PROBES:
        entry = f"controller.probing.kernels.duckdb_tables:{_OF_PROBES[kind]}"
    else:
        entry = f"{_HERE}.tables:{kind.replace('-', '_')}"
    return Implementation(DeviceKind.CPU, Library.DUCKDB, entry, threads=True)


def _of_numbers(devices: frozenset[DeviceKind], libraries: frozenset[Library], *, is_quick: bool) -> list[Subject]:
    subjects = []
    for kernel in (kernel for kernel in BUILT_IN if kernel.identifier in _OF_NUMBERS):
        parts = _QUICK_SHRUNK if is_quick else _SHRUNK
        grown = _GROWN.get(kernel.operator, 1)
        sizes = tuple(_shrunk(kernel.operator, dict(kernel.sizes), part / grown) for part in parts)
        for device in sorted(devices):
            codes = [
                implementation
                for implementation in kernel.implementations
                if implementation.device is device and implementation.library in libraries
            ]
            subjects += [
                Subject(kernel.operator, kernel.number_format, code, sizes, kernel.tolerance) for code in codes
            ]
    return subjects


def _shrunk(kind: str, sizes: Sizes, part: float) -> Sizes:
    """Return sizes with about this factor less work."""
    root = 3 if kind in _CUBIC else 2 if kind in _SQUARE else 1
    return {name: size if name in _FIXED else max(1, round(size / part ** (1 / root))) for name, size in sizes.items()}
