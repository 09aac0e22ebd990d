"""The one statement of an SQL text that can be planned, and the refusal of all that read no rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import duckdb

from controller.cluster.operators.errors import OperatorError

_TYPE: Final = duckdb.StatementType
_PLANNED: Final = frozenset({_TYPE.SELECT, _TYPE.MULTI, _TYPE.INSERT, _TYPE.UPDATE, _TYPE.DELETE, _TYPE.MERGE_INTO})
"""A PIVOT whose values are not listed is several statements, the first of which read them."""
_INFORMS: Final = re.compile(rb"(?:^|[(;]|\*/|--[^\n]*\n)\s*(?P<word>describe|desc|show)\b", re.IGNORECASE)
_WORD: Final = re.compile(rb"[A-Za-z]+")


def planned_text(connection: duckdb.DuckDBPyConnection, sql: str, *, has_data: bool) -> str:
    """Return the text of the only statement: a query, or with data one that changes the rows that it reads.

    Raise OperatorError for any other, and duckdb.Error for invalid SQL.
    """
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise OperatorError(f"{len(statements)} SQL statements; a graph needs exactly one SELECT")
    (statement,) = statements
    if statement.type not in _PLANNED:
        raise _refusal(_first_word(sql) or statement.type.name)
    if word := next(_informing(sql), None):
        raise _refusal(word)
    if not has_data and statement.type is not _TYPE.SELECT:
        how = "; PIVOT needs its values: ON column IN (...)" if statement.type is _TYPE.MULTI else ""
        raise OperatorError(f"SQL: only a SELECT can be planned over declared tables{how}")
    # Without what separates it from nothing: `; select 1;;`.
    return sql if statement.type is _TYPE.MULTI else str(statement.query)


def _refusal(word: str) -> OperatorError:
    return OperatorError(f"SQL: {word.upper()} is no query; one SELECT is expected")


def _first_word(sql: str) -> str:
    """Return the first keyword of a statement; '' for a WITH, which may begin any."""
    text = sql.encode()
    word = next((match[0].decode() for at in _keywords(sql) if (match := _WORD.match(text, at))), "")
    return "" if word.upper() == "WITH" else word


def _informing(sql: str) -> Iterator[str]:
    """Yield the words that ask for the schema instead of rows; DuckDB counts them as SELECT."""
    matches = list(_INFORMS.finditer(sql.encode()))
    keywords = frozenset(_keywords(sql)) if matches else frozenset()
    yield from (match["word"].decode() for match in matches if match.start("word") in keywords)


def _keywords(sql: str) -> Iterator[int]:
    """Yield where keywords begin, in bytes."""
    yield from (at for at, kind in duckdb.tokenize(sql) if kind == duckdb.token_type.keyword)
