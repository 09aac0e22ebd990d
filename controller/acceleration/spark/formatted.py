"""Texts of `EXPLAIN FORMATTED`: the tree of a physical plan, and a section for each of its nodes.

    == Physical Plan ==
    * Project (3)
    +- * Filter (2)
       +- Scan parquet  (1)

    (1) Scan parquet
    Output [1]: [a#0L]
    ReadSchema: struct<a:bigint>

Nothing was run, so rows are those of tables whose sizes are stated, and no filter drops any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from controller.acceleration.errors import AccelerationError
from controller.acceleration.spark.details import columns_of, widths_of
from controller.acceleration.spark.kinds import Role, role_of
from controller.acceleration.spark.operators import Ran, ran
from controller.acceleration.spark.values import Counter, Detail, Node, Query, Unit
from dataplane.given import open_given, read_given_text

_BEGIN: Final = "== Physical Plan =="
_LINE: Final = re.compile(r"(?P<indent>[ :|]*(?:[+:]- )?)(?:\* ?)?(?P<text>\S.*?) +\((?P<number>\d+)\)(?:, .*)?$")
_FRAME: Final = re.compile(r"[ :|+-]*== (?P<name>Final|Initial|Current) Plan ==")
_SECTION: Final = re.compile(r"\((?P<number>\d+)\) (?P<name>.*?)(?: \[codegen id : \d+\])?$")
_SUBQUERY: Final = re.compile(r"Subquery:\d+ Hosting operator id = \d+")
_FIELD: Final = re.compile(r"(?P<name>[A-Z][A-Za-z ]*?)(?: \[(?P<count>\d+)\])?\s*: (?P<value>.*)$")
_TABLE: Final = re.compile(r"([\w.-]+?)(?:\.(?:parquet|orc|csv|json|avro|txt|db))?/?[\],]")
_MOST_NODES: Final = 20_000
_HEAD_BYTES: Final = 1 << 16


@dataclass(slots=True)
class _Tree:
    """Numbers of nodes as parents and children, in the order of the text."""

    roots: list[int] = field(default_factory=list)
    children: dict[int, list[int]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlanText:
    """A plan's operators, `unknown` with the reason for those whose rows are not known, and tables without a size."""

    ran: Ran
    unknown: Mapping[str, str]
    lacking: tuple[str, ...]


def is_plan(path: Path) -> bool:
    """Return whether a file holds a text with a physical plan; raise AccelerationError if it cannot be read."""
    if path.is_dir():
        return False
    try:
        with open_given(path) as file:
            # Events have plans in their texts, too.
            return any(line.strip() == _BEGIN.encode() for line in file.read(_HEAD_BYTES).splitlines())
    except OSError as error:
        raise AccelerationError(f"{path}: {error.strerror}") from None


def read_plans(path: Path, rows: Mapping[str, int]) -> list[PlanText]:
    """Return the plans of a file, over tables of so many rows; raise AccelerationError for a text without one."""
    try:
        text = read_given_text(path, errors="replace")
    except OSError as error:
        raise AccelerationError(f"{path}: {error.strerror}") from None
    plans = [part for part in text.split(_BEGIN)[1:] if part.strip()]
    found = [
        _plan(f"{path.stem} {index + 1}" if len(plans) > 1 else path.stem, part, rows, index)
        for index, part in enumerate(plans)
    ]
    kept = [plan for plan in found if plan is not None]
    if not kept:
        raise AccelerationError(f"{path}: no plan of EXPLAIN FORMATTED: no line is a node with its number")
    return kept


def _plan(name: str, text: str, rows: Mapping[str, int], number: int) -> PlanText | None:
    tree, sections = _read(text.splitlines())
    if not tree.roots:
        return None
    nodes, driver, lacking = _nodes(tree, sections, rows)
    query = Query(number, name, 0, None, False, nodes, (), driver)
    done = ran(query, 1)
    return PlanText(replace(done, graph=replace(done.graph, name=name)), _unknown(done, lacking), tuple(lacking))


