"""Runs a statement step by step where its plan says: in DuckDB, or on a device by torch.

Steps that stay in DuckDB run in one statement as far as no other step lies between them, so that DuckDB optimizes it as
a whole.
"""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow as pa

from controller.acceleration.running.errors import StatementError
from controller.acceleration.running.statements.bound import Node, children
from controller.acceleration.running.statements.rendering import Relation, Renderer
from controller.acceleration.running.steps.naming import Step, elsewhere
from controller.acceleration.running.steps.planning import planned_steps
from controller.acceleration.running.values import StepRun
from controller.acceleration.values import CPU

if TYPE_CHECKING:
    from controller.acceleration.running.steps.tensors import Columns

_CARRIED: Final = re.compile(
    r"(TINY|SMALL|BIG)?INT|INTEGER|FLOAT|DOUBLE|BOOLEAN|VARCHAR|BLOB|DATE|TIMESTAMP|DECIMAL\(\d+,\d+\)"
)
"""Types that Arrow brings to a device and back as they are."""


class Stepping:
    """Runs the steps of one statement; `devices` has those of its steps that do not run in DuckDB, by name.

    `runs` has where each of these steps ran, its seconds on a device, or why DuckDB ran it.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, sql: str, devices: Mapping[str, str], prefix: str = ""
    ) -> None:
        self.runs: list[StepRun] = []
        self._connection, self._sql, self._prefix = connection, sql, prefix
        self._devices = elsewhere(devices, prefix)
        self._steps: dict[int, Step] = {}
        self._given: dict[int, Relation] = {}
        self._held: dict[int, Columns | None] = {}
        self._torch_device: str | None = None

    def run(self) -> pa.Table:
        """Return the statement's rows; raise duckdb.Error for what DuckDB refuses."""
        try:
            return self._stepped()
        except StatementError as error:
            # What is rendered is a whitelist: a step that is not in it cannot be cut out of its statement.
            self.runs = [StepRun(name, CPU, None, str(error)) for name in self._devices]
            return self._connection.sql(self._sql).to_arrow_table()

    def _stepped(self) -> pa.Table:
        plan, steps = planned_steps(self._connection, self._sql)
        self._torch_device = torch_device()
        if self._torch_device is None:
            self.runs = [StepRun(name, CPU, None, "torch is not installed") for name in self._devices]
            return self._connection.sql(self._sql).to_arrow_table()
        names = [str(row[0]) for row in self._connection.execute(f"DESCRIBE {self._sql}").fetchall()]
        self._steps = {id(step.node): step for step in steps}
        try:
            self._prepare(plan)
            table = self._rows(plan)
        finally:
            for relation in self._given.values():
                self._connection.unregister(relation.source)
        return table.rename_columns(names)

    def _prepare(self, node: Node) -> None:
        """Compute all steps up to an operator that run on a device, as tables for the statement above them."""
        step = self._steps.get(id(node))
        if step is not None and self._is_elsewhere(step) and (columns := self._columns(step)) is not None:
            self._register(node, columns)
        else:
            self._prepare_below(node)

    def _prepare_below(self, node: Node) -> None:
        step = self._steps.get(id(node))
        for child in children(node) if step is None else step.reads:
            self._prepare(child)

    def _columns(self, step: Step) -> Columns | None:
        """Return the rows of a step on its device; None if DuckDB has to compute it."""
        from controller.acceleration.running.steps.tensors import CannotComputeError, computed  # noqa: PLC0415

        if (key := id(step.node)) in self._held:
            return self._held[key]
        device = self._torch_device or ""
        columns = None
        try:
            if step.has_several:
                raise CannotComputeError("DuckDB orders these joins")
            inputs = [self._input(child) for child in step.reads]
            began_s = time.perf_counter()
            columns = computed(step.node, inputs, device)
            seconds = time.perf_counter() - began_s
        except CannotComputeError as error:
            self._note(step, str(error))
        else:
            self.runs.append(StepRun(self._prefix + step.name, f"torch-{device}", seconds))
        self._held[key] = columns
        return columns

    def _input(self, node: Node) -> Columns:
        """Return an operator's rows on the device: left there by a step below, or brought from DuckDB."""
        from controller.acceleration.running.steps.tensors import CannotComputeError, columns_of  # noqa: PLC0415

        step = self._steps.get(id(node))
        if step is not None and self._is_elsewhere(step) and (columns := self._columns(step)) is not None:
            return columns
        if lost := next((kind for kind in self._kinds(node) if not _CARRIED.fullmatch(kind)), None):
            raise CannotComputeError(f"a column is {lost}")
        self._prepare_below(node)
        return columns_of(self._rows(node), self._torch_device or "")

    def _rows(self, node: Node) -> pa.Table:
        return self._connection.sql(Renderer(self._given).relation(node).sql).to_arrow_table()

    def _kinds(self, node: Node) -> list[str]:
        """Return the types of an operator's columns."""
        described = self._connection.execute(f"DESCRIBE {Renderer().relation(node).sql}").fetchall()
        return [str(row[1]) for row in described]

    def _register(self, node: Node, columns: Columns) -> None:
        """Give DuckDB a step's rows as a table, in the types that it would have computed itself."""
        from controller.acceleration.running.steps.tensors import table_of  # noqa: PLC0415

        name = f"_step_{len(self._given)}"
        self._connection.register(name, table_of(columns))
        texts = tuple(f"CAST(c{index} AS {kind})" for index, kind in enumerate(self._kinds(node)))
        self._given[id(node)] = Relation(texts, name)

    def _is_elsewhere(self, step: Step) -> bool:
        return self._prefix + step.name in self._devices

    def _note(self, step: Step, why: str) -> None:
        self.runs.append(StepRun(self._prefix + step.name, CPU, None, why))


def torch_device() -> str | None:
    """Return the device of torch here: `cuda`, `cpu` where it stands in for one, or None without torch."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch  # noqa: PLC0415 - takes a second

    return "cuda" if torch.cuda.is_available() else "cpu"
