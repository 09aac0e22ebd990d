"""Splits a statement into one for each shard, one that merges partial results, and one that finishes at the root.

Works on the tree that DuckDB's own parser makes of a statement (json_serialize_sql). Aggregates are extracted: each
shard yields them by group, merges add them up (an average is a sum and a count), and the root computes the rest of the
statement. One table is sharded, all others are whole on each worker. Statements that would change their meaning are
refused: subqueries, windows, DISTINCT in aggregates, outer joins that keep rows of the other side.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

import duckdb
import pyarrow as pa

from controller.acceleration.running.errors import StatementError
from controller.acceleration.running.values import PARTS, Split

Node = dict[str, Any]
_MERGES: Final = {"sum": "sum", "count": "sum", "count_star": "sum", "min": "min", "max": "max"}
_KEEPS: Final = {"INNER": (True, True), "LEFT": (True, False), "RIGHT": (False, True), "SEMI": (True, False)}
"""Sides of a join that may be sharded, by type."""
_PLACES: Final = ("query_location", "query_location_length", "alias")


def split_statement(sql: str, tables: Mapping[str, pa.Table], sharded: str | None = None) -> Split:
    """Return a statement in three parts; `sharded` is the table split over workers, by default the largest.

    `tables` are those that it reads; only names, types and sizes matter. Raise StatementError if it cannot be split.
    """
    with duckdb.connect(":memory:", config={"python_enable_replacements": "false"}) as connection:
        for name, table in tables.items():
            connection.register(name, table.slice(0, 0))
        root = _parsed(connection, sql)
        names = _names_of(root)
        name = sharded or max(names, key=lambda table: tables[table].nbytes if table in tables else -1, default="")
        kinds = _types_of(connection, sql)
        _check(root, names, name)
        inputs = {column.lower() for name in names for column in tables[name].column_names}
        split = _Splitter(connection, root, kinds, frozenset(inputs)).split(name)
        _bind(connection, split)
        return split


def _bind(connection: duckdb.DuckDBPyConnection, split: Split) -> None:
    """Let DuckDB bind all three on empty tables; raise StatementError if one of them is invalid."""
    try:
        parts = connection.sql(split.partial).to_arrow_table()
        connection.register(PARTS, parts)
        connection.register(PARTS, connection.sql(split.merge).to_arrow_table())
        connection.sql(split.final).to_arrow_table()
    except duckdb.Error as error:
        raise StatementError(f"SQL: the statement cannot be split: {str(error).splitlines()[0]}") from None


def _parsed(connection: duckdb.DuckDBPyConnection, sql: str) -> Node:
    """Return the tree of one SELECT."""
    parsed = json.loads(_scalar(connection, "SELECT json_serialize_sql(?)", sql))
    if parsed["error"]:
        raise StatementError(f"SQL: {str(parsed.get('error_message')).splitlines()[0]}")
    statements = parsed["statements"]
    if len(statements) != 1:
        raise StatementError(f"{len(statements)} SQL statements, expected one")
    node: Node = statements[0]["node"]
    if node["type"] != "SELECT_NODE":
        raise StatementError("SQL: UNION and the like cannot be split; run each side by itself")
    return node


def _scalar(connection: duckdb.DuckDBPyConnection, sql: str, argument: str) -> str:
    return str(connection.execute(sql, [argument]).fetchall()[0][0])


def _types_of(connection: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[str, str]]:
    """Return names and types of a statement's columns, as DuckDB binds it, without executing it."""
    try:
        return [(row[0], row[1]) for row in connection.execute(f"DESCRIBE {sql}").fetchall()]
    except duckdb.Error as error:
        raise StatementError(f"SQL: {str(error).splitlines()[0]}") from None


def _inside(node: object) -> Iterator[Node]:
    """Yield all parts of a tree."""
    if isinstance(node, dict):
        yield node
        for child in node.values():
            yield from _inside(child)
    elif isinstance(node, list):
        for child in node:
            yield from _inside(child)


def _names_of(root: Node) -> list[str]:
    return [str(node["table_name"]) for node in _inside(root["from_table"]) if node.get("type") == "BASE_TABLE"]


