"""`millrace telemetry jobs`: the jobs that switches add up for, and whom they wait for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import typer

from collectors.values import ChildState, JobKey, JobState
from controller.apps.cli.feed import FEED, Feed, ask, snapshot_of
from controller.apps.cli.output import Cells, Format, FormatOption, flat, show
from controller.common.errors import ControllerError
from dataplane.clock import NS_PER_S

_JOBS = ("job", "epoch", "at", "items/s", "cells", "p50 ms", "p99 ms", "max ms", "sent again", "waits for", "age s")
_CHILDREN = ("job", "at", "child", "last %", "mean ms", "max ms", "costs ms", "last")


def jobs(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="Show the contributors of this job: number or name.")
    ] = None,
    feed: Feed = FEED,
    form: FormatOption = Format.TABLE,
) -> None:
    """List jobs of in-network aggregation, or the workers of one job that its items wait for, and for how long."""
    states = list(ask(feed, snapshot_of).jobs.values())
    if job is None:
        _show_jobs(states, form)
    else:
        _show_children(_of(states, job), form)


def _of(states: list[JobState], wanted: str) -> list[JobState]:
    found = [state for state in states if wanted in (str(state.key.job), state.name)]
    if not found:
        known = ", ".join(dict.fromkeys(_name(state) for state in states)) or "none"
        raise ControllerError(f"job {wanted}: no switch has reported items of it recently; known jobs: {known}")
    return found


def _show_jobs(states: list[JobState], form: Format) -> None:
    if form is Format.TABLE:
        by_key = {state.key: state for state in states}
        show(_JOBS, (_job_cells(state, by_key) for state in states), form)
        return
    rows = [flat(replace(state, children=())) for state in states]
    columns = [name for name in (rows[0] if rows else ("job", "switch")) if name != "children"]
    show(columns, ([row[name] for name in columns] for row in rows), form)


def _show_children(states: list[JobState], form: Format) -> None:
    children = [(state, child) for state in states for child in state.children]
    if form is Format.TABLE:
        show(_CHILDREN, (_child_cells(state, child) for state, child in children), form)
        return
    # The job's name, and then the child's own, which has a column of the same name.
    rows = [{**flat(child), "child": child.key.name, "name": state.name} for state, child in children]
    show(list(rows[0]), (list(row.values()) for row in rows), form)


def _name(state: JobState) -> str:
    return str(state.key.job) if state.name is None else f"{state.key.job} {state.name}"


def _job_cells(state: JobState, jobs: Mapping[JobKey, JobState]) -> Cells:
    return (
        _name(state),
        state.epoch,
        state.key.switch,
        None if state.items_per_s is None else f"{state.items_per_s:.0f}",
        state.cells_used if state.cells is None else f"{state.cells_used} of {state.cells}",
        *(f"{wait_ns / 1e6:.3f}" for wait_ns in (state.wait_p50_ns, state.wait_p99_ns, state.wait_max_ns)),
        state.repeated,
        _awaited(state, jobs),
        f"{state.age_ns / NS_PER_S:.1f}",
    )


def _awaited(state: JobState, jobs: Mapping[JobKey, JobState]) -> str | None:
    """Return whom a job waits for most, and of how many items; of a rack also whom that waits for."""
    slowest = next(iter(state.children), None)
    if slowest is None:
        return None
    rack = jobs.get(JobKey(state.key.job, slowest.key.name))
    inside = "" if rack is None or not rack.children else f" ({rack.children[0].key.name})"
    return f"{slowest.key.name}{inside} {100 * slowest.last_share:.0f} %"


def _child_cells(state: JobState, child: ChildState) -> Cells:
    waits = (child.wait_mean_ns, child.wait_max_ns, child.wait_caused_ns)
    return (
        _name(state),
        child.key.switch,
        child.key.name,
        f"{100 * child.last_share:.1f}",
        *(None if wait_ns is None else f"{wait_ns / 1e6:.3f}" for wait_ns in waits),
        child.last,
    )
