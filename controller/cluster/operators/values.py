"""Operators and graphs of them, as immutable values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Final

from controller.cluster.operators.errors import OperatorError
from dataplane.topology.values import NumberFormat

_WORD: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
MAX_SIZE: Final = 1 << 62
"""Limit of all counts: JSON readers and C programs still represent it exactly as an integer."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operation that a program executes `executions` times on operands of the same shape.

    `kind` is one of `controller.cluster.operators.KINDS` or any other word (letters, digits, - and _). `shape` are
    sizes by name, sorted: make it with `Operator.of`. `input_bytes` are read from outside the graph and `output_bytes`
    written there, per execution; None if unknown. `code` is the normalised syntax tree of a user's own function
    (`controller.cluster.operators.tracing.normalised`), '' for a library's operation. `library` is the implementation
    (numpy, scipy, torch, duckdb, python), '' if unknown; it is not part of the computation.
    """

    name: str
    kind: str
    shape: tuple[tuple[str, int], ...] = ()
    number_format: NumberFormat | None = None
    executions: int = 1
    input_bytes: int | None = None
    output_bytes: int | None = None
    code: str = ""
    library: str = ""

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable():
            raise OperatorError(f"{self.name!r} is not a valid operator name", at="name")
        if not _is_word(self.kind):
            raise OperatorError(f"{self.kind!r} is not a valid operator kind: a-z, 0-9, - and _", at="kind")
        for name, size in self.shape:
            if not _is_word(name):
                raise OperatorError(f"{name!r} is not a valid size name: a-z, 0-9, - and _", at=f"shape.{name}")
            _in_range(self.name, name, size, 0, f"shape.{name}")
        if any(before >= name for (before, _), (name, _) in pairwise(self.shape)):
            raise OperatorError(f"{self.name}: sizes must be unique and in order of their names", at="shape")
        _in_range(self.name, "executions", self.executions, 1, "executions")
        for name, nbytes in (("input_bytes", self.input_bytes), ("output_bytes", self.output_bytes)):
            _in_range(self.name, name, nbytes or 0, 0, name)

    @classmethod
    def of(
        cls,
        name: str,
        kind: str,
        shape: Mapping[str, int],
        number_format: NumberFormat | None = None,
        executions: int = 1,
    ) -> Operator:
        """Return an operator with sizes by name, in any order."""
        return cls(name, kind, tuple(sorted(shape.items())), number_format, executions)

    @property
    def signature(self) -> str:
        """The computation, without name and count: equal for operators that do the same work."""
        sizes = (f"{name}={size}" for name, size in self.shape)
        return " ".join((self.kind, *([self.number_format.value] if self.number_format else ()), *sizes))


@dataclass(frozen=True, slots=True)
class Flow:
    """Output of one operator that another one reads, `nbytes` per execution of the reader; None if unknown."""

    src: str
    dst: str
    nbytes: int | None = None


@dataclass(frozen=True)
class OperatorGraph:
    """A program's operators and the data between them, without cycles; raises OperatorError if invalid.

    `category` is its class of programs (hpc, ai, sql, ...), '' if unknown. Between two operators there is at most one
    flow.
    """

    name: str
    operators: tuple[Operator, ...]
    flows: tuple[Flow, ...] = ()
    category: str = ""

    def __post_init__(self) -> None:
        self._refuse_twice((operator.name, f"operators[{index}].name") for index, operator in enumerate(self.operators))
        for index, flow in enumerate(self.flows):
            for side, end in (("src", flow.src), ("dst", flow.dst)):
                if end not in self.operator:
                    raise OperatorError(f"{self.name}: there is no operator {end}", at=f"flows[{index}].{side}")
            _in_range(f"{flow.src} -> {flow.dst}", "nbytes", flow.nbytes or 0, 0, f"flows[{index}].nbytes")
        self._refuse_twice((f"{flow.src} -> {flow.dst}", f"flows[{index}]") for index, flow in enumerate(self.flows))
        if len(self.order) < len(self.operators):
            waiting = [operator.name for operator in self.operators if operator.name not in set(self.order)]
            raise OperatorError(f"{self.name}: data flows in a cycle: {', '.join(waiting[:3])}", at="flows")

    def _refuse_twice(self, named: Iterable[tuple[str, str]]) -> None:
        seen: set[str] = set()
        for name, at in named:
            if name in seen:
                raise OperatorError(f"{self.name}: duplicate {name}", at=at)
            seen.add(name)

    @cached_property
    def operator(self) -> dict[str, Operator]:
        """Operators by name."""
        return {operator.name: operator for operator in self.operators}

    @cached_property
    def into(self) -> dict[str, tuple[Flow, ...]]:
        """Inputs of each operator from others."""
        return self._flows_by("dst")

    @cached_property
    def out_of(self) -> dict[str, tuple[Flow, ...]]:
        """Outputs of each operator to others."""
        return self._flows_by("src")

    def _flows_by(self, side: str) -> dict[str, tuple[Flow, ...]]:
        by_operator: dict[str, list[Flow]] = {name: [] for name in self.operator}
        for flow in self.flows:
            by_operator[getattr(flow, side)].append(flow)
        return {name: tuple(flows) for name, flows in by_operator.items()}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Topological order of the operators, ties in the graph's order; those in a cycle are left out."""
        waiting = {name: len(flows) for name, flows in self.into.items()}
        ordered = [name for name, count in waiting.items() if count == 0]
        for name in ordered:
            for flow in self.out_of[name]:
                waiting[flow.dst] -= 1
                if waiting[flow.dst] == 0:
                    ordered.append(flow.dst)
        return tuple(ordered)


@lru_cache(maxsize=1024)
def _is_word(name: str) -> bool:
    """Return whether a text is a word; cached because all graphs use the same few."""
    return _WORD.fullmatch(name) is not None


def _in_range(owner: str, name: str, value: int, least: int, at: str) -> None:
    if not least <= value <= MAX_SIZE:
        raise OperatorError(f"{owner}: {name} is {value}, not between {least} and 2^62", at=at)
