"""Operators of a physical DuckDB plan, with its estimated row counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controller.cluster.operators.errors import OperatorError
from controller.cluster.operators.sql.tables import Row, width_of
from controller.cluster.operators.values import MAX_SIZE, Flow, Operator, OperatorGraph

_COLUMN: Final = re.compile(r"#(\d+)|#\[\d+\.(\d+)\]")
_CAST: Final = re.compile(r"CAST\((?P<inner>#\d+|\w+) AS (?P<type>.+)\)")
_PACKED: Final = re.compile(r"__internal_(de)?compress_\w+\(#(?P<index>\d+).*\)")
"""A column that is compressed for sorting or grouping."""
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_WORD: Final = re.compile(r"[^a-z0-9]+")
_DEEPEST: Final = 500
_VALUE_BYTES: Final = 8
_PASSING: Final = frozenset(
    {"UNION", "LIMIT", "STREAMING_LIMIT", "STREAMING_SAMPLE", "RESERVOIR_SAMPLE", "RESULT_COLLECTOR", "EXPLAIN"}
)
_EMPTY: Final = frozenset(
    {"DUMMY_SCAN", "EMPTY_RESULT", "COLUMN_DATA_SCAN", "EXPRESSION_SCAN", "CTE_SCAN", "DELIM_SCAN"}
)
_SHARED: Final = frozenset({"CTE", "MATERIALIZED_CTE"})
"""Nodes computed once and read by each CTE_SCAN of the same index: a WITH, or input of a correlated subquery."""


def operators_of_plan(
    plans: Sequence[Mapping[str, Any]], tables: Tables, name: str
) -> tuple[OperatorGraph, Mapping[str, tuple[str, ...]]]:
    """Return the operators of a plan from DuckDB's EXPLAIN (FORMAT json), over known tables.

    Also returns the functions of its aggregates, by operator, in DuckDB's notation.
    """
    builder = _Builder(tables)
    for plan in plans:
        builder.finish(builder.add(plan, 0))
    return OperatorGraph(name, tuple(builder.operators), tuple(builder.flows), "sql"), builder.aggregates


def rows_of_plan(plan: Mapping[str, Any]) -> int:
    """Return the rows that DuckDB expects of a plan; an operator without an estimate passes its inputs' rows on."""
    rows = _number(plan.get("extra_info", {}).get("Estimated Cardinality"))
    return rows if rows is not None else min(sum(map(rows_of_plan, plan.get("children", ()))), MAX_SIZE)


@dataclass(frozen=True, slots=True)
class Tables:
    """Known tables and columns by full name; rows of declared tables by row count."""

    rows: Mapping[str, int]
    widths: Mapping[tuple[str, str], int]
    declared: Mapping[int, Row]
    columns: frozenset[str]


@dataclass(slots=True)
class _Rows:
    """Output of a part of a plan: rows of columns with names and bytes, and the operators they come from, or outside.

    `whole` is the stored size of a row, if larger than that of the known columns: filters read whole rows, all other
    operators only the columns.
    """

    rows: int
    columns: list[tuple[str, int]]
    by: list[str]
    outside: int = 0
    whole: int = 0

    @property
    def width(self) -> int:
        return self.whole or max(sum(width for _, width in self.columns), 1)

    @property
    def narrowed(self) -> _Rows:
        return _Rows(self.rows, self.columns, self.by, self.outside) if self.whole else self

    @property
    def nbytes(self) -> int:
        return min(self.rows * self.width, MAX_SIZE)


