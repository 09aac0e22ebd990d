"""What a centre's agent asks of an engine, and what it gets.

All calls have a deadline; a failure is an EngineError of one line. Jobs live on when the engine object or its process
ends: whoever makes a new one finds them by `jobs`, which are all that bear this centre's mark. Probes are ordinary
jobs, marked by a label and by the beginning of their name.

A job runs in its order's folder, which agent and job share: what it leaves there is its result. Its output and errors
go to OUTPUT_FILE and ERRORS_FILE in it, of which the engine keeps at most `output_limit_bytes` each, and its end is
told in EXIT_FILE, so that it is known after the engine has forgotten the job.
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
"""What a job's wrapper leaves at its end: {"exit_code", "reason", "started_ns", "finished_ns"}."""

CENTRE_LABEL, TASK_LABEL, UID_LABEL = "millrace.centre", "millrace.task", "millrace.uid"
EPOCH_LABEL, PROBE_LABEL = "millrace.epoch", "millrace.probe"
UNIT_LABEL, UNITS_LABEL = "millrace.unit", "millrace.units"
"""Labels by which a job is adopted, or ended as nobody's."""


@dataclass(frozen=True, slots=True)
class JobMark:
    """Whose a job is: it is adopted where centre, task, uid and epoch are as the API says, and ended where not."""

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
        """It as labels; `of_labels` is the way back."""
        return {
            CENTRE_LABEL: self.centre,
            TASK_LABEL: self.task,
            UID_LABEL: self.uid,
            EPOCH_LABEL: str(self.epoch),
            PROBE_LABEL: str(self.is_probe).lower(),
        }

    @classmethod
    def of_labels(cls, labels: Mapping[str, str]) -> JobMark | None:
        """Return whose a job with these labels is, None for one that is not ours."""
        number = labels.get(EPOCH_LABEL, "")
        if not all(labels.get(name) for name in (CENTRE_LABEL, TASK_LABEL, UID_LABEL)) or not number.isdigit():
            return None
        return cls(
            labels[CENTRE_LABEL], labels[TASK_LABEL], labels[UID_LABEL], int(number), labels.get(PROBE_LABEL) == "true"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """A job that is to run on so many units of a type.

    `files` are written into `folder` before it starts; `argv` runs there. `environment` is all that it sees, beside
    what the engine adds to say where it runs. `image` is for engines of containers alone; the others refuse it with
    OrderError, before anything is started. After `limit_s` it is ended and has failed.
    """

    mark: JobMark
    argv: tuple[str, ...]
    folder: Path
    unit: str
    units: int
    files: Mapping[str, bytes] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    has_secrets: bool = False
    """Its environment has secrets: engines that would show it to others refuse it with OrderError."""
    image: str | None = None
    limit_s: float | None = None
    grace_s: float = 5.0
    """How long it has, once asked to end, before it is killed."""
    output_limit_bytes: int = 1 << 20


class JobPhase(StrEnum):
    """Where a job is in its life."""

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

    `exit_code` is 128 + N for one that signal N killed, None while it has not ended or where nobody knows. `reason` is
    one line on why it waits or how it ended: over its limit, out of memory, cancelled, its node gone.
    """

    id: str
    mark: JobMark
    phase: JobPhase
    unit: str | None = None
    units: int = 0
    exit_code: int | None = None
    reason: str = ""
    folder: Path | None = None
    """Where it runs, if the engine keeps that."""
    started_ns: int | None = None
    finished_ns: int | None = None
    """Since 1970, by the clock of the machine that ran it."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a job has used since its start: seconds of CPU time over all cores, the most memory at once in bytes."""

    cpu_s: float
    memory_peak_bytes: int | None = None


class Engine(Protocol):
    """Runs jobs on units; of one event loop."""

    @property
    def name(self) -> str:
        """As CentreStatus.engine says it."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know of it now, a line each: what is in no unit, which limits do not hold."""
        ...

    async def start(self) -> None:
        """Connect to what runs the jobs; raise EngineError where it is not there."""
        ...

    async def close(self) -> None:
        """Let go of it; jobs run on."""
        ...

    async def resources(self) -> tuple[UnitType, ...]:
        """Return the unit types as they are now; raise EngineError where that cannot be asked.

        `count` are those that work, `free` those of them not taken by others' work: ours is not counted, it stands in
        the centre's shares. `operators` is the agent's to fill in.
        """
        ...

    def changes(self) -> AsyncIterator[None]:
        """Yield whenever resources or jobs may have changed; the agent also asks every few seconds on its own."""
        ...

    async def submit(self, order: JobOrder) -> str:
        """Start a job, or queue it; return the engine's id of it. The same mark twice is one job, not two."""
        ...

    async def states(self, ids: Collection[str]) -> Mapping[str, JobState]:
        """Return the jobs with these ids; an unknown one without a record of its end is left out, or LOST."""
        ...

    async def jobs(self) -> tuple[JobState, ...]:
        """Return all jobs that bear this centre's mark, those that have ended and are not forgotten yet as well."""
        ...

    async def cancel(self, job: str, grace_s: float) -> None:
        """Have a job end: ask, and kill after the grace; return once it has ended. Unknown and ended ones are fine."""
        ...

    async def forget(self, job: str) -> None:
        """Drop what the engine keeps of a job that has ended, once its outcome is in the API."""
        ...

    async def usage(self, job: str) -> Usage | None:
        """Return what a job has used, None where the engine cannot say."""
        ...
