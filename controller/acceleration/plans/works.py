"""An operator graph as works of the acceleration model: each machine's part of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from controller.acceleration.calibration import Calibration, Side
from controller.acceleration.errors import AccelerationError
from controller.acceleration.plans.values import Edge, Plan
from controller.acceleration.values import Growth, Work
from controller.cluster.estimates import Basis, Estimate
from controller.cluster.operators import KINDS, Flow, Operator, OperatorError, OperatorGraph, work_of
from controller.cluster.operators.catalogue.tables import TABLES


class CpuTimes(Protocol):
    """A source of CPU times of operators."""

    def t_of(self, operator: Operator, /) -> Estimate:
        """Return t, CPU seconds for 100 MB of an operator's input; unknown with the reason."""
        ...


@dataclass(frozen=True)
class Stated:
    """`t` are CPU seconds for 100 MB by kind; `otherwise` is the source for other kinds, None without one."""

    t: Mapping[str, float] = field(default_factory=dict)
    otherwise: CpuTimes | None = None

    def __post_init__(self) -> None:
        for kind, seconds in self.t.items():
            if not (math.isfinite(seconds) and seconds >= 0):
                raise AccelerationError(f"t of {kind}: {seconds} s for 100 MB is not finite and >= 0", at=kind)

    def t_of(self, operator: Operator, /) -> Estimate:
        """Return the stated t, else that of the other source; unknown with the reason."""
        return t_of(self, operator, Side.BOTH, Growth.LINEAR)


def t_of(cpu_times: CpuTimes, operator: Operator, side: Side, growth: Growth) -> Estimate:
    """Return t of an operator, of a join's side, for its class; a source without sides or classes gives one for all."""
    if isinstance(cpu_times, Stated):
        if (seconds := cpu_times.t.get(operator.kind)) is not None:
            return Estimate.exactly(seconds, Basis.NOMINAL, f"t of {operator.kind} as stated")
        if cpu_times.otherwise is None:
            return Estimate.unknown(f"no time given for {operator.kind}")
        return t_of(cpu_times.otherwise, operator, side, growth)
    if isinstance(cpu_times, Calibration):
        return cpu_times.t_of(operator, side, growth)
    return cpu_times.t_of(operator)


_GROWTHS: Final[Mapping[str, Growth]] = {
    "join": Growth.HASH_JOIN,
    "sort": Growth.SORT,
    "top-n": Growth.SORT,
    "aggregate": Growth.GROUPED,
}
"""All other kinds are linear in their input."""
_ROWS: Final = frozenset({"filter", "project", "table-scan", "join", "sort"})
"""Kinds whose outputs from all machines keep all their rows when combined."""
_JOINS: Final = (Growth.HASH_JOIN, Growth.SQUARE, Growth.LINEAR)
_SHARED_SIZES: Final = frozenset({"rows", "kept_rows", "left_rows", "right_rows", "out_rows"})
_BYTES_PER_GB: Final = 1e9


@dataclass(frozen=True, slots=True)
class Reading:
    """Options for reading a graph. `join` is the class of joins: hash-join, or square as in the model's formulas.

    `skew` is the fullest machine's data over the mean. `has_tenths`: each output is a tenth of the input, as the model
    assumes, instead of the graph's value. `at_root` are operators that one machine runs over everybody's results, and
    `stays` those whose outputs are read where they are: no tree combines them.
    """

    join: Growth = Growth.HASH_JOIN
    skew: float = 1.0
    has_tenths: bool = False
    at_root: frozenset[str] = frozenset()
    stays: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.join not in _JOINS:
            raise AccelerationError(f"joins are {', '.join(_JOINS)}, not {self.join}", at="join")


def plan_of(graph: OperatorGraph, count: int, cpu_times: CpuTimes, reading: Reading | None = None) -> Plan:
    """Return a graph's operators as works of `count` machines, each of which does an equal part (apart from skew).

    CPU times are the calibration's for one machine's part; an operator that it does not know carries the reason. Raise
    AccelerationError for a graph without operators and for missing sizes.
    """
    how = reading or Reading()
    if not graph.operators:
        raise AccelerationError(f"{graph.name}: no operators to place")
    position = {name: at for at, name in enumerate(graph.order)}
    works = tuple(
        _work(graph, graph.operator[name], 1 if name in how.at_root else count, cpu_times, how) for name in graph.order
    )
    edges = tuple(
        Edge(position[flow.src], position[flow.dst], _moved_bytes(graph, flow) / _per(count)) for flow in graph.flows
    )
    ends = frozenset(
        position[operator.name]
        for operator in graph.operators
        if operator.output_bytes or not graph.out_of[operator.name]
    )
    return Plan(graph, works, edges, ends)


@dataclass(frozen=True, slots=True)
class _Sides:
    """Inputs of an operator on each machine, for a join its two sides, with t of each; None without input."""

    input_gb: float
    t: Estimate | None
    other_gb: float = 0.0
    other_t: Estimate | None = None

    @property
    def unknown(self) -> Estimate | None:
        """The first unknown t."""
        return next(
            (estimate for estimate in (self.t, self.other_t) if estimate is not None and not estimate.is_known), None
        )

    @property
    def basis(self) -> Basis:
        """Basis of t."""
        return next((estimate.basis for estimate in (self.t, self.other_t) if estimate is not None), Basis.MODELLED)