class _Builder:
    """Builds operators and flows, from the leaves of a plan to its root."""

    def __init__(self, tables: Tables) -> None:
        self.operators: list[Operator] = []
        self.flows: list[Flow] = []
        self.aggregates: dict[str, tuple[str, ...]] = {}
        self._tables = tables
        self._counts: Counter[str] = Counter()
        self._shared: dict[str, _Rows] = {}

    def add(self, node: Mapping[str, Any], depth: int) -> _Rows:
        """Add a part of a plan, and return its output."""
        if depth > _DEEPEST:
            raise OperatorError(f"SQL: a plan deeper than {_DEEPEST} operators")
        name, info = str(node.get("name", "")).strip(), node.get("extra_info", {})
        children = node.get("children", ())
        if name in _SHARED and len(children) == 2:
            self._shared[str(info.get("Table Index"))] = self.add(children[0], depth + 1)
            return self.add(children[1], depth + 1)
        inputs = [self.add(child, depth + 1) for child in children]
        if name != "FILTER":
            inputs = [source.narrowed for source in inputs]
        estimate = _number(info.get("Estimated Cardinality"))
        rows = estimate if estimate is not None else sum(source.rows for source in inputs)
        if not inputs:
            return self._leaf(name, info, rows)
        if name == "PROJECTION":
            return self._projection(info, inputs[0])
        if name in _PASSING:
            return _merged(inputs, rows)
        return self._operation(name, info, inputs, rows)

    def finish(self, result: _Rows) -> None:
        """Record the graph's output; a query that only reads is a scan."""
        output = result.narrowed
        if not self.operators:
            self._operator("table-scan", {"rows": output.rows, "row_bytes": output.width}, [output])
            return
        for index, operator in enumerate(self.operators):
            if operator.name in output.by:
                self.operators[index] = _with_output(operator, output.nbytes)

    def _operation(self, name: str, info: Mapping[str, Any], inputs: list[_Rows], rows: int) -> _Rows:
        source = inputs[0]
        columns = source.columns
        sizes = {"rows": source.rows, "row_bytes": source.width}
        if name == "FILTER":
            kind, sizes = "filter", sizes | {"kept_rows": rows}
        elif name.endswith(("_JOIN", "CROSS_PRODUCT")) and len(inputs) > 1:
            columns = columns if info.get("Join Type") in {"SEMI", "ANTI"} else columns + inputs[1].columns
            kind, sizes = "join", _join_sizes(inputs, rows, columns)
        elif name.endswith(("GROUP_BY", "AGGREGATE")):
            columns = _grouped_columns(info, columns)
            kind = "aggregate"
            sizes |= {"groups": rows, "group_bytes": max(sum(width for _, width in columns), 1)}
        elif name == "ORDER_BY":
            kind = "sort"
        elif name == "TOP_N":
            kind, sizes = "top-n", sizes | {"kept_rows": rows}
        else:
            kind = f"sql-{_WORD.sub('-', name.lower()).strip('-')}"[:64]
        operator = self._operator(kind, sizes, inputs)
        if kind == "aggregate":
            self.aggregates[operator] = tuple(_texts(info.get("Aggregates")))
        return _Rows(rows, columns, [operator], whole=source.whole)

    def _leaf(self, name: str, info: Mapping[str, Any], rows: int) -> _Rows:
        if name == "CTE_SCAN" and (shared := self._shared.get(str(info.get("CTE Index")))) is not None:
            return _Rows(rows, shared.columns, shared.by, shared.outside)
        if name in _EMPTY:
            return _Rows(rows, [("", _VALUE_BYTES)], [])
        table = str(info.get("Table", ""))
        # A declared table appears as an unnamed scan of exactly its number of rows.
        if not table and rows in self._tables.declared:
            row = self._tables.declared[rows]
            return _Rows(rows, list(row.columns) or [("", _VALUE_BYTES)], [], rows * row.nbytes, row.nbytes)
        columns = [(column, self._width(table, column)) for column in _texts(info.get("Projections"))]
        leaf = _Rows(rows, columns or [("", _VALUE_BYTES)], [])
        # Filters that other operators create at run time may drop nothing.
        filters = [text for text in _texts(info.get("Filters")) if not text.startswith("optional:")]
        total = max(self._tables.rows.get(table, rows), rows)
        read = dict(columns) | {column: self._width(table, column) for column in self._named(table, filters)}
        width = max(sum(read.values()), 1)
        leaf.outside = total * width
        if not table:
            leaf.by = [self._operator("table-scan", {"rows": rows, "row_bytes": width}, [leaf])]
        if filters:
            before = _Rows(total, [("", width)], leaf.by, 0 if leaf.by else leaf.outside)
            leaf.by = [self._operator("filter", {"rows": total, "row_bytes": width, "kept_rows": rows}, [before])]
        leaf.outside = 0 if leaf.by else leaf.outside
        return leaf

    def _width(self, table: str, column: str) -> int:
        return self._tables.widths.get((table, column), _VALUE_BYTES)

    def _named(self, table: str, filters: Sequence[str]) -> set[str]:
        words = {word for text in filters for word in _NAME.findall(text)}
        return {word for word in words if (table, word) in self._tables.widths}

    def _projection(self, info: Mapping[str, Any], source: _Rows) -> _Rows:
        columns, formulas = [], 0
        for text in _texts(info.get("Projections")):
            column = _column(text, source.columns)
            # A name that is not a column of any table stands for an expression.
            is_alias = _NAME.fullmatch(text) is not None and text not in self._tables.columns
            formulas += is_alias or (column is None and not text.isdigit())
            columns.append(column or (text, _VALUE_BYTES))
        result = _Rows(source.rows, columns or source.columns, source.by, source.outside)
        if formulas:
            sizes = {"rows": source.rows, "row_bytes": source.width, "expressions": formulas}
            result.by, result.outside = [self._operator("project", sizes, [source])], 0
        return result

    def _operator(self, kind: str, sizes: Mapping[str, int], inputs: Sequence[_Rows]) -> str:
        self._counts[kind] += 1
        name = f"{kind}-{self._counts[kind]}"
        outside = min(sum(source.outside for source in inputs), MAX_SIZE)
        bounded = sorted((size, min(value, MAX_SIZE)) for size, value in sizes.items())
        self.operators.append(Operator(name, kind, tuple(bounded), None, 1, outside, 0, library="duckdb"))
        read: dict[str, int] = {}
        for source in inputs:
            for src in source.by:
                read[src] = min(read.get(src, 0) + source.nbytes // len(source.by), MAX_SIZE)
        self.flows += [Flow(src, name, nbytes) for src, nbytes in read.items()]
        return name


def _join_sizes(inputs: Sequence[_Rows], rows: int, columns: Sequence[tuple[str, int]]) -> dict[str, int]:
    left, right = inputs[:2]
    return {
        "left_rows": left.rows,
        "left_row_bytes": left.width,
        "right_rows": right.rows,
        "right_row_bytes": right.width,
        "out_rows": rows,
        "out_row_bytes": max(sum(width for _, width in columns), 1),
    }


def _grouped_columns(info: Mapping[str, Any], columns: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    groups = [_column(text, columns) or (text, _VALUE_BYTES) for text in _texts(info.get("Groups"))]
    return groups + [(text, _VALUE_BYTES) for text in _texts(info.get("Aggregates")) if text]


def _merged(inputs: Sequence[_Rows], rows: int) -> _Rows:
    by = list(dict.fromkeys(name for source in inputs for name in source.by))
    return _Rows(rows, inputs[0].columns, by, sum(source.outside for source in inputs))


def _column(text: str, columns: Sequence[tuple[str, int]]) -> tuple[str, int] | None:
    """Return the column that a text in a plan names, None for an expression."""
    if match := _COLUMN.fullmatch(text) or _PACKED.fullmatch(text):
        index = int(match[match.lastindex or 1])
        return columns[index] if index < len(columns) else (text, _VALUE_BYTES)
    if match := _CAST.fullmatch(text):
        return match["inner"], width_of(match["type"])
    if _NAME.fullmatch(text):
        return next((column for column in columns if column[0] == text), (text, _VALUE_BYTES))
    return None


def _with_output(operator: Operator, nbytes: int) -> Operator:
    return Operator(
        operator.name,
        operator.kind,
        operator.shape,
        None,
        1,
        operator.input_bytes,
        nbytes,
        library=operator.library,
    )


def _texts(value: Any) -> list[str]:  # noqa: ANN401 - a text or a list of them
    return (
        [value]
        if isinstance(value, str) and value
        else [str(item) for item in value]
        if isinstance(value, list)
        else []
    )


def _number(value: Any) -> int | None:  # noqa: ANN401
    return min(int(value), MAX_SIZE) if isinstance(value, str) and value.isdigit() else None
