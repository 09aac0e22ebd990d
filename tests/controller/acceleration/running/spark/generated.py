"""Random statements of the kinds that the split refuses, over tables with values at the limits of their types."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import duckdb
import pyarrow as pa

from controller.acceleration.running.errors import RunError, StatementError
from controller.acceleration.running.spark.sessions import SparkSession
from controller.acceleration.running.spark.translating import translated
from controller.acceleration.running.statements.splitting import LOSSLESS, Schema
from tests.controller.acceleration.running.statements import generated
from tests.controller.acceleration.running.statements.generated import Statement, Statements, assert_same, rows_of

_DOUBLES: Final = (
    "0.5",
    "-0.5",
    "1.5",
    "2.5",
    "0.285",
    "-1.005",
    "0",
    "-0.0",
    "inf",
    "-inf",
    "nan",
    "1e300",
    "3",
    "7.25",
)
_TEXTS: Final = (
    "",
    "a",
    "A",
    "ab",
    "aB%",
    "a_b",
    "a\\b",
    "a''b",
    "Zürich",
    "ß",
    "b ",
    " b",
    "日本",
    "😀x",
    "${x}",
    "\n",
)
_BIG: Final = (0, 1, -1, 7, 100, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63) + 1, 1 << 53)
_DATES: Final = ("2024-01-31", "2024-02-29", "1999-12-31", "1970-01-01", "1582-10-10", "2023-03-31")


def limit_tables(rng: random.Random) -> dict[str, pa.Table]:
    """Return tables `x` and `y` of values at limits: NULLs, ties, infinities, non-ASCII text, ends of months."""
    with duckdb.connect(":memory:") as connection:
        connection.execute(LOSSLESS)
        seed, rows, others = rng.randrange(1 << 30), rng.choice((0, 1, 7, 60)), rng.choice((0, 2, 9, 25))
        listed = {name: ", ".join(f"'{value}'" for value in values) for name, values in
                  {"f": _DOUBLES, "s": _TEXTS, "day": _DATES}.items()}  # fmt: skip
        big = ", ".join(map(str, _BIG))
        one = connection.sql(
            f"""SELECT CAST(i AS INTEGER) AS id, CASE WHEN h % 7 > 0 THEN CAST(h % 4 AS INTEGER) END AS g,
            CASE WHEN h % 9 > 0 THEN [{listed['f']}][CAST(h % {len(_DOUBLES)} AS INTEGER) + 1] END :: DOUBLE AS f,
            CASE WHEN h % 5 > 0 THEN [{listed['s']}][CAST(h % {len(_TEXTS)} AS INTEGER) + 1] END AS s,
            [{listed['day']}][CAST(h % {len(_DATES)} AS INTEGER) + 1] :: DATE AS day,
            CASE WHEN h % 3 > 0 THEN [{big}][CAST(h % {len(_BIG)} AS INTEGER) + 1] END :: BIGINT AS b,
            CASE WHEN h % 11 > 0 THEN (h % 20001 - 10000) / 1000 END :: DECIMAL(9, 3) AS d,
            (h % 1999) / 100 :: DECIMAL(28, 6) AS w, CAST(h % 300 - 150 AS SMALLINT) AS t,
            CASE WHEN h % 4 > 0 THEN h % 2 = 0 END AS ok,
            TIMESTAMP '2024-01-31 23:59:59.999999' + INTERVAL (h % 700) HOUR AS m,
            (h % 64 - 20) / 8.0 :: DOUBLE AS p
            FROM (SELECT i, hash(i + {seed}) % 1000003 :: BIGINT AS h FROM range({rows}) r(i))"""
        ).to_arrow_table()  # fmt: skip
        other = connection.sql(
            f"""SELECT CAST(i AS INTEGER) AS n, CASE WHEN h % 6 > 0 THEN CAST(h % 5 AS INTEGER) END AS g,
            CASE WHEN h % 8 > 0 THEN CAST(h % 9 AS INTEGER) END AS v, ['a', 'A', 'ab', NULL, 'ß'][h % 5 + 1] AS s,
            (h % 9) / 4 :: DECIMAL(9, 2) AS d
            FROM (SELECT i, CAST(hash(i + {seed} + 7) % 1000003 AS BIGINT) AS h FROM range({others}) r(i))"""
        ).to_arrow_table()
    return {"x": one, "y": other}


class LimitStatements:
    """Statements over `x` and `y`: windows, grouping sets, correlated subqueries, self-joins, set operations."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def statement(self) -> Statement:
        """Return a statement; it may be one that Spark does not run."""
        makers = (self._rows, self._windows, self._groups, self._subqueries, self._sets, self._joins)
        return self.rng.choices(makers, (3, 4, 4, 4, 3, 3))[0]()

    def _number(self, depth: int = 0) -> str:
        rng = self.rng
        if depth > 1 or rng.random() < 0.35:
            return rng.choice(("x.g", "x.f", "x.b", "x.d", "x.w", "x.t", "x.p", "x.id", "3", "1.25", "0.5::DOUBLE"))
        one, other = self._number(depth + 1), self._number(depth + 1)
        return rng.choice((
            f"{one} + {other}", f"({one}) * ({other})", f"({one}) - ({other})", f"abs({one})", f"-({one})",
            f"coalesce({one}, {other})", f"CASE WHEN {self._condition(depth + 1)} THEN {one} ELSE {other} END",
            f"round({one}, {rng.choice((0, 1, 2, 3))})", f"round({one})", f"TRY_CAST({one} AS INTEGER)",
            f"TRY_CAST({one} AS BIGINT)", f"CAST({one} AS DOUBLE)", f"TRY_CAST({one} AS DECIMAL(12, 2))",
            f"greatest({one}, {other})", f"least({one}, {other})", f"({one}) / ({other})", f"({one}) % 3",
            f"({one}) // 2", "length(x.s)", "year(x.day)", "extract(month FROM x.m)", "x.day - DATE '2024-01-01'",
            f"nullif({one}, {other})", "x.ok :: INTEGER", f"TRY_CAST({one} AS SMALLINT)", "extract(minute FROM x.m)",
        ))  # fmt: skip

    def _text(self) -> str:
        return self.rng.choice((
            "x.s", "x.s || '-' || x.g", "lower(x.s)", "upper('a' || x.g)", "substring(x.s, 2)", "substring(x.s, 1, 2)",
            "x.t :: VARCHAR", "x.d :: VARCHAR", "x.b :: VARCHAR", "coalesce(x.s, '?')", "CAST(x.ok AS VARCHAR)",
            "CASE WHEN x.ok THEN x.s ELSE 'n\\o' END", "x.w :: VARCHAR",
        ))  # fmt: skip

    def _condition(self, depth: int = 0) -> str:
        rng = self.rng
        if depth < 2 and rng.random() < 0.3:
            return f"({self._condition(depth + 1)} {rng.choice(('AND', 'OR'))} {self._condition(depth + 1)})"
        return rng.choice((
            f"{self._number(2)} {rng.choice(('<', '>', '=', '<>', '>=', '<='))} {self._number(2)}", "x.g IS NULL",
            "x.s LIKE 'a%'", "x.s LIKE '%\\%'", "x.s LIKE 'a_b'", "x.s LIKE 'a$_b' ESCAPE '$'", "x.s NOT LIKE '_'",
            "x.ok", "NOT x.ok", "x.s < 'b'", "x.s IN ('a', 'ß', NULL)", "x.g NOT IN (1, 2)", "isnan(x.f)",
            "x.g IS DISTINCT FROM 2", "x.day > DATE '2000-01-01'", "x.m < TIMESTAMP '2024-02-10 12:00:00'",
            "x.f BETWEEN -1 AND 2", "x.s = ''", "x.s = '${x}'", "starts_with(x.s, 'a')", "contains(x.s, 'b')",
            "x.ok IS NOT NULL", "x.f = x.f", "x.day + INTERVAL 1 MONTH > DATE '2024-02-28'", "x.s > 'A'",
        ))  # fmt: skip

    def _key(self) -> str:
        return self.rng.choice((
            "x.g", "x.s", "x.f", "x.day", "x.ok", "x.d", "x.t % 4", "x.g + 1", "date_trunc('month', x.m)", "x.p > 0",
            "year(x.day)", "x.b", "substring(x.s, 1, 1)", "date_trunc('week', x.day)",
        ))  # fmt: skip

    def _aggregate(self) -> str:
        rng = self.rng
        number = rng.choice(("x.g", "x.d", "x.t", "x.p", "x.w", "x.id", "x.g * 2", "x.d * 2"))
        call = rng.choice((
            "count(*)", f"count({number})", f"sum({number})", f"avg({number})", f"min({number})", f"max({number})",
            "min(x.s)", "max(x.s)", "min(x.f)", "max(x.f)", "max(x.day)", "min(x.m)", "bool_and(x.ok)", "bool_or(x.ok)",
            "count(DISTINCT x.g)", "sum(DISTINCT x.t)", "count(DISTINCT x.f)", "avg(DISTINCT x.g)", "count_if(x.ok)",
            "median(x.g)", "median(x.p)", "median(x.t)", "stddev_samp(x.p)", "var_pop(x.p)", "bit_and(x.g)",
            "bit_xor(x.t)", "stddev_pop(x.p)",
            "sum(x.g) / count(*)", "count(DISTINCT x.s)", "max(x.b)", "sum(x.f)",
        ))  # fmt: skip
        if rng.random() < 0.2 and call.endswith(")") and "/" not in call:
            call += f" FILTER (WHERE {self._condition(1)})"
        return call

    def _where(self) -> str:
        return f" WHERE {self._condition()}" if self.rng.random() < 0.5 else ""

    def _ordered(self, sql: str, keys: Sequence[str]) -> Statement:
        rng = self.rng
        if rng.random() < 0.5:
            return Statement(sql)
        ways = ("", " DESC", " NULLS FIRST", " DESC NULLS LAST")
        sql += " ORDER BY " + ", ".join(key + rng.choice(ways) for key in keys)
        sql += rng.choice(("", " LIMIT 3", " LIMIT 5 OFFSET 1", " OFFSET 2", " LIMIT 0"))
        return Statement(sql, is_ordered=True)

    def _rows(self) -> Statement:
        values = [self.rng.choice((self._number(), self._text(), self._condition(1), self._key())) for _ in range(3)]
        listed = ", ".join(f"{each} AS v{index}" for index, each in enumerate(values))
        return self._ordered(f"SELECT x.id, {listed} FROM x{self._where()}", ["x.id"])

    def _windows(self) -> Statement:
        rng = self.rng
        part = rng.choice(("", f"PARTITION BY {self._key()} ", f"PARTITION BY {self._key()}, x.ok "))
        keys = f"ORDER BY {self._key()}{rng.choice(('', ' DESC', ' NULLS FIRST'))}"
        total = f"{keys}, x.id"
        frame = rng.choice((
            "", " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", " ROWS UNBOUNDED PRECEDING",
            " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING", " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
            " RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", " ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING",
        ))  # fmt: skip
        moved = rng.choice(("x.s", "x.g", "x.d", "x.day"))
        made = rng.choice((
            f"row_number() OVER ({part}{total})", f"rank() OVER ({part}{keys})", f"dense_rank() OVER ({part}{keys})",
            f"ntile(3) OVER ({part}{total})", f"percent_rank() OVER ({part}{keys})", f"cume_dist() OVER ({part}{keys})",
            f"lag({moved}) OVER ({part}{total})", f"lead(x.g, 2, 5) OVER ({part}{total})",
            f"first_value({moved}) OVER ({part}{total}{frame})", f"last_value({moved}) OVER ({part}{total}{frame})",
            f"{self._window_aggregate()} OVER ({part}{total}{frame})",
            f"{self._window_aggregate()} OVER ({part}{keys})",
            f"{self._window_aggregate()} OVER ({part})", f"{self._window_aggregate()} OVER ({part}{total}{frame})",
        ))  # fmt: skip
        sql = f"SELECT x.id, {made} AS w, {self._number(1)} AS v FROM x{self._where()}"
        if rng.random() < 0.2:
            return Statement(f"SELECT x.id, x.s FROM x{self._where()} QUALIFY row_number() OVER ({part}{total}) < 3")
        return self._ordered(sql, ["x.id"])

    def _window_aggregate(self) -> str:
        return self.rng.choice((
            "sum(x.g)", "sum(x.d)", "count(*)", "count(x.s)", "avg(x.g)", "avg(x.d)", "min(x.s)", "max(x.f)",
            "min(x.day)", "sum(x.p)", "bool_or(x.ok)", "sum(x.t) FILTER (WHERE x.ok)", "max(x.w)",
            "count(*) FILTER (WHERE x.g > 1)",
        ))  # fmt: skip

    def _groups(self) -> Statement:
        rng = self.rng
        keys = [self._key() for _ in range(rng.choice((0, 1, 1, 2, 2)))]
        values = [self._aggregate() for _ in range(rng.randrange(1, 4))]
        named = [*(f"{each} AS k{index}" for index, each in enumerate(keys)),
                 *(f"{each} AS v{index}" for index, each in enumerate(values))]  # fmt: skip
        listed = ", ".join(keys)
        by = ""
        if keys:
            by = rng.choice((
                f" GROUP BY {listed}", f" GROUP BY ROLLUP ({listed})", f" GROUP BY CUBE ({listed})",
                f" GROUP BY GROUPING SETS (({listed}), ({keys[0]}), ())", f" GROUP BY ROLLUP ({listed})",
            ))  # fmt: skip
            if "GROUP BY R" in by or "CUBE" in by:
                named.append(f"grouping({listed}) AS gr")
        having = rng.choice(("", "", " HAVING count(*) > 1", " HAVING max(x.id) IS NOT NULL"))
        return Statement(f"SELECT {', '.join(named)} FROM x{self._where()}{by}{having}")

    def _subqueries(self) -> Statement:
        rng = self.rng
        match = rng.choice(("y.g = x.g", "y.v < x.g", "y.s = x.s", "y.g <> x.g AND y.v > x.id",
                            "y.g = x.g AND y.v <> x.t",
                            "y.d = x.d", "y.v = x.id"))  # fmt: skip
        inner = rng.choice((
            f"EXISTS (SELECT 1 FROM y WHERE {match})", f"NOT EXISTS (SELECT 1 FROM y WHERE {match})",
            "x.g IN (SELECT v FROM y)", "x.g NOT IN (SELECT v FROM y)", f"x.g IN (SELECT v FROM y WHERE {match})",
            f"x.g NOT IN (SELECT v FROM y WHERE {match})", "x.g NOT IN (SELECT v FROM y WHERE v IS NOT NULL)",
            "x.s IN (SELECT s FROM y)", f"x.g > (SELECT avg(v) FROM y WHERE {match})",
            f"x.g = (SELECT count(*) FROM y WHERE {match})", "x.d < (SELECT max(d) FROM y)",
            f"(SELECT sum(v) FROM y WHERE {match}) IS NULL", "x.g = ANY (SELECT v FROM y)",
            "x.g > ANY (SELECT v FROM y)",
            "x.g <= ALL (SELECT v FROM y)", f"x.g < ANY (SELECT v FROM y WHERE {match})",
            "x.g <> ALL (SELECT v FROM y)",
            "x.id = (SELECT v FROM y WHERE y.n = x.id)", "x.g = (SELECT y.v FROM y WHERE y.g = x.g)",
            "(SELECT count(*) FROM x AS z WHERE z.g = x.g AND z.id < x.id) < 2",
            "x.p = (SELECT max(z.p) FROM x AS z WHERE z.g = x.g)",
        ))  # fmt: skip
        other = self._condition(1)
        return rng.choice((
            Statement(f"SELECT x.id FROM x WHERE {inner}"), Statement(f"SELECT x.id FROM x WHERE {inner} AND {other}"),
            Statement(f"SELECT x.id FROM x WHERE {inner} OR {other}"), Statement(f"SELECT x.id, {inner} AS w FROM x"),
            Statement(f"SELECT x.id, CASE WHEN {inner} THEN x.s ELSE 'no' END AS w FROM x"),
            Statement(f"SELECT x.g, count(*) FROM x WHERE {inner} GROUP BY x.g"),
            Statement(f"SELECT x.id, (SELECT max(v) FROM y WHERE {match}) AS m, {inner} AS w FROM x"),
            Statement(f"SELECT x.id FROM x WHERE NOT ({inner})"),
            Statement(f"SELECT x.id FROM x WHERE ({inner}) IS NULL"),
        ))  # fmt: skip

    def _sets(self) -> Statement:
        rng = self.rng
        word = rng.choice(("UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"))
        one = rng.choice(("x.g", "x.id", "x.g + 1"))
        other = rng.choice(("v", "g", "n"))
        return rng.choice((
            Statement(f"SELECT {one} AS a FROM x{self._where()} {word} SELECT {other} FROM y"),
            Statement(f"SELECT {one} AS a, x.s FROM x {word} SELECT {other}, s FROM y"),
            Statement(f"SELECT x.f AS a FROM x{self._where()} {word} SELECT x.p FROM x"),
            Statement(f"SELECT {one} AS a FROM x {word} SELECT d FROM y"),
            Statement(f"SELECT DISTINCT {self._key()} AS a, {self._key()} AS b FROM x{self._where()}"),
            Statement(f"SELECT count(*) FROM (SELECT {one} AS a FROM x {word} SELECT {other} FROM y)"),
            Statement("SELECT DISTINCT ON (x.g) x.g, x.id, x.s FROM x ORDER BY x.g, x.f DESC, x.id", is_ordered=True),
            Statement(f"SELECT a FROM (SELECT {one} AS a FROM x {word} SELECT {other} FROM y) {word} SELECT n FROM y"),
        ))  # fmt: skip

    def _joins(self) -> Statement:
        rng = self.rng
        join = rng.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
        half = rng.choice(("SEMI JOIN", "ANTI JOIN"))
        on = rng.choice(
            ("x.g = y.g", "x.g = y.v AND x.id > y.n", "x.s = y.s", "x.d = y.d", "x.g < y.g", "x.g = y.g OR x.id = y.n")
        )
        where = rng.choice(("", " WHERE y.v > 2 OR y.v IS NULL", f" WHERE {self._condition(1)}"))
        grouped = "WITH q AS (SELECT x.g, count(*) AS n, sum(x.d) AS t FROM x GROUP BY x.g)"
        return rng.choice((
            Statement(f"SELECT x.id, y.n, y.s FROM x {join} y ON {on}{where}"),
            Statement(f"SELECT a.id, b.id AS other FROM x a {join} x b ON a.g = b.g AND a.id < b.id"),
            Statement(f"SELECT x.id, y.n, z.n AS m FROM x {join} y ON {on} LEFT JOIN y z ON z.v = y.v{where}"),
            Statement(f"SELECT x.id FROM x {half} y ON {on}{where.replace('y.v', 'x.g')}"),
            Statement(f"{grouped} SELECT a.g, b.n FROM q a {join} q b ON a.n = b.n"),
            Statement(f"{grouped} SELECT x.id, q.t FROM x {join} q ON x.g = q.g WHERE q.n = (SELECT max(n) FROM q)"),
            Statement(f"SELECT count(*), max(y.s) FROM x, y WHERE {on}"),
            Statement(f"SELECT y.g, x.ok, count(*) AS n FROM x {join} y ON {on} GROUP BY ROLLUP (y.g, x.ok)"),
            Statement(f"SELECT x.id, v FROM x {join} (SELECT g, max(v) AS v FROM y GROUP BY g) z ON z.g = x.g"),
            Statement(f"SELECT x.id, y.n FROM y {join} x ON {on}{where}"),
        ))  # fmt: skip


