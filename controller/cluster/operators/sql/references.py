"""Which tables and columns a statement names, by the tree that DuckDB parses it to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from controller.cluster.operators.errors import OperatorError

_LITERALS: Final = {"INTEGER": "BIGINT", "STRING": "VARCHAR", "DECIMAL": "DOUBLE", "FLOAT": "DOUBLE"}
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_NO_QUERY: Final = "Only SELECT statements"
_COUNT: Final = re.compile(r"\bcount\s*\(\s*\*\s*\)|\bexists\s*\(\s*select\s+\*", re.IGNORECASE)
"""Stars that count rows, or ask whether there are any."""
_STAR: Final = re.compile(r"(?:\b(?:select|distinct|all)|[^\w\s)\"'])\s*\*", re.IGNORECASE)
"""A star that multiplies nothing."""
_UNNAMED: Final = re.compile(
    r"\b(?:natural|columns|table|pivot|unpivot|positional|describe|summarize|show)\b|(?:^|\()\s*from\b", re.IGNORECASE
)
"""What reads columns that no word names."""


@dataclass(frozen=True, slots=True)
class References:
    """What a statement names.

    `columns` are pairs of the table's name or alias in lower case, '' where none stands there, and the column's.
    `aliases` are tables by name or alias, `types` by column that of the literal that it is compared with; columns of
    `types` are in lower case. `has_star`: all columns of some table are asked for.
    """

    columns: frozenset[tuple[str, str]] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    has_star: bool = False


def references_of(serialized: str) -> tuple[int, References]:
    """Return how many statements there are and what they name, by DuckDB's json_serialize_sql of them.

    OperatorError where that is an error: a text that is no SQL, or statements that are no queries.
    """
    tree = json.loads(serialized)
    if tree.get("error"):
        told = str(tree.get("error_message", "cannot be read"))
        raise OperatorError(
            "SQL: over declared tables only a SELECT is planned" if _NO_QUERY in told else f"SQL: {told}"
        )
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
    return len(tree.get("statements", ())), References(frozenset(columns), aliases, types, has_star)


def references_of_words(sql: str) -> References | None:
    """Return the words of a statement as columns, which is more than it names; None where only a parser can tell.

    That is where there may be several statements, or a star that asks for columns.
    """
    text = sql.strip()
    if not text or ";" in text.removesuffix(";") or _UNNAMED.search(text) or _STAR.search(_COUNT.sub("", text)):
        return None
    return References(frozenset(("", word) for word in _WORD.findall(text)))


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - JSON of DuckDB's
    """Yield objects of a tree, but what an EXISTS selects: nobody reads that."""
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
    """Yield columns of an expression with the type of the literal that they stand beside."""
    parts = [part for part in node.values() if isinstance(part, dict)]
    arguments = node.get("arguments")
    if isinstance(arguments, list):
        parts += [one["expression"] for one in arguments if isinstance(one, dict) and "expression" in one]
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
