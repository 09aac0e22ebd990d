"""Results of tracing a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.cluster.operators.values import Flow, OperatorGraph
from dataplane.topology.values import NumberFormat


@dataclass(frozen=True, slots=True)
class Described:
    """Computation of a call: `count` operators of a kind, sizes and number format (None if unknown)."""

    kind: str
    shape: tuple[tuple[str, int], ...]
    number_format: NumberFormat | None
    count: int = 1


@dataclass(frozen=True, slots=True)
class Traced:
    """A program's graph as observed in a run.

    `run_time_s` is the wall time without the known overhead of the tracer and waits for a busy core, `cpu_time_s` the
    CPU time of all threads likewise, 0 if not measured. `seconds` are the total times of each
    operator's executions, by its name, and `places` where the program calls it (`file:line`). `carried` are flows back
    to an earlier operator: data in loops, which an acyclic graph cannot hold. `problems` are lines for people: why the
    graph is not the whole program. `result` is the return value of a callable.
    """

    graph: OperatorGraph
    run_time_s: float
    problems: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    carried: tuple[Flow, ...] = ()
    result: Any = None
    cpu_time_s: float = 0.0

    @property
    def share(self) -> float:
        """Share of the run time that the operators took, 0 to 1."""
        return min(sum(self.seconds.values()) / self.run_time_s, 1.0) if self.run_time_s > 0 else 0.0
