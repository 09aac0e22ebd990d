"""Qualified applications, as rows for people and as a document for programs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from controller.acceleration.plans.text import Cell, document_of_flip, flips_line, plain
from controller.acceleration.plans.values import ExplainedOperator
from controller.acceleration.spark.kinds import Role
from controller.acceleration.spark.operators import SparkOperator
from controller.acceleration.spark.qualifying import Qualified, QualifiedQuery
from controller.acceleration.spark.seconds import Part
from controller.acceleration.spark.values import Stage

COLUMNS: Final = (
    *("query", "stage", "operator", "kind", "task s", "rows in", "rows out", "bytes", "ratio", "runs on"),
    "what would flip it",
)
SUMMARY: Final = ("application", "seconds", "with devices", "gain", "recommended", "why not more")
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def rows_of(qualified: Qualified) -> Iterator[tuple[Cell, ...]]:
    """Yield a row for each stage of each query, and one for each of its operators below.

    An operator of several stages has its part of each, and ratio and device in the first.
    """
    for query in qualified.queries:
        decisions = _decisions(query)
        shown: set[str] = set()
        name = f"{query.ran.query.number} {query.ran.query.description}".strip()
        for stage in query.ran.query.stages:
            yield (name, _stage_name(stage), *_stage_cells(stage))
            name = ""
            for operator, part in query.ran.in_stage(stage):
                yield ("", "", *_cells(operator, part, decisions[operator.name], is_first=operator.name not in shown))
                shown.add(operator.name)


def summary_of(qualified: Qualified) -> tuple[Cell, ...]:
    """Return an application's row of the summary: the seconds it took, those with devices, and why not fewer."""
    return (
        _name(qualified),
        _rounded(qualified.wall_s),
        _rounded(None if qualified.wall_s is None else qualified.wall_s - qualified.saved_s),
        _rounded(qualified.gain),
        "yes" if qualified.is_gaining else "no",
        "; ".join(qualified.reasons),
    )


def notes_of(qualified: Qualified) -> list[str]:
    """Return what the rows omit of an application, one line each."""
    application, notes = qualified.application, []
    if counts := unknown_of(qualified):
        named = ", ".join(f"{name} ({count})" for name, count in counts.most_common(10))
        more = f" and {len(counts) - 10} more" if len(counts) > 10 else ""
        notes.append(f"{application.name}: unknown operators, counted as CPU: {named}{more}")
    if failed := sum(query.ran.query.is_failed for query in qualified.queries):
        notes.append(f"{application.name}: {failed} of {len(qualified.queries)} queries failed")
    return notes


def unknown_of(qualified: Qualified) -> Counter[str]:
    """Return how many operators of each name the model does not know."""
    return Counter(
        operator.spark_name
        for query in qualified.queries
        for operator in query.ran.operators
        if operator.role is Role.UNKNOWN
    )


def document_of(qualified: Qualified) -> dict[str, Any]:
    """Return an application for programs: JSON values only."""
    application = qualified.application
    return {
        "source": application.source,
        "name": application.name,
        "id": application.number,
        "spark_version": application.version,
        "machines": application.machines,
        "cores": application.cores,
        "seconds": qualified.wall_s,
        "task_s": application.run_s,
        "saved_s": qualified.saved_s,
        "gain": qualified.gain,
        "gains": qualified.is_gaining,
        "why_not_more": list(qualified.reasons),
        "unknown_operators": dict(unknown_of(qualified)),
        "faults": list(application.faults),
        "stages_outside_sql": [_stage(stage) for stage in application.others],
        "queries": [_query(query) for query in qualified.queries],
    }


def _query(query: QualifiedQuery) -> dict[str, Any]:
    decisions = _decisions(query)
    return {
        "number": query.ran.query.number,
        "description": query.ran.query.description,
        "is_failed": query.ran.query.is_failed,
        "seconds": query.wall_s,
        "busy_s": query.busy_s,
        "task_s": query.ran.query.run_s,
        "saved_s": query.saved_s,
        "gain": query.gain,
        "stages": [
            _stage(stage) | {"no_operator_s": rest_s}
            for stage, rest_s in zip(query.ran.query.stages, query.ran.rest_s, strict=True)
        ],
        "operators": [_operator(operator, decisions[operator.name]) for operator in query.ran.operators],
    }