class SparkComparison:
    """Tables in one DuckDB and in a session with Spark; `outcome` runs a statement on both."""

    def __init__(self, session: SparkSession, tables: dict[str, pa.Table]) -> None:
        self._session, self._schema = session, Schema(tables)
        session.load(tables)
        self._whole = duckdb.connect(":memory:", config={"threads": 1})
        for name, table in tables.items():
            self._whole.register("_arriving", table)
            self._whole.execute(f"CREATE TABLE {name} AS SELECT * FROM _arriving")
            self._whole.unregister("_arriving")

    def is_split(self, sql: str) -> bool:
        """Return whether the split takes a statement, of whichever table it would shard."""
        try:
            self._schema.split(sql)
        except StatementError:
            return False
        return True

    def outcome(self, statement: Statement) -> str:
        """Return same, refused, or error if it ends in one on Spark; AssertionError if Spark's rows are different.

        An error of DuckDB must be one on Spark; the reverse is no wrong answer, as the whitelist ends some statements
        with an error on values on which both differ.
        """
        try:
            spark = translated(self._schema.connection, statement.sql)
        except StatementError:
            return "refused"
        problem = ""
        try:
            expected = self._whole.sql(statement.sql).to_arrow_table()
        except duckdb.Error as error:
            problem = str(error).splitlines()[0]
        try:
            found = self._session.run(spark).table
        except RunError as error:
            if not problem:
                print(f"only on Spark: {statement.sql}: {error}", file=sys.stderr)
            return "error"
        assert not problem, (statement.sql, problem, found.num_rows)
        assert found.schema == expected.schema, (statement.sql, found.schema, expected.schema)
        assert_same(statement, _unsigned(rows_of(found)), _unsigned(rows_of(expected)))
        return "same"


def _unsigned(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows without the sign of 0, which is equal to its negative: a group of both has either as its value."""
    return [tuple(0.0 if isinstance(value, float) and value == 0 else value for value in row) for row in rows]


def compared_on_spark(session: SparkSession, seed: int, statements: int, per_table: int = 50) -> Counter[str]:
    """Compare this many random statements that Spark takes; most are such as the split refuses.

    Return how many were the same, different, refused, ended in an error, and how many of all the split takes.
    """
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    while counts.total() - counts["refused"] - counts["split"] < statements:
        is_plain = rng.random() < 0.25
        tables = generated.tables_of(rng) if is_plain else limit_tables(rng)
        maker = Statements(rng) if is_plain else LimitStatements(rng)
        comparison = SparkComparison(session, tables)
        for _ in range(per_table):
            statement = maker.statement()
            # Of those that are split a few are enough.
            if (is_split := comparison.is_split(statement.sql)) and rng.random() < 0.8:
                continue
            try:
                outcome = comparison.outcome(statement)
            except AssertionError as error:
                outcome = "different"
                print(f"different: {error}", file=sys.stderr)
            counts[outcome] += 1
            counts["split"] += is_split and outcome != "refused"
    return counts
