"""Logs whose values are not what Spark writes: whatever they hold, an answer or one line."""

from __future__ import annotations

import copy
import json
import math
import random
from pathlib import Path
from typing import Any, Final

import pytest

from controller.acceleration.spark.text import document_of, notes_of, rows_of, summary_of
from tests.controller.acceleration.spark.spark_logs import LZ4, OPERATORS, events, outcome, qualified, written

VALUES: Final[tuple[Any, ...]] = (
    -1,
    0,
    7,
    1 << 40,
    1 << 62,
    1 << 70,
    1e308,
    "x",
    "",
    "9" * 30,
    None,
    [],
    {},
    True,
    [[1, 2]],
    {"a": 1},
)
SEEDS: Final = 30


def changed(value: Any, rng: random.Random, left: list[int]) -> Any:
    """Return a value with parts replaced, each with a chance of one in the first of `left`."""
    if rng.randrange(left[0]) == 0:
        return rng.choice(VALUES)
    if isinstance(value, dict):
        return {name: changed(part, rng, left) for name, part in value.items() if rng.randrange(4 * left[0])}
    if isinstance(value, list):
        parts = [changed(part, rng, left) for part in value]
        return parts + parts[:1] if parts and rng.randrange(left[0]) == 0 else parts
    return value


def said(path: Path) -> list[str]:
    """Return everything that is said of a log."""
    found = qualified(path)
    document = json.dumps(document_of(found), allow_nan=False)
    assert found.saved_s >= 0
    assert found.gain is None or found.gain >= 1
    cells = [str(cell) for row in [*rows_of(found), summary_of(found)] for cell in row]
    return [*notes_of(found), *found.application.faults, *cells, document]


@pytest.mark.parametrize("source", [LZ4, OPERATORS], ids=lambda path: path.name)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_changed_values_are_an_answer_or_one_line(source: Path, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    lines = [changed(copy.deepcopy(event), rng, [rng.choice((30, 300, 3000))]) for event in events(source)]
    text = outcome(lambda: said(written(tmp_path / "log", lines)))
    assert len(text.splitlines()) == 1
    assert "Traceback" not in text


@pytest.mark.parametrize("seed", range(8))
def test_events_in_any_order_are_an_answer(seed: int, tmp_path: Path) -> None:
    lines = [event for event in events(OPERATORS) for _ in range(1 + seed % 2)]
    random.Random(seed).shuffle(lines)
    assert len(outcome(lambda: said(written(tmp_path / "log", lines))).splitlines()) == 1


def test_a_plan_of_a_thousand_levels_is_read(tmp_path: Path) -> None:
    plan: dict[str, Any] = {"nodeName": "Range", "metrics": [], "children": []}
    for level in range(400):
        plan = {"nodeName": "Filter" if level % 2 else "Project", "metrics": [], "children": [plan]}
    lines = [
        event | {"sparkPlanInfo": plan} if "sparkPlanInfo" in event else event for event in copy.deepcopy(events(LZ4))
    ]
    found = qualified(written(tmp_path / "log", lines))
    assert max(len(query.ran.operators) for query in found.queries) == 401
    assert all(math.isfinite(query.saved_s) for query in found.queries)