def _stage(stage: Stage) -> dict[str, Any]:
    return {
        "stage": stage.number,
        "attempt": stage.attempt,
        "tasks": stage.tasks,
        "failed_tasks": stage.failed_tasks,
        "task_s": stage.run_s,
        "failed_s": stage.failed_s,
        "cpu_s": stage.cpu_s,
        "gc_s": stage.gc_s,
        "longest_task_s": stage.longest_task_s,
        "input_rows": stage.input_rows,
        "input_bytes": stage.input_bytes,
        "shuffle_read_rows": stage.read_rows,
        "shuffle_read_bytes": stage.read_bytes,
        "shuffle_written_rows": stage.written_rows,
        "shuffle_written_bytes": stage.written_bytes,
        "spilled_bytes": stage.spilled_bytes,
    }


def _operator(operator: SparkOperator, decided: ExplainedOperator) -> dict[str, Any]:
    decision = decided.decision
    return {
        "name": operator.name,
        "spark": operator.spark_name,
        "kind": operator.kind,
        "role": operator.role.value,
        "reads": list(decided.reads),
        "task_s": operator.seconds,
        "timed_s": operator.timed_s,
        "driver_s": operator.driver_s,
        "stages": [
            {"stage": part.stage, "attempt": part.attempt, "task_s": part.seconds, "timed_s": part.timed_s}
            for part in operator.parts
        ],
        "rows_in": operator.read_rows,
        "rows_out": operator.made_rows,
        "bytes_in": operator.read_bytes,
        "bytes_out": operator.made_bytes,
        "bytes_are_measured": operator.is_width_measured,
        "counted_bytes": operator.counted_bytes,
        "device": decided.device,
        "by_itself": decision.device,
        "ratio": _rounded(decision.ratio),
        "times": {device: times.total_s for device, times in decision.times.items()},
        "why": decided.why,
        "flips": [document_of_flip(flip) for flip in decided.flips],
    }


def _decisions(query: QualifiedQuery) -> dict[str, ExplainedOperator]:
    if query.explained is None:
        return {}
    return {operator.decision.work.name: operator for operator in query.explained.operators}


def _stage_name(stage: Stage) -> str:
    return f"{stage.number}" if not stage.attempt else f"{stage.number}.{stage.attempt}"


def _stage_cells(stage: Stage) -> tuple[Cell, ...]:
    tasks = f"{stage.tasks} task{'s' if stage.tasks != 1 else ''}"
    tasks += f", {stage.failed_tasks} failed" if stage.failed_tasks else ""
    nbytes = f"{amount(stage.input_bytes + stage.read_bytes)} in, {amount(stage.written_bytes)} out"
    rows = (stage.input_rows + stage.read_rows, stage.written_rows)
    return (tasks, "", _rounded(stage.run_s), *rows, nbytes, None, "", "")


def _cells(operator: SparkOperator, part: Part, decided: ExplainedOperator, *, is_first: bool) -> tuple[Cell, ...]:
    mark = "" if operator.is_width_measured else "~"
    heads: tuple[Cell, ...] = (operator.spark_name, operator.kind, _rounded(part.seconds))
    if not is_first:
        return (*heads, None, None, "", None, "", "")
    nbytes = f"{mark}{amount(operator.read_bytes)}"
    ratio = decided.decision.ratio
    unknown = operator.role is Role.UNKNOWN
    why = "nothing: it is unknown" if unknown else flips_line(decided)
    device = decided.device
    return (*heads, operator.read_rows or None, operator.made_rows, nbytes, _rounded(ratio), device, why)


def _name(qualified: Qualified) -> str:
    application = qualified.application
    count, cores = application.machines, application.cores
    size = f"{count} machine{'s' if count != 1 else ''}, {cores} core{'s' if cores != 1 else ''}"
    return f"{application.name} ({application.number or 'no id'}, Spark {application.version or 'unknown'}, {size})"


def amount(nbytes: int) -> str:
    """Return bytes with three digits in the unit that suits."""
    value = float(nbytes)
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:
            break
        value /= 1000
    return f"{plain(value)} {unit}"


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")
