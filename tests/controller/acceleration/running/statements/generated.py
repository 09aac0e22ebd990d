"""Random tables and statements over them, and the comparison of split statements with one DuckDB.

A statement orders its rows totally or not at all, so that its result is one sequence or one multiset.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest

from controller.acceleration.running.clusters import shards_of
from controller.acceleration.running.engines.duckdb_tables import DuckDbBackend
from controller.acceleration.running.errors import RunError, StatementError
from controller.acceleration.running.statements.splitting import LOSSLESS, Schema
from controller.acceleration.running.values import Split

_MOOD: Final = "ENUM('sad', 'ok', 'happy')"
_NOTHING: Final = Split(partial="", merge="", final="", sharded="", grows=False)
_TINY: Final = 1e-9
"""Relative difference of sums of floating-point numbers that are added in another order."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement; `is_ordered` if its rows have one order, `limit` without an order if any rows will do."""

    sql: str
    is_ordered: bool = False
    limit: int | None = None


def tables_of(rng: random.Random) -> dict[str, pa.Table]:
    """Return tables `lines`, which is to be sharded, and `items`: NULLs, ties, skew, sometimes hardly a row."""
    rows, others = rng.choice((0, 1, 2, 5, 40, 200)), rng.choice((0, 1, 8, 30))
    seed, keys = rng.randrange(1 << 30), rng.choice((1, 3, 12))
    with duckdb.connect(":memory:") as connection:
        connection.execute(LOSSLESS)
        lines = connection.sql(
            f"""SELECT i AS id, CASE WHEN h % 7 > 0 THEN CAST(h % {keys} AS INTEGER) END AS a,
            CASE WHEN h % 11 > 0 THEN (h % 1000) / 8.0 - 40 END :: DOUBLE AS price,
            CASE WHEN h % 5 > 0 THEN substr('aAbBcC' || i, CAST(h % 6 AS INTEGER) + 1, 1) END AS k,
            CAST(h % 10000 AS DECIMAL(12, 2)) / 4 :: DECIMAL(12, 2) AS d,
            DATE '2024-02-27' + CAST(h % 5 AS INTEGER) AS day,
            {{'x': CAST(h % 3 AS INTEGER), 'y': chr(97 + CAST(h % 2 AS INTEGER))}} AS s,
            [CAST(h % 4 AS INTEGER), CAST(i AS INTEGER)] AS l, CAST(h % 3 AS UTINYINT) AS u,
            CASE WHEN h % 13 = 0 THEN 'nan' WHEN h % 13 = 1 THEN '-inf' ELSE '1.5' END :: DOUBLE AS f,
            ['sad', 'ok', 'happy', NULL][CAST(h % 4 AS INTEGER) + 1] AS word, h % 2 = 0 AS flag,
            CAST('00000000-0000-0000-0000-00000000000' || h % 3 AS UUID) AS nil,
            TIMESTAMP '2024-01-01' + INTERVAL (h % 90) HOUR AS moment
            FROM (SELECT i, hash(i + {seed}) % 100000 AS h FROM range({rows}) t(i))"""
        ).to_arrow_table()  # fmt: skip
        items = connection.sql(
            f"""SELECT CASE WHEN i % 6 > 0 THEN CAST(i % {keys + 1} AS INTEGER) END AS a, 'kind' || i % 4 AS kind,
            CAST(i % 5 AS INTEGER) AS lo, i AS number FROM range({others}) t(i)"""
        ).to_arrow_table()
    return {"lines": lines, "items": items}