def _read(lines: list[str]) -> tuple[_Tree, dict[int, dict[str, str]]]:
    """Return the tree, the final plan's if there are two, and the sections by number."""
    tree = _Tree()
    sections: dict[int, dict[str, str]] = {}
    path: list[tuple[int, int]] = []
    section: dict[str, str] | None = None
    is_initial = False
    for line in lines:
        if (begins := _SECTION.match(line)) is not None:
            section = sections.setdefault(int(begins["number"]), {"name": begins["name"].strip()})
        elif _SUBQUERY.match(line):
            section, path, is_initial = None, [], False
        elif (frame := _FRAME.match(line)) is not None:
            is_initial = frame["name"] == "Initial"
        elif section is not None and (stated := _FIELD.match(line)) is not None:
            section.setdefault(stated["name"].strip(), stated["value"])
        elif (node := _LINE.match(line)) is not None and not is_initial and section is None:
            _add(tree, path, len(node["indent"]), int(node["number"]), node["text"])
    return tree, sections


def _add(tree: _Tree, path: list[tuple[int, int]], indent: int, number: int, name: str) -> None:
    if number in tree.names or len(tree.names) >= _MOST_NODES:
        return
    while path and path[-1][0] >= indent:
        path.pop()
    (tree.children.setdefault(path[-1][1], []) if path else tree.roots).append(number)
    tree.names[number] = name.strip()
    path.append((indent, number))


def _nodes(
    tree: _Tree, sections: Mapping[int, Mapping[str, str]], rows: Mapping[str, int]
) -> tuple[tuple[Node, ...], dict[int, int], list[str]]:
    """Return nodes below a frame that holds the plan and its subqueries; scans of stated tables have their rows."""
    numbers = list(_preorder(tree))
    at = {number: index for index, number in enumerate(numbers, start=1)}
    subqueries = range(len(numbers) + 1, len(numbers) + len(tree.roots))
    nodes = [Node("AdaptiveSparkPlan", (at[tree.roots[0]], *subqueries))]
    stated: dict[int, int] = {}
    lacking: list[str] = []
    for number in numbers:
        section = sections.get(number, {})
        name = section.get("name") or tree.names[number]
        node = Node(
            name, tuple(at[child] for child in tree.children.get(number, ())), (), _detail(tree.names[number], section)
        )
        if role_of(name)[0] is Role.SCANS:
            table = _table(name, section)
            if table in rows:
                stated[-number] = rows[table]
                node = replace(node, counters=(Counter("number of output rows", -number, Unit.COUNT),))
            else:
                lacking.append(table)
        nodes.append(node)
    nodes += [Node("Subquery", (at[root],)) for root in tree.roots[1:]]
    return tuple(nodes), stated, lacking


def _preorder(tree: _Tree) -> Iterator[int]:
    waiting = list(reversed(tree.roots))
    while waiting:
        number = waiting.pop()
        yield number
        waiting += reversed(tree.children.get(number, []))


def _detail(name: str, section: Mapping[str, str]) -> Detail:
    if widths := widths_of(section.get("ReadSchema", "")):
        return Detail(tuple(widths), len(widths), widths)
    output = section.get("Output" if "Results" not in section else "Results", "")
    columns, fields = columns_of(output.strip("[]")) if output and "Join" not in name else ((), 0)
    kind = section.get("Join type", "")
    return Detail(columns, fields, keeps_left=kind in {"LeftSemi", "LeftAnti"}, builds_left="BuildLeft" in name)


def _table(name: str, section: Mapping[str, str]) -> str:
    """Return a scan's table: its name in a catalogue, else the last part of its path."""
    words = name.split()
    if len(words) > 2:
        return words[-1].rpartition(".")[2]
    paths = section.get("Location", "").rpartition("/")[2]
    found = _TABLE.match(f"{paths}]")
    return found[1] if found else words[0]


def _unknown(done: Ran, lacking: list[str]) -> dict[str, str]:
    """Return why operators' times are unknown: none of the model's, or rows of a table without a size."""
    without = f"rows unknown: state the size of {', '.join(dict.fromkeys(lacking))}" if lacking else ""
    reasons = {
        operator.name: f"{operator.spark_name}: the model has no such operator"
        for operator in done.operators
        if operator.role is Role.UNKNOWN
    }
    known: dict[str, bool] = {}
    for name in done.graph.order:
        sources = done.graph.into[name]
        known[name] = all(known[flow.src] for flow in sources) if sources else _has_rows(done, name)
        if not known[name] and without:
            reasons.setdefault(name, without)
    return reasons


def _has_rows(done: Ran, name: str) -> bool:
    return next(operator.made_rows > 0 for operator in done.operators if operator.name == name)
