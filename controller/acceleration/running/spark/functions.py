"""Scalar functions and casts of bound plans in Spark SQL (ANSI mode): those whose results are the same.

Each row was compared with DuckDB on values at the limits of its types (tests/controller/acceleration/running/spark);
where Spark's own function differs for some values, these are computed otherwise, or end the statement with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from controller.acceleration.running.errors import StatementError
from controller.acceleration.running.spark.types import FLOATS, INTEGERS, SIGNED, UNSIGNED, spark_type, text
from controller.acceleration.running.statements.bound import Node

_PARTS: Final = {"year": "year", "month": "month", "day": "day", "quarter": "quarter", "hour": "hour",
                 "minute": "minute"}  # fmt: skip
_OF_TIME: Final = frozenset({"hour", "minute"})
_UNITS: Final = frozenset({"year", "quarter", "month", "week", "day", "hour", "minute", "second"})
_AS_IS: Final = {
    "coalesce": "coalesce",
    "greatest": "greatest",
    "least": "least",
    "isnan": "isnan",
    "length": "char_length",
    "len": "char_length",
    "strlen": "octet_length",
    "starts_with": "startswith",
    "^@": "startswith",
    "prefix": "startswith",
    "ends_with": "endswith",
    "suffix": "endswith",
    "contains": "contains",
}
_MOST_DIGITS: Final = 15
"""Digits of round(): 10 to their power is exact in a double, and so is what DuckDB computes with it."""


def refused(what: str) -> StatementError:
    """Return the error of what has no whitelisted form in Spark SQL."""
    return StatementError(f"SQL: {what} cannot be run on Spark")


def raised(words: str, kind: str) -> str:
    """Return an expression that ends the statement with these words."""
    return f"CAST(raise_error({text(words)}) AS {kind})"


def call(name: str, arguments: Sequence[str], kinds: Sequence[Node], result: Node) -> str:
    """Return a call of a scalar function; `kinds` are the types of its arguments."""
    names = [kind["id"] for kind in kinds]
    if name in _ARITHMETIC and len(arguments) == 2 and names[0] not in {"DATE", "TIMESTAMP"}:
        return _ARITHMETIC[name](arguments, names, result)
    if name in {"+", "-"} and names[:1] == ["DATE"]:
        return _moved_date(name, arguments, names)
    if name == "-" and len(arguments) == 1 and names[0] in {*SIGNED, *FLOATS, "DECIMAL"}:
        return f"CAST((- {arguments[0]}) AS {spark_type(result)})"
    if name in {"abs", "@"} and names[0] in {*SIGNED, *FLOATS, "DECIMAL"}:
        return f"CAST(abs({arguments[0]}) AS {spark_type(result)})"
    if name == "sqrt" and names == ["DOUBLE"]:
        return f"sqrt({arguments[0]})"
    if name in {"year", "month", "day", "quarter", "hour", "minute"} and len(arguments) == 1:
        return _part(name, arguments[0], names[0])
    if name in {"lower", "upper"} and names == ["VARCHAR"]:
        return _of_ascii(name, arguments[0])
    if name in {"||", "concat_op"} and set(names) == {"VARCHAR"}:
        return f"concat({', '.join(arguments)})"
    if name == "isnan" and names[0] in FLOATS:
        # Spark's is false for NULL.
        return f"(CASE WHEN {arguments[0]} IS NOT NULL THEN isnan({arguments[0]}) END)"
    if name in _AS_IS and name != "isnan":
        return _as_is(name, arguments, names, result)
    raise refused(f"function {name}({', '.join(names)})")


def _as_is(name: str, arguments: Sequence[str], names: Sequence[str], result: Node) -> str:
    is_text = set(names) == {"VARCHAR"}
    if not is_text and name not in {"coalesce", "greatest", "least"}:
        raise refused(f"function {name}({', '.join(names)})")
    return f"CAST({_AS_IS[name]}({', '.join(arguments)}) AS {spark_type(result)})"


def _sum_or_product(sign: str) -> Callable[[Sequence[str], Sequence[str], Node], str]:
    def of(arguments: Sequence[str], names: Sequence[str], result: Node) -> str:
        if not {*names} <= SIGNED | FLOATS | {"DECIMAL", "HUGEINT"}:
            raise refused(f"{names[0]} {sign} {names[1]}")
        one, other = arguments
        return f"CAST(({one} {sign} {other}) AS {spark_type(result)})"

    return of


def _divided(arguments: Sequence[str], names: Sequence[str], _result: Node) -> str:
    """Divide as IEEE 754 does: Spark's operator ends in an error for 0, its power gives an infinity of 0's sign."""
    if {*names} != {"DOUBLE"}:
        raise refused(f"{names[0]} / {names[1]}")
    one, other = arguments
    return f"(CASE WHEN {other} = 0 THEN {one} * power({other}, -1D) ELSE {one} / {other} END)"


def _integer_divided(arguments: Sequence[str], names: Sequence[str], result: Node) -> str:
    if not {*names} <= SIGNED:
        raise refused(f"{names[0]} // {names[1]}")
    return f"CAST(({arguments[0]} div {arguments[1]}) AS {spark_type(result)})"


def _rest(arguments: Sequence[str], names: Sequence[str], result: Node) -> str:
    one, other = arguments
    if {*names} <= SIGNED:
        # The smallest number by -1 overflows in DuckDB.
        return f"CAST((CASE WHEN {other} = -1 THEN 0 * (- {one}) ELSE {one} % {other} END) AS {spark_type(result)})"
    if {*names} == {"DECIMAL"}:
        return f"CAST(({one} % {other}) AS {spark_type(result)})"
    if {*names} == {"DOUBLE"}:
        return f"(CASE WHEN {other} = 0 THEN {one} * {other} * CAST('NaN' AS DOUBLE) ELSE {one} % {other} END)"
    raise refused(f"{names[0]} % {names[1]}")


_ARITHMETIC: Final = {
    "+": _sum_or_product("+"),
    "-": _sum_or_product("-"),
    "*": _sum_or_product("*"),
    "/": _divided,
    "//": _integer_divided,
    "%": _rest,
}


def _moved_date(sign: str, arguments: Sequence[str], names: Sequence[str]) -> str:
    if names == ["DATE", "DATE"] and sign == "-":
        return f"CAST(datediff({arguments[0]}, {arguments[1]}) AS BIGINT)"
    if names[1:] == ["INTEGER"]:
        return f"{'date_add' if sign == '+' else 'date_sub'}({arguments[0]}, {arguments[1]})"
    raise refused(f"{names[0]} {sign} {', '.join(names[1:])}")


def moved(sign: str, moment: str, months: int, days: int, micros: int) -> str:
    """Return a TIMESTAMP_NTZ plus or minus an interval: first its months, then its days, then the rest."""
    seconds = f"{abs(micros) // 1_000_000}.{abs(micros) % 1_000_000:06d}"
    parts = [(months, f"{abs(months)}' MONTH"), (days, f"{abs(days)}' DAY"), (micros, f"{seconds}' SECOND")]
    for number, words in parts:
        if number:
            way = "+" if (number > 0) == (sign == "+") else "-"
            moment = f"({moment} {way} INTERVAL '{words})"
    return moment


def _part(name: str, argument: str, kind: str) -> str:
    if kind != "TIMESTAMP" and (kind != "DATE" or name in _OF_TIME):
        raise refused(f"function {name}({kind})")
    return f"CAST({_PARTS[name]}({argument}) AS BIGINT)"


def part(unit: object, argument: str, kind: str) -> str:
    """Return date_part of a constant unit."""
    if not isinstance(unit, str) or unit.lower() not in _PARTS:
        raise refused(f"date_part of {unit}")
    return _part(unit.lower(), argument, kind)


def truncated(unit: object, argument: str, kind: Node, result: Node) -> str:
    """Return date_trunc of a constant unit."""
    if not isinstance(unit, str) or unit.lower() not in _UNITS or kind["id"] not in {"DATE", "TIMESTAMP"}:
        raise refused(f"date_trunc of {unit}")
    # Spark truncates timestamps with a time zone; that of the session is UTC.
    return f"CAST(date_trunc('{unit}', {argument}) AS {spark_type(result)})"


def rounded(argument: str, digits: object, kind: Node, result: Node) -> str:
    """Return round() to a constant number of digits."""
    if not isinstance(digits, int) or not 0 <= digits <= _MOST_DIGITS:
        raise refused("round() to other than 0 to 15 digits")
    if kind["id"] in SIGNED:
        return argument
    if kind["id"] == "DECIMAL":
        return f"CAST(round({argument}, {digits}) AS {spark_type(result)})"
    if kind["id"] != "DOUBLE":
        raise refused(f"function round({kind['id']})")
    if not digits:
        return _whole(argument)
    scaled = f"({argument} * 1e{digits}D)"
    return (
        f"(CASE WHEN isnan({argument}) OR abs({scaled}) = double('Infinity') THEN {argument} "
        f"ELSE {_whole(scaled)} / 1e{digits}D END)"
    )


def _whole(argument: str) -> str:
    """Return a double rounded to a whole number, halves away from 0; beyond 2**52 all are whole."""
    return f"(CASE WHEN abs({argument}) < 4503599627370496D THEN round({argument}, 0) ELSE {argument} END)"


def _of_ascii(name: str, argument: str) -> str:
    """Return a text in one case: only of ASCII are DuckDB's and Spark's the same."""
    error = raised(f"{name}() of text other than ASCII cannot be run on Spark", "STRING")
    return f"(CASE WHEN octet_length({argument}) <> char_length({argument}) THEN {error} ELSE {name}({argument}) END)"


def substring(argument: str, start: object, length: object) -> str:
    """Return a part of a text by constants: before its first character Spark counts otherwise."""
    if not isinstance(start, int) or start < 1 or not (length is None or (isinstance(length, int) and length >= 0)):
        raise refused("substring() from other than a constant position from 1 on")
    return f"substring({argument}, {start})" if length is None else f"substring({argument}, {start}, {length})"


def like(argument: str, pattern: object, escape: object = "") -> str:
    """Return LIKE of a constant pattern; DuckDB has no escape character unless it is given."""
    if not isinstance(pattern, str) or not isinstance(escape, str) or len(escape) > 1:
        raise refused("LIKE of a pattern that is not constant")
    if escape and not _is_well_escaped(pattern, escape):
        raise refused(f"LIKE with {escape} before another character")
    sign = escape or next(chr(code) for code in range(1, 0x110000) if chr(code) not in pattern)
    return f"({argument} LIKE {text(pattern)} ESCAPE {text(sign)})"


def _is_well_escaped(pattern: str, escape: str) -> bool:
    """Return whether the escape character only stands before %, _ and itself: else Spark has an error."""
    rest = pattern.replace(escape * 2, "")
    return all(after[:1] in {"%", "_"} for after in rest.split(escape)[1:])


def cast(argument: str, source: Node, target: Node, *, is_tried: bool) -> str:
    """Return a cast."""
    one, other = source["id"], target["id"]
    word, kind = ("try_cast" if is_tried else "CAST"), spark_type(target)
    if one == "NULL" or (one == other and one not in {"DECIMAL"}):
        return f"CAST({argument} AS {kind})" if one == "NULL" else argument
    if one in INTEGERS and other in {*SIGNED, "HUGEINT", "DECIMAL", "DOUBLE", "VARCHAR"}:
        return f"{word}({argument} AS {kind})"
    if one in SIGNED and other == "FLOAT":
        return f"CAST({argument} AS FLOAT)"
    if one in INTEGERS - UNSIGNED and other == "BOOLEAN":
        return f"({argument} <> 0)"
    if one in SIGNED and other in UNSIGNED:
        raise refused(f"a cast from {one} to {other}")
    if one == "BOOLEAN" and other in {*SIGNED, "DOUBLE", "VARCHAR"}:
        return f"CAST({argument} AS {kind})"
    if one == "DECIMAL" and other in {*SIGNED, "HUGEINT"}:
        return f"{word}(round({argument}, 0) AS {kind})"
    if one == "DECIMAL" and other in {"DECIMAL", "DOUBLE", "VARCHAR"}:
        return f"{word}({argument} AS {kind})"
    if one == "FLOAT" and other == "DOUBLE":
        return f"CAST({argument} AS DOUBLE)"
    if one == "DOUBLE" and other in SIGNED:
        return f"{word}(rint({argument}) AS {kind})"
    if {one, other} == {"DATE", "TIMESTAMP"}:
        return f"{word}({argument} AS {kind})"
    raise refused(f"a cast from {one} to {other}")
