"""Interface between a centre's agent and an engine.

All calls have a deadline; a failure is an EngineError of one line. Jobs outlive the engine object and its process: a
new one finds them by `jobs`, which returns all that carry this centre's mark. Probes are ordinary jobs, marked by a
label and by the beginning of their name.

A job runs in its order's folder, which agent and job share: what it leaves there is its result. Its output and errors
go to OUTPUT_FILE and ERRORS_FILE in it, of which the engine keeps at most `output_limit_bytes` each. EXIT_FILE records
its end, so that it is known after the engine has forgotten the job.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from controller.apiserver.resources.centre import UnitType

OUTPUT_FILE: Final = "stdout"
ERRORS_FILE: Final = "stderr"
EXIT_FILE: Final = "exit.json"
"""File that a job's wrapper leaves at its end: {"exit_code", "reason", "started_ns", "finished_ns"}."""

CENTRE_LABEL, TASK_LABEL, UID_LABEL = "millrace.centre", "millrace.task", "millrace.uid"
EPOCH_LABEL, PROBE_LABEL = "millrace.epoch", "millrace.probe"
UNIT_LABEL, UNITS_LABEL = "millrace.unit", "millrace.units"
"""Labels by which a job is adopted, or ended as an orphan."""


@dataclass(frozen=True, slots=True)
class JobMark:
    """Owner of a job: it is adopted if centre, task, uid and epoch match the API, and ended otherwise."""

    centre: str
    task: str
    uid: str
    epoch: int
    is_probe: bool = False

    @property
    def job_name(self) -> str:
        """The job's name at its engine: unique, and probes begin with `millrace-probe-`."""
        kind = "probe" if self.is_probe else "task"
        return f"millrace-{kind}-{self.task}-{self.uid[:8]}-{self.epoch}"

    @property
    def labels(self) -> dict[str, str]:
        """The mark as labels; `of_labels` is the inverse."""
        return {
            CENTRE_LABEL: self.centre,
            TASK_LABEL: self.task,
            UID_LABEL: self.uid,
            EPOCH_LABEL: str(self.epoch),
            PROBE_LABEL: str(self.is_probe).lower(),
        }

    @classmethod
    def of_labels(cls, labels: Mapping[str, str]) -> JobMark | None:
        """Return the mark in these labels, None for a job that is not ours."""
        number = labels.get(EPOCH_LABEL, "")
        if not all(labels.get(name) for name in (CENTRE_LABEL, TASK_LABEL, UID_LABEL)) or not number.isdigit():
            return None
        return cls(
            labels[CENTRE_LABEL], labels[TASK_LABEL], labels[UID_LABEL], int(number), labels.get(PROBE_LABEL) == "true"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """An order to run a job on a number of units of a type.

    `files` are written into `folder` before it starts; `argv` runs there. `environment` is all that it sees, apart from
    the location that the engine adds. `image` is only for engines of containers; the others refuse it with OrderError,
    before anything starts. After `limit_s` it is ended and has failed.
    """

    mark: JobMark
    argv: tuple[str, ...]
    folder: Path
    unit: str
    units: int
    files: Mapping[str, bytes] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    has_secrets: bool = False
    """Its environment has secrets: engines that would expose it refuse it with OrderError."""
    image: str | None = None
    limit_s: float | None = None
    grace_s: float = 5.0
    """Time between asking the job to end and killing it."""
    output_limit_bytes: int = 1 << 20


class JobPhase(StrEnum):
    """Phase of a job's life."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    """The engine does not know it (any more), or cannot say how it ended."""


JOB_ENDED: Final = (JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """A job as its engine knows it.

    `exit_code` is 128 + N if signal N killed it, None if it has not ended or the code is unknown. `reason` is one line
    on why it waits or how it ended: over its limit, out of memory, cancelled, its node gone.
    """

    id: str
    mark: JobMark
    phase: JobPhase
    unit: str | None = None
    units: int = 0
    exit_code: int | None = None
    reason: str = ""
    folder: Path | None = None
    """Folder it runs in, if the engine keeps that."""
    output_comes_at_end: bool = False
    """Its output is elsewhere while it runs, and in its folder only from its end."""
    started_ns: int | None = None
    finished_ns: int | None = None
    """Since 1970, by the clock of the machine that ran it."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources used by a job since its start: seconds of CPU time over all cores, peak memory in bytes."""

    cpu_s: float
    memory_peak_bytes: int | None = None


class Engine(Protocol):
    """Runs jobs on units; confined to one event loop."""

    @property
    def name(self) -> str:
        """Name for CentreStatus.engine."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Current notes for people, one line each: resources in no unit, limits that do not hold."""
        ...

    async def start(self) -> None:
        """Connect to the system that runs the jobs; raise EngineError if it is away."""
        ...

    async def close(self) -> None:
        """Disconnect; jobs run on."""
        ...

    async def resources(self) -> tuple[UnitType, ...]:
        """Return the current unit types; raise EngineError if they cannot be read.

        `count` is the number of working units, `free` those not taken by others' work. Our own does not count, as it
        is in the centre's shares. The agent fills in `operators`.
        """
        ...

    def changes(self) -> AsyncIterator[None]:
        """Yield whenever resources or jobs may have changed; the agent also polls every few seconds."""
        ...

    async def submit(self, order: JobOrder) -> str:
        """Start or queue a job; return the engine's id of it. Submitting the same mark twice makes one job."""
        ...

    async def states(self, ids: Collection[str]) -> Mapping[str, JobState]:
        """Return the jobs with these ids; an unknown one without a record of its end is missing, or LOST."""
        ...

    async def jobs(self) -> tuple[JobState, ...]:
        """Return all jobs with this centre's mark, including ended ones that are not forgotten yet."""
        ...

    async def cancel(self, job: str, grace_s: float) -> None:
        """End a job: ask, kill after the grace, return once it has ended. Unknown and ended jobs are fine."""
        ...

    async def forget(self, job: str) -> None:
        """Drop the engine's records of an ended job, once its outcome is in the API."""
        ...

    async def usage(self, job: str) -> Usage | None:
        """Return the resources that a job has used, None if the engine cannot tell."""
        ...