def _check(root: Node, names: list[str], sharded: str) -> None:
    if not names:
        raise StatementError("SQL: the statement reads no table")
    if names.count(sharded) != 1:
        raise StatementError(f"SQL: the sharded table {sharded} appears {names.count(sharded)} times in FROM, not once")
    if root["cte_map"]["map"] or root["qualify"] or root["sample"] or len(root["group_sets"]) > 1:
        raise StatementError("SQL: WITH, QUALIFY, sampling and grouping sets cannot be split")
    if root["aggregate_handling"] != "STANDARD_HANDLING":
        raise StatementError("SQL: GROUP BY ALL cannot be split; name the groups")
    for node in _inside(root):
        if node.get("class") == "SUBQUERY" or node.get("type") in {"SUBQUERY", "TABLE_FUNCTION"}:
            raise StatementError("SQL: subqueries and table functions cannot be split")
        if node.get("class") == "WINDOW":
            raise StatementError("SQL: windows cannot be split")
        if node.get("class") == "FUNCTION" and node["distinct"]:
            raise StatementError(f"SQL: {node['function_name']}(DISTINCT ...) cannot be split")
    _check_joins(root["from_table"], sharded)


def _check_joins(table: Node, sharded: str) -> bool:
    """Return whether the sharded table is in here; raise StatementError if sharding would change a join."""
    if table["type"] != "JOIN":
        return table.get("table_name") == sharded
    inside = (_check_joins(table["left"], sharded), _check_joins(table["right"], sharded))
    allowed = _KEEPS.get(table["join_type"], (False, False))
    if any(is_in and not may for is_in, may in zip(inside, allowed, strict=True)):
        side = "left" if inside[0] else "right"
        raise StatementError(
            f"SQL: {table['join_type']} JOIN with the sharded table {sharded} on its {side} side cannot be split"
        )
    return any(inside)


