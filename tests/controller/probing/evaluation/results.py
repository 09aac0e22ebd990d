"""Probe results, centres and tasks for tests."""

from __future__ import annotations

from typing import Any

from controller.apiserver.resources import Centre, Metadata, ProbeResult, Task
from controller.apiserver.resources.centre import CentreStatus
from controller.apiserver.resources.probe_result import ProbeResultSpec, ProbeResultStatus, ProbeRun
from controller.apiserver.resources.task import Program, ProgramKind, TaskPhase, TaskSpec, TaskStatus

S = 1_000_000_000
NOW_NS = 1_800_000_000 * S
HOUR_NS = 3600 * S


def result(name: str, times_s: tuple[float, ...], *, age_h: float = 0.0, units: int = 1, **run: Any) -> ProbeResult:
    """Return a result of probe `p` at centre `c` of this age."""
    return ProbeResult(
        metadata=Metadata(name=name, created_ns=NOW_NS - int(age_h * HOUR_NS)),
        spec=ProbeResultSpec(probe="p", centre="c", task_type="t", unit="small"),
        status=ProbeResultStatus(runs=(ProbeRun(units=units, run_times_s=times_s, **run),)),
    )


def ended(name: str, expected_s: float, took_s: float, *, age_h: float = 0.0) -> Task:
    """Return a real task that ran at centre `c`."""
    finished_ns = NOW_NS - int(age_h * HOUR_NS)
    started_ns = finished_ns - int(took_s * S)
    status = TaskStatus(
        phase=TaskPhase.SUCCEEDED,
        centre="c",
        expected_s=expected_s,
        dispatched_ns=started_ns,
        started_ns=started_ns,
        finished_ns=finished_ns,
    )
    return Task(
        metadata=Metadata(name=name), spec=TaskSpec(program=Program(kind=ProgramKind.SCRIPT, text="x")), status=status
    )


def centre(silent_s: float | None) -> Centre:
    """Return centre `c` with a last report of this age."""
    heartbeat_ns = None if silent_s is None else NOW_NS - int(silent_s * S)
    return Centre(metadata=Metadata(name="c"), status=CentreStatus(ready=True, heartbeat_ns=heartbeat_ns))
