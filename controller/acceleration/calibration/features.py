"""Features that an operator's time grows with, by its kind: the columns of the least squares.

Every kind has a constant, its start-up cost. Kinds with known operations and bytes grow with these; those on tables
grow with the rows and bytes that are read and written, as in databases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from controller.cluster.operators import Operator
from controller.cluster.operators.kinds import Work, work_of

Shape = Mapping[str, int]

_RESULT_BYTES: Final = 8


def _touched_bytes(shape: Shape, work: Work | None) -> float:
    """Return the bytes read and written, each once; a projection writes the results of its formulas."""
    if work is None:
        return 0.0
    if (formulas := shape.get("expressions")) is not None:
        return float(work.read_bytes + _RESULT_BYTES * formulas * shape["rows"])
    return float(work.read_bytes + work.written_bytes)


FEATURES: Final[Mapping[str, Callable[[Shape, Work | None], float]]] = {
    "constant": lambda _, __: 1.0,
    "operations": lambda _, work: float((work and work.operations) or 0),
    "traffic_bytes": lambda _, work: float(work.read_bytes + work.written_bytes) if work else 0.0,
    "input_bytes": lambda _, work: float(work.read_bytes) if work else 0.0,
    "output_bytes": lambda _, work: float(work.written_bytes) if work else 0.0,
    "touched_bytes": _touched_bytes,
    "rows": lambda shape, _: float(shape.get("rows", 0)),
    "rows_log_rows": lambda shape, _: shape.get("rows", 0) * math.log2(max(shape.get("rows", 0), 2)),
    "evaluations": lambda shape, _: float(shape.get("rows", 0) * shape.get("expressions", 1)),
    "groups": lambda shape, _: float(shape.get("groups", 0)),
    "left_rows": lambda shape, _: float(shape.get("left_rows", 0)),
    "right_rows": lambda shape, _: float(shape.get("right_rows", 0)),
    "out_rows": lambda shape, _: float(shape.get("out_rows", 0)),
}
"""Features by name, from an operator's shape and its work."""

CONSTANT: Final = "constant"
TOUCHED: Final = "touched_bytes"
"""The basis of size corrections; no kind is fitted by it."""
_OF_KIND: Final[Mapping[str, tuple[str, ...]]] = {
    "filter": ("constant", "rows", "output_bytes"),
    "project": ("constant", "evaluations", "input_bytes"),
    "aggregate": ("constant", "rows", "input_bytes", "groups"),
    "join": ("constant", "left_rows", "right_rows", "out_rows"),
    "sort": ("constant", "rows_log_rows", "input_bytes"),
    "top-n": ("constant", "rows", "output_bytes"),
    "table-scan": ("constant", "input_bytes"),
}
_OF_OTHERS: Final = ("constant", "operations", "traffic_bytes")


def names_of(kind: str) -> tuple[str, ...]:
    """Return the features that a kind's time is fitted by."""
    return _OF_KIND.get(kind, _OF_OTHERS)


def features_of(operator: Operator, names: Iterable[str] = tuple(FEATURES)) -> dict[str, float]:
    """Return features of one execution by name; raise OperatorError for missing sizes."""
    work, shape = work_of(operator), dict(operator.shape)
    return {name: FEATURES[name](shape, work) for name in names}
