"""Tables and columns that a statement references, from DuckDB's parse tree."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from controller.cluster.operators.errors import OperatorError

_LITERALS: Final = {"INTEGER": "BIGINT", "STRING": "VARCHAR", "DECIMAL": "DOUBLE", "FLOAT": "DOUBLE"}
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_COUNT: Final = re.compile(r"\bcount\s*\(\s*\*\s*\)|\bexists\s*\(\s*select\s+\*", re.IGNORECASE)
"""Stars that only count rows or test for existence."""
_STAR: Final = re.compile(r"(?:\b(?:select|distinct|all)|[^\w\s)\"'])\s*\*", re.IGNORECASE)
"""A star that is not a multiplication."""
_UNNAMED: Final = re.compile(
    r"\b(?:natural|columns|table|pivot|unpivot|positional|describe|summarize|show)\b|(?:^|\()\s*from\b", re.IGNORECASE
)
"""Syntax that reads columns without naming them."""


@dataclass(frozen=True, slots=True)
class References:
    """References of a statement.

    `columns` are pairs of the table's name or alias in lower case, '' if none is given, and the column's. `aliases`
    maps names and aliases to tables, `types` maps a column to the type of the literal that it is compared with; columns
    in `types` are in lower case. `has_star`: all columns of some table are selected.
    """

    columns: frozenset[tuple[str, str]] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    has_star: bool = False


def references_of(serialized: str) -> References:
    """Return a query's references, from DuckDB's json_serialize_sql.

    OperatorError for invalid SQL.
    """
    tree = json.loads(serialized)
    if tree.get("error"):
        raise OperatorError(f"SQL: {tree.get('error_message', 'cannot be read')}")
    columns: set[tuple[str, str]] = set()
    aliases: dict[str, str] = {}
    types: dict[str, str] = {}
    has_star = False
    for node in _nodes(tree):
        kind = node.get("class")
        if node.get("type") == "BASE_TABLE":
            aliases[str(node.get("alias") or node["table_name"]).lower()] = str(node["table_name"])
        elif kind == "COLUMN_REF":
            *owner, column = node["column_names"]
            columns.add((owner[-1].lower() if owner else "", column))
        elif kind == "STAR":
            has_star = True
        types.update(_typed_columns(node))
    return References(frozenset(columns), aliases, types, has_star)


def references_of_words(sql: str) -> References | None:
    """Return the words of a statement as columns, a superset of its references; None if a parser is needed.

    That is the case if there may be several statements, or a star that selects columns.
    """
    text = sql.strip()
    if not text or ";" in text.removesuffix(";") or _UNNAMED.search(text) or _STAR.search(_COUNT.sub("", text)):
        return None
    return References(frozenset(("", word) for word in _WORD.findall(text)))


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - JSON of DuckDB's
    """Yield the objects of a tree, except for the select list of an EXISTS, which nobody reads."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(node)
        elif isinstance(node, dict):
            yield node
            if node.get("subquery_type") in {"EXISTS", "NOT_EXISTS"}:
                node = {**node, "subquery": _without_selected(node.get("subquery"))}
            waiting.extend(node.values())


def _without_selected(subquery: Any) -> Any:  # noqa: ANN401
    if not isinstance(subquery, dict) or not isinstance(subquery.get("node"), dict):
        return subquery
    return {**subquery, "node": {**subquery["node"], "select_list": []}}


def _typed_columns(node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the columns in an expression with the type of the literal that they are compared with."""
    parts = [part for part in node.values() if isinstance(part, dict)]
    arguments = node.get("arguments")
    if isinstance(arguments, list):
        parts += [
            argument["expression"] for argument in arguments if isinstance(argument, dict) and "expression" in argument
        ]
    names = [part["column_names"][-1].lower() for part in parts if part.get("class") == "COLUMN_REF"]
    if names:
        for kind in filter(None, map(_literal_type, parts)):
            for name in names:
                yield name, kind


def _literal_type(node: Mapping[str, Any]) -> str | None:
    if node.get("class") == "CAST":
        named: str | None = node.get("type_expr", {}).get("type_name")
        return named.upper() if named else None
    if node.get("class") == "CONSTANT":
        return _LITERALS.get(node.get("literal", {}).get("kind", ""))
    return None