def _column(name: str, alias: str = "") -> Node:
    return {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": alias, "column_names": [name]}


def _key(node: object) -> str:
    """Return a key that is equal for equal expressions, regardless of position."""
    return json.dumps(_bare(node), sort_keys=True)


def _is_same(node: Node, group: Node) -> bool:
    """Return whether two expressions are equal; a column may be qualified with its table in one of them."""
    if node.get("class") == group.get("class") == "COLUMN_REF":
        own, other = ([name.lower() for name in each["column_names"]] for each in (node, group))
        shorter = min(len(own), len(other))
        return own[-shorter:] == other[-shorter:]
    return _key(node) == _key(group)


def _bare(node: object) -> object:
    if isinstance(node, dict):
        return {name: _bare(child) for name, child in node.items() if name not in _PLACES}
    return [_bare(child) for child in node] if isinstance(node, list) else node


class _Splitter:
    """Takes a statement apart; DuckDB renders the texts of expressions from their trees."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        root: Node,
        columns: list[tuple[str, str]],
        inputs: frozenset[str],
    ) -> None:
        """`columns` are names and types of the result, `inputs` names of the input columns."""
        self._connection, self._root, self._columns, self._inputs = connection, root, columns, inputs
        self._orders, self._limit, self._offset, self._is_distinct = _modifiers(root)
        self._aggregates: dict[str, tuple[str, Node]] = {}
        self._aliases = {item["alias"].lower(): item for item in root["select_list"] if item["alias"]}
        self._names = frozenset(
            row[0] for row in connection.execute("SELECT function_name FROM duckdb_functions() "
                                                 "WHERE function_type = 'aggregate'").fetchall()
        )  # fmt: skip

    def split(self, sharded: str) -> Split:
        # In GROUP BY a column takes precedence over an alias of the same name, in ORDER BY the alias does.
        self._groups = [self._resolved(node, self._inputs) for node in self._root["group_expressions"]]
        is_aggregate = bool(self._groups) or any(self._is_aggregate(node) for node in _inside(self._outer()))
        partial, merge, final = self._grouped() if is_aggregate else self._rows()
        grows = not is_aggregate and self._limit is None and not self._is_distinct
        return Split(partial=partial, merge=merge, final=final, sharded=sharded, grows=grows)

    def _outer(self) -> list[object]:
        return [self._root["select_list"], self._root["having"], self._orders]

    def _is_aggregate(self, node: Node) -> bool:
        if node.get("class") != "FUNCTION" or node["function_name"] not in self._names:
            return False
        if node["function_name"] not in _MERGES and node["function_name"] not in {"avg", "mean"}:
            raise StatementError(
                f"SQL: {node['function_name']} cannot be split; sum, count, min, max and avg can: they merge exactly"
            )
        return True

    def _resolved(self, node: Node, columns: frozenset[str] = frozenset()) -> Node:
        """Return the expression behind a number, or an alias of the SELECT list that is not a column's name."""
        if node.get("class") == "CONSTANT":
            text = node["literal"]["text"]
            if text.isdigit() and 0 < int(text) <= len(self._root["select_list"]):
                return dict(self._root["select_list"][int(text) - 1])
        if node.get("class") == "COLUMN_REF" and len(node["column_names"]) == 1:
            name = node["column_names"][0].lower()
            return node if name in columns else dict(self._aliases.get(name, node))
        return node

    # rows

    def _rows(self) -> tuple[str, str, str]:
        """Split a statement without aggregates: rows of all shards concatenated, ordered at the root."""
        outputs, hidden = [f"c{index}" for index in range(len(self._columns))], self._hidden()
        orders = ", ".join(f"{name} {way}" for name, (_, way) in zip(hidden, self._orders, strict=True))
        most = None if self._limit is None else self._limit + self._offset
        inner = self._text(self._root | {"modifiers": [], "select_list": self._root["select_list"]})
        keys = "".join(f", {self._expression(self._resolved(node))} AS {name}"
                       for (node, _), name in zip(self._orders, hidden, strict=True))  # fmt: skip
        if keys and self._is_distinct:
            raise StatementError("SQL: DISTINCT with ORDER BY cannot be split")
        head = "DISTINCT " if self._is_distinct else ""
        shard = inner.replace("SELECT ", f"SELECT {head}", 1)
        if keys:
            shard = self._with_keys(keys)
        names = ", ".join([*outputs, *hidden])
        tail = f" ORDER BY {orders}" if orders else ""
        top = tail + (f" LIMIT {most}" if most is not None else "")
        merge = f"SELECT {head}* FROM {PARTS}{top}"
        partial = f"SELECT * FROM ({shard}) AS shard({names}){top}"
        limit = "" if self._limit is None else f" LIMIT {self._limit} OFFSET {self._offset}"
        return partial, merge, f"SELECT {self._finals(outputs)} FROM {PARTS}{tail}{limit}"

    def _with_keys(self, keys: str) -> str:
        """Return the statement with its ORDER BY expressions appended as columns."""
        bare = self._text(self._root | {"modifiers": []})
        lists = ", ".join(self._expression(node) for node in self._root["select_list"])
        if not bare.startswith(f"SELECT {lists}"):
            raise StatementError("SQL: the SELECT list cannot be split with this ORDER BY")
        return f"SELECT {lists}{keys}{bare.removeprefix(f'SELECT {lists}')}"

    def _hidden(self) -> list[str]:
        return [f"o{index}" for index in range(len(self._orders))]

    def _finals(self, names: list[str]) -> str:
        """Return the final SELECT list: the statement's own names and types."""
        pairs = zip(names, self._columns, strict=True)
        return ", ".join(f'CAST({name} AS {kind}) AS "{_quoted(column)}"' for name, (column, kind) in pairs)

    # groups

    def _grouped(self) -> tuple[str, str, str]:
        """Split a statement with aggregates: each by group on a shard, added up in merges; the root does the rest."""
        selected = [self._replaced(node) for node in self._root["select_list"]]
        having = self._root["having"] and self._replaced(self._root["having"])
        orders = [(self._replaced(self._resolved(node)), way) for node, way in self._orders]
        keys = [f"g{index}" for index in range(len(self._groups))]
        partial = self._partial(keys)
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        # Use exactly the types of the shards, as merges take both shards' and other merges' results.
        kinds = dict(_types_of(self._connection, partial))
        added = [
            f"CAST({_merged(node)}({name}) AS {kinds[name]}) AS {name}" for name, node in self._aggregates.values()
        ]
        merge = f"SELECT {', '.join([*keys, *added])} FROM {PARTS}{by}"
        final = f"SELECT {self._finals([f'({self._expression(node)})' for node in selected])} FROM {PARTS}"
        final += f" WHERE {self._expression(having)}" if having else ""
        if self._is_distinct:
            raise StatementError("SQL: DISTINCT with aggregates cannot be split")
        tail = ", ".join(f"{self._expression(node)} {way}" for node, way in orders)
        final += f" ORDER BY {tail}" if tail else ""
        final += "" if self._limit is None else f" LIMIT {self._limit} OFFSET {self._offset}"
        return partial, merge, final

    def _partial(self, keys: list[str]) -> str:
        items = [
            deepcopy(node) | {"alias": name}
            for name, node in [*zip(keys, self._groups, strict=True), *self._aggregates.values()]
        ]
        groups = [deepcopy(node) | {"alias": ""} for node in self._groups]
        changed = {"select_list": items, "group_expressions": groups, "having": None, "modifiers": []}
        return self._text(self._root | changed)

    def _replaced(self, node: Node) -> Any:  # noqa: ANN401 - a part of a tree
        """Return an expression over groups and aggregates as one over the columns that hold them."""
        for index, group in enumerate(self._groups):
            if _is_same(node, group):
                return _column(f"g{index}", node.get("alias", ""))
        if self._is_aggregate(node):
            return self._aggregate(node)
        return {name: self._replaced_child(child) for name, child in node.items()}

    def _replaced_child(self, child: object) -> object:
        if isinstance(child, dict):
            return self._replaced(child)
        return [self._replaced_child(part) for part in child] if isinstance(child, list) else child

    def _aggregate(self, node: Node) -> Node:
        if node["function_name"] in {"avg", "mean"}:
            parts = [self._noted(node | {"function_name": name, "qualified_name": {"path": [name]}})
                     for name in ("sum", "count")]  # fmt: skip
            return _quotient(*(_column(name) for name in parts))
        return _column(self._noted(node), node.get("alias", ""))

    def _noted(self, node: Node) -> str:
        """Return the column of an aggregate, shared by equal ones."""
        name, _ = self._aggregates.setdefault(_key(node), (f"a{len(self._aggregates)}", node))
        return name

    # texts

    def _expression(self, node: Node) -> str:
        """Return an expression's text."""
        empty = self._root | {
            "select_list": [node | {"alias": ""}],
            "where_clause": None,
            "group_expressions": [],
            "group_sets": [],
        }
        empty |= {"having": None, "modifiers": [], "from_table": {"type": "EMPTY", "alias": "", "sample": None}}
        return self._text(empty).removeprefix("SELECT ")

    def _text(self, node: Node) -> str:
        statement = {"error": False, "statements": [{"node": node, "named_param_map": []}]}
        return _scalar(self._connection, "SELECT json_deserialize_sql(?)", json.dumps(statement))


def _modifiers(root: Node) -> tuple[list[tuple[Node, str]], int | None, int, bool]:
    """Return a statement's ordering with directions, its limit, its offset, and whether rows are distinct."""
    orders: list[tuple[Node, str]] = []
    limit, offset, is_distinct = None, 0, False
    for modifier in root["modifiers"]:
        match modifier["type"]:
            case "ORDER_MODIFIER":
                orders = [(order["expression"], _way(order)) for order in modifier["orders"]]
            case "LIMIT_MODIFIER":
                limit, offset = _count(modifier["limit"]), _count(modifier["offset"]) or 0
            case "DISTINCT_MODIFIER" if not modifier["distinct_on_targets"]:
                is_distinct = True
            case _:
                raise StatementError(f"SQL: {modifier['type'].removesuffix('_MODIFIER')} cannot be split")
    return orders, limit, offset, is_distinct


def _way(order: Node) -> str:
    ways = {"DESCENDING": "DESC", "ASCENDING": "ASC", "ORDER_DEFAULT": ""}
    nulls = {"NULLS FIRST": "NULLS FIRST", "NULLS LAST": "NULLS LAST"}
    return f"{ways[order['type']]} {nulls.get(order['null_order'].replace('_', ' '), '')}".strip()


def _count(node: Node | None) -> int | None:
    if node is None:
        return None
    text = node.get("literal", {}).get("text", "")
    if not text.isdigit():
        raise StatementError("SQL: LIMIT and OFFSET must be numbers")
    return int(text)


def _merged(node: Node) -> str:
    return _MERGES[node["function_name"]]


def _quotient(total: Node, count: Node) -> Node:
    """Return an average, in DuckDB's numeric type."""
    return {
        "class": "FUNCTION", "type": "FUNCTION", "alias": "", "function_name": "/", "schema": "", "filter": None,
        "order_bys": {"type": "ORDER_MODIFIER", "orders": []}, "distinct": False, "is_operator": True,
        "export_state": False, "catalog": "", "qualified_name": {"path": ["/"]},
        "arguments": [{"name": "", "expression": total}, {"name": "", "expression": count}],
    }  # fmt: skip


def _quoted(name: str) -> str:
    return name.replace('"', '""')