def _work(graph: OperatorGraph, operator: Operator, count: int, cpu_times: CpuTimes, how: Reading) -> Work:
    growth = how.join if operator.kind == "join" else _GROWTHS.get(operator.kind, Growth.LINEAR)
    shape = dict(operator.shape)
    sides = _sides(graph, operator, count, cpu_times, growth)
    has_groups = growth is Growth.GROUPED and not how.has_tenths
    unknown = sides.unknown
    return Work(
        name=operator.name,
        growth=growth,
        cpu_s_per_100mb=0.0 if unknown else _seconds(sides.t),
        input_gb=sides.input_gb,
        output_gb=None if has_groups or how.has_tenths else _output_gb(graph, operator, count),
        other_gb=sides.other_gb,
        other_s_per_100mb=None if unknown or sides.other_t is None else _seconds(sides.other_t),
        grows=operator.kind in _ROWS and not how.has_tenths,
        skew=how.skew,
        groups=float(shape.get("groups", 0)) if has_groups else None,
        group_bytes=float(max(shape.get("group_bytes", 1), 1)),
        row_bytes=float(max(shape.get("row_bytes", 100), 1)),
        kind=operator.kind,
        basis=Basis.NONE if unknown else sides.basis,
        unknown="" if unknown is None else "; ".join(unknown.reasons),
        stays=operator.name in how.stays,
    )


def _sides(graph: OperatorGraph, operator: Operator, count: int, cpu_times: CpuTimes, growth: Growth) -> _Sides:
    if operator.kind not in KINDS:
        read = (operator.input_bytes or 0) + sum(flow.nbytes or 0 for flow in graph.into[operator.name])
        return _Sides(read * operator.executions / _per(count), t_of(cpu_times, operator, Side.BOTH, growth))
    if growth is Growth.HASH_JOIN:
        return _join(operator, count, cpu_times)
    read_gb = _read_gb(operator, count)
    if read_gb == 0 and operator.kind in TABLES:
        return _Sides(0.0, None)
    return _Sides(read_gb, t_of(cpu_times, _part(operator, count), Side.BOTH, growth))


def _join(operator: Operator, count: int, cpu_times: CpuTimes) -> _Sides:
    """Return a hash join: the left side probes, the right side is built."""
    _read_gb(operator, count)
    shape, part = dict(operator.shape), _part(operator, count)
    left_gb, right_gb = (
        shape[f"{side}_rows"] * shape[f"{side}_row_bytes"] * operator.executions / _per(count)
        for side in ("left", "right")
    )
    if left_gb + right_gb == 0:
        return _Sides(0.0, None)
    probe = t_of(cpu_times, part, Side.PROBE, Growth.HASH_JOIN) if left_gb else None
    return _Sides(left_gb, probe, right_gb, t_of(cpu_times, part, Side.BUILD, Growth.HASH_JOIN) if right_gb else None)


def _seconds(t: Estimate | None) -> float:
    return 0.0 if t is None or t.seconds is None else t.seconds


def _part(operator: Operator, count: int) -> Operator:
    """Return one machine's part: an equal part of the rows; all groups, but no more than rows."""
    if count == 1:
        return operator
    shape = {name: math.ceil(size / count) if name in _SHARED_SIZES else size for name, size in operator.shape}
    if "groups" in shape and "rows" in shape:
        shape["groups"] = min(shape["groups"], shape["rows"])
    return replace(operator, shape=tuple(shape.items()))


def _read_gb(operator: Operator, count: int) -> float:
    try:
        work = work_of(operator)
    except OperatorError as error:
        raise AccelerationError(str(error), at=error.at) from None
    return 0.0 if work is None else work.read_bytes * operator.executions / _per(count)


def _output_gb(graph: OperatorGraph, operator: Operator, count: int) -> float | None:
    """Return the output read by other operators or leaving the graph, whichever is greater; None if unknown."""
    read = [_moved_bytes(graph, flow) for flow in graph.out_of[operator.name] if flow.nbytes is not None]
    if operator.output_bytes is not None:
        read.append(operator.output_bytes * operator.executions)
    return max(read) / _per(count) if read else None


def _moved_bytes(graph: OperatorGraph, flow: Flow) -> int:
    """Return the bytes moved by an edge: data written once and read many times moves once."""
    return (flow.nbytes or 0) * min(graph.operator[flow.src].executions, graph.operator[flow.dst].executions)


def _per(count: int) -> float:
    return count * _BYTES_PER_GB


ROOT: Final = "final-"
"""Prefix of the names of a SQL task's operators at the root, over merged rows."""
SUMS: Final = "sums"
"""Size of the aggregate whose results machines send: the number of columns that are added up, which switches can do."""


def reading_of_statement(graph: OperatorGraph) -> Reading:
    """Return how to read the operators of a SQL task: only the last result of each machine goes up the tree."""
    at_root = frozenset(operator.name for operator in graph.operators if operator.name.startswith(ROOT))
    sent = frozenset(
        operator.name
        for operator in graph.operators
        if all(flow.dst in at_root for flow in graph.out_of[operator.name])
    )
    return Reading(at_root=at_root, stays=frozenset(graph.operator) - sent | at_root)


def reading_of(join: str, skew: float, *, has_tenths: bool) -> Reading:
    """Return the options of a command line for reading a graph; raise AccelerationError for an invalid join class."""
    if join not in set(Growth):
        raise AccelerationError(f"joins are {', '.join(_JOINS)}, not {join}", at="join")
    return Reading(Growth(join), skew, has_tenths)