class Statements:
    """Statements over these tables, from all parts of the grammar that users write every day."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def statement(self) -> Statement:
        """Return a statement; it may be one that is not split."""
        return self.rng.choices((self._rows, self._groups, self._distinct, self._nested, self._rare), (5, 8, 2, 2, 1))[
            0
        ]()

    def _number(self, depth: int = 0) -> str:
        rng = self.rng
        if depth > 1 or rng.random() < 0.4:
            return rng.choice(("a", "price", "d", "u", "id", "s.x", "l[1]", "3", "1.5", "lines.a", "CAST(d AS DOUBLE)"))
        one, other = self._number(depth + 1), self._number(depth + 1)
        return rng.choice((
            f"{one} + {other}", f"({one}) * 2", f"({one}) - ({other})", f"abs({one})", f"coalesce({one}, 0)",
            f"CASE WHEN {self._condition(depth + 1)} THEN {one} ELSE {other} END", f"round({one}, 1)",
            f"CAST({one} AS INTEGER)", f"greatest({one}, {other})", f"({one}) / 4", f"({one}) % 3", "length(k)",
            f"TRY_CAST(k AS INTEGER) + {one}", "extract(day FROM day)", "len(l)",
        ))  # fmt: skip

    def _condition(self, depth: int = 0) -> str:
        rng = self.rng
        if depth < 2 and rng.random() < 0.3:
            return f"({self._condition(depth + 1)} {rng.choice(('AND', 'OR'))} {self._condition(depth + 1)})"
        return rng.choice((
            f"{self._number(2)} > {self._number(2)}", "a IS NULL", "k IS NOT NULL", "a IN (1, 2)", "k LIKE 'a%'",
            "k COLLATE NOCASE = 'A'", "flag", "NOT flag", "price BETWEEN -10 AND 20", "k < 'b'", "isnan(f)",
            f"CAST(word AS {_MOOD}) >= 'ok'", "a IS DISTINCT FROM 2", "day > DATE '2024-02-28'",
            "k IN ('a', 'B', NULL)",
            "s = {'x': 1, 'y': 'a'}", "a IN (SELECT lo FROM items)", "a NOT IN (SELECT a FROM items)",
            "price > (SELECT avg(lo) FROM items)", "EXISTS (SELECT 1 FROM items WHERE items.a = lines.a)",
        ))  # fmt: skip

    def _key(self) -> str:
        return self.rng.choice((
            "a", "k", "u", "day", "s", "s.y", "flag", "k COLLATE NOCASE", f"CAST(word AS {_MOOD})", "l", "f", "a % 2",
            "upper(k)", "date_trunc('month', moment)", "d", "lines.a", "nil", "price > 0",
        ))  # fmt: skip

    def _aggregate(self) -> str:
        rng, number = self.rng, self._number()
        call = rng.choice((
            "count(*)", f"count({number})", f"sum({number})", f"min({number})", f"max({number})", f"avg({number})",
            "min(k)", "max(k COLLATE NOCASE)", f"max(CAST(word AS {_MOOD}))", "bool_and(flag)", "bool_or(a > 1)",
            "bit_xor(u)", "min(day)", "max(s)", "min(l)", "arg_max(id, (price, id))", "arg_min(id, (d, id))", "sum(d)",
            "count(DISTINCT a)", "sum(DISTINCT u)", "count_if(flag)", "max(price, 2)", "avg(d)", "sum(f)", "max(f)",
            "mode(a)", "string_agg(k)", "count(DISTINCT k)", "geomean(abs(d) + 1)", "sum(price) + count(*)",
            "max(moment)",
        ))  # fmt: skip
        if rng.random() < 0.15 and call.endswith(")") and "+" not in call[-12:]:
            call += f" FILTER (WHERE {self._condition(1)})"
        return call

    def _source(self) -> str:
        rng = self.rng
        if rng.random() < 0.6:
            return rng.choice(("lines", "lines", "LINES", '"lines" AS lines'))
        join = rng.choice(("JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN", "RIGHT JOIN", "FULL JOIN", "ASOF JOIN"))
        on = rng.choice(("lines.a = items.a", "lines.a = items.lo AND lines.id > items.number", "lines.u < items.lo"))
        if join == "ASOF JOIN":
            on = "lines.a >= items.lo"
        sides = ("lines", "items") if rng.random() < 0.8 else ("items", "lines")
        return f"{sides[0]} {join} {sides[1]} ON {on}"

    def _where(self) -> str:
        return f" WHERE {self._condition()}" if self.rng.random() < 0.5 else ""

    def _paged(self, sql: str, keys: Sequence[str]) -> Statement:
        """Order a statement by keys that distinguish all its rows, or not at all, and limit it."""
        rng = self.rng
        limit = rng.choice((None, None, 0, 1, 3, 1000))
        # Under a collation rows of different spellings are equal in order.
        if rng.random() < 0.6 and keys and "COLLATE" not in sql:
            ways = ("", " DESC", " NULLS FIRST", " DESC NULLS LAST")
            sql += " ORDER BY " + ", ".join(key + rng.choice(ways) for key in keys)
            sql += f" LIMIT {limit}" if limit is not None else ""
            sql += rng.choice(("", "", " OFFSET 2"))
            return Statement(sql, is_ordered=True)
        return Statement(sql + (f" LIMIT {limit}" if limit is not None else ""), limit=limit)

    def _rows(self) -> Statement:
        rng, source = self.rng, self._source()
        chosen = [rng.choice((self._number(), self._key())) for _ in range(rng.randrange(1, 4))]
        listed = rng.choice((", ".join(f"{each} AS r{index}" for index, each in enumerate(chosen)), "lines.*"))
        is_joined = "JOIN" in source
        sql = f"SELECT {listed} FROM {source}{self._where()}"
        return self._paged(sql, () if is_joined else (rng.choice(("id", self._number() + ", id")),))

    def _groups(self) -> Statement:
        rng = self.rng
        keys = [self._key() for _ in range(rng.randrange(3))]
        values = [self._aggregate() for _ in range(rng.randrange(1, 4))]
        named = [f"{each} AS g{index}" for index, each in enumerate(keys)]
        sql = f"SELECT {', '.join([*named, *(f'{each} AS v{index}' for index, each in enumerate(values))])}"
        sql += f" FROM {self._source()}{self._where()}"
        if keys:
            by = rng.choice((", ".join(str(index + 1) for index in range(len(keys))), ", ".join(keys), "ALL"))
            sql += f" GROUP BY {by}"
        if rng.random() < 0.2:
            sql += f" HAVING {rng.choice(('count(*) > 1', 'sum(u) IS NOT NULL', 'max(id) > 3'))}"
        return self._paged(sql, [f"g{index}" for index in range(len(keys))])

    def _distinct(self) -> Statement:
        keys = [self._key() for _ in range(self.rng.randrange(1, 4))]
        named = ", ".join(f"{each} AS g{index}" for index, each in enumerate(keys))
        sql = f"SELECT DISTINCT {named} FROM {self._source()}{self._where()}"
        return self._paged(sql, [f"g{index}" for index in range(len(keys))])

    def _nested(self) -> Statement:
        rng = self.rng
        inner = f"SELECT a, count(*) AS n, sum(d) AS t FROM lines{self._where()} GROUP BY a"
        return rng.choice((
            Statement(f"WITH g AS ({inner}) SELECT n, count(*), max(t) FROM g GROUP BY n"),
            Statement(f"WITH g AS ({inner}) SELECT x.a, y.n FROM g x JOIN g y ON x.n = y.n"),
            Statement(f"SELECT avg(n), sum(t) FROM ({inner})"),
            Statement(f"SELECT g.a, kind, t FROM ({inner}) g JOIN items ON g.a = items.lo"),
            Statement("SELECT a FROM lines UNION ALL SELECT lo FROM items"),
            Statement("SELECT a FROM lines UNION SELECT lo FROM items"),
            Statement("SELECT id, (SELECT max(number) FROM items WHERE items.a = lines.a) FROM lines"),
            Statement("SELECT DISTINCT n FROM (SELECT u, count(*) AS n FROM lines GROUP BY u)"),
            Statement("SELECT a, a AS b FROM (SELECT a, id FROM lines ORDER BY price DESC, id LIMIT 5)"),
        ))  # fmt: skip

    def _rare(self) -> Statement:
        """Return what is mostly not split: it must be refused, or right."""
        return Statement(self.rng.choice((
            "SELECT id, row_number() OVER (ORDER BY price, id) FROM lines",
            "SELECT a, count(*) FROM lines GROUP BY ROLLUP (a)",
            "SELECT sum(price) FROM lines TABLESAMPLE 50%",
            "SELECT DISTINCT ON (a) a, id FROM lines ORDER BY a, id",
            "SELECT a FROM lines EXCEPT SELECT lo FROM items",
            "SELECT x.id FROM lines x JOIN lines y ON x.id = y.id + 1",
            "SELECT list_transform(l, lambda x: x + 1) FROM lines",
            "SELECT unnest(l) FROM lines",
            "SELECT * FROM items ANTI JOIN lines ON items.a = lines.a",
            "SELECT count(*) FROM lines WHERE a > ANY (SELECT lo FROM items)",
            "SELECT id FROM lines QUALIFY rank() OVER (ORDER BY id) < 3",
            "SELECT count(COLUMNS(*)) FROM lines",
            "SELECT * EXCLUDE (s, l) FROM lines ORDER BY 1 LIMIT 3",
        )))  # fmt: skip


class Comparison:
    """Tables in one DuckDB, and in shards; `compare` runs a statement on both."""

    def __init__(self, tables: dict[str, pa.Table], shards: int) -> None:
        self._schema = Schema(tables)
        self._backends = []
        for part in shards_of(tables["lines"], shards):
            backend = DuckDbBackend(_NOTHING, 1 << 28, 1)
            backend.load("lines", part)
            backend.load("items", tables["items"])
            self._backends.append(backend)
        self._whole = duckdb.connect(":memory:", config={"threads": 1})
        for name, table in tables.items():
            self._whole.register("_arriving", table)
            self._whole.execute(f"CREATE TABLE {name} AS SELECT * FROM _arriving")
            self._whole.unregister("_arriving")

    def is_split(self, statement: Statement) -> bool:
        """Return whether a statement is split, and fail unless it then returns the rows of one DuckDB."""
        try:
            split = self._schema.split(statement.sql, "lines")
        except StatementError:
            return False
        for backend in self._backends:
            self.prepare(backend, split)
        try:
            expected = rows_of(self._whole.sql(statement.sql).to_arrow_table())
        except duckdb.Error:
            with pytest.raises(RunError):
                self._rows()
            return True
        try:
            rows = self._rows()
        except RunError:
            if not self._raises_unoptimized(statement.sql):
                raise
            return True
        assert_same(statement, rows, expected)
        return True

    def _raises_unoptimized(self, sql: str) -> bool:
        """Return whether a statement fails on all rows once nothing is optimized away.

        DuckDB's optimizer decides by its statistics whether it evaluates what overflows: then the error is the
        statement's own.
        """
        self._whole.execute("PRAGMA disable_optimizer")
        try:
            self._whole.sql(sql).to_arrow_table()
        except duckdb.Error:
            return True
        finally:
            self._whole.execute("PRAGMA enable_optimizer")
        return False

    def _rows(self) -> list[tuple[Any, ...]]:
        """Return what all engines together return."""
        root, parts = self._backends[0], [backend.partial() for backend in self._backends]
        # As in a tree: the results of some shards are merged first, and that with the rest.
        return rows_of(root.finish(root.merge([root.merge(parts[:2]), *parts[2:]])))

    def prepare(self, backend: DuckDbBackend, split: Split) -> None:
        """Give a statement to one worker's engine."""
        backend.split = split


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows of a table; columns may have the same name."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def assert_same(statement: Statement, rows: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> None:
    """Fail unless two results are the same sequence, or the same multiset if their order is open."""
    if statement.is_ordered:
        assert len(rows) == len(expected), statement.sql
        assert all(_is_close(one, other) for one, other in zip(rows, expected, strict=True)), (
            statement.sql,
            rows[:3],
            expected[:3],
        )
        return
    if statement.limit is not None:
        assert len(rows) == len(expected), statement.sql
        return
    one, other = (sorted(each, key=_sort_key) for each in (rows, expected))
    assert len(one) == len(other), (statement.sql, len(rows), len(expected))
    assert all(_is_close(left, right) for left, right in zip(one, other, strict=True)), (
        statement.sql,
        one[:3],
        other[:3],
    )


def _sort_key(row: tuple[Any, ...]) -> str:
    return repr([f"{value:.6g}" if isinstance(value, float) else value for value in row])


def _is_close(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=_TINY, abs_tol=_TINY)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_is_close, one, other))
    return one == other and type(one) is type(other)


def compared(seed: int, statements: int, per_table: int = 25) -> Counter[bool]:
    """Compare this many random statements; return how many were split and how many refused."""
    rng = random.Random(seed)
    counts: Counter[bool] = Counter()
    generator = Statements(rng)
    while counts.total() < statements:
        comparison = Comparison(tables_of(rng), rng.choice((1, 2, 3, 5)))
        counts.update(comparison.is_split(generator.statement()) for _ in range(per_table))
    return counts
