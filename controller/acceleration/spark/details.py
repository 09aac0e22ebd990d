"""Facts from the text of a plan's node: its columns, which side of a join is built, a scan's types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from controller.acceleration.spark.values import Detail

FIELD_BYTES: Final = 8
"""A field of Spark's rows in memory (UnsafeRow): its value, or where the value is."""
_VARIABLE_BYTES: Final = {"string": 16, "binary": 16, "array": 32, "map": 48, "struct": 16, "variant": 32}
"""Assumed bytes of values beyond the field; decimals of more than 18 digits have 16."""
_MOST_COLUMNS: Final = 2_000
_DECIMAL: Final = re.compile(r"decimal\((\d+)")
_NAMED: Final = re.compile(r"(?P<name>[^\s(),\[\]]+)#\d+L?$")
_MORE: Final = re.compile(r"\.\.\. (\d+) more fields?")
_PLAN_ID: Final = re.compile(r"\[plan_id=(\d+)\]|\[id=#(\d+)\]")
_OPEN, _CLOSE = "([{<", ")]}>"


def detail_of(name: str, text: str, metadata: Mapping[str, str]) -> Detail:
    """Return the facts that a node's text (Spark's `simpleString`) and a scan's metadata state."""
    plan = _PLAN_ID.search(text)
    plan_id = int(plan[1] or plan[2]) if plan else None
    widths = widths_of(metadata.get("ReadSchema", ""))
    if widths:
        return Detail(tuple(widths), len(widths), widths, plan_id=plan_id)
    columns, fields = _columns(name, text)
    return Detail(
        columns,
        fields,
        keeps_left="LeftSemi" in text or "LeftAnti" in text,
        builds_left="BuildLeft" in text,
        plan_id=plan_id,
    )


def widths_of(schema: str) -> dict[str, int]:
    """Return columns with the bytes of a row's fields, of a schema as in `struct<a:bigint,b:string>`."""
    if not schema.startswith("struct<"):
        return {}
    fields = split(schema[len("struct<") : -1])
    return {name: width_of(kind) for name, _, kind in (field.partition(":") for field in fields) if kind}


def width_of(kind: str) -> int:
    """Return the bytes of a field of a type in Spark's rows, the usual value's included."""
    if decimal := _DECIMAL.match(kind):
        return FIELD_BYTES + (16 if int(decimal[1]) > 18 else 0)
    return FIELD_BYTES + _VARIABLE_BYTES.get(re.split(r"[<(]", kind, maxsplit=1)[0], 0)


def split(text: str) -> list[str]:
    """Return the parts of a text between commas outside of all brackets."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        if letter in _OPEN:
            depth += 1
        elif letter in _CLOSE:
            depth -= 1
        elif letter == "," and depth <= 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    last = text[begin:].strip()
    return [*parts, last] if last else parts


def bracketed(text: str, opening: str) -> str | None:
    """Return the text between `opening`, which ends with a bracket, and the bracket that closes it, or the end."""
    begin = text.find(opening)
    if begin < 0:
        return None
    begin += len(opening)
    depth = 1
    for at in range(begin, len(text)):
        depth += (text[at] in "[(") - (text[at] in "])")
        if depth == 0:
            return text[begin:at]
    return text[begin:]


def _columns(name: str, text: str) -> tuple[tuple[str, ...], int]:
    if name.endswith("Aggregate"):
        parts = [bracketed(text, opening) or "" for opening in ("keys=[", "functions=[")]
    elif name == "TakeOrderedAndProject":
        parts = [bracketed(text, "output=[") or ""]
    elif name in {"Project", "ReusedExchange"} or "Scan" in name:
        parts = [bracketed(text, "[") or ""]
    else:
        return (), 0
    return columns_of(",".join(part for part in parts if part))


def columns_of(text: str) -> tuple[tuple[str, ...], int]:
    """Return the names of columns in a list such as `a#1L, (b#2 + 1) AS c#3`, '' for one without, and their number."""
    found: list[str] = []
    more = 0
    for field in split(text):
        if match := _MORE.fullmatch(field):
            more += int(match[1])
        elif len(found) < _MOST_COLUMNS:
            named = _NAMED.search(field)
            found.append(named["name"] if named else "")
    return tuple(found), len(found) + more
