"""Next step for each task and each job, from the state of the API and the engine; pure.

A task holds units in an epoch; its job carries task, uid and epoch. Whatever happened in between (the agent was killed,
the API was away, the engine has lost a job), the next step follows from these alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from controller.apiserver.resources import Task
from controller.apiserver.resources.centre import UnitType
from controller.apiserver.resources.task import TaskPhase
from controller.probing.values import ProbeTask
from controller.workloads.centres.choosing import can_run, missing_kernels, pick, pick_with_count
from controller.workloads.centres.engines.base import JOB_ENDED, JobMark, JobPhase, JobState
from controller.workloads.centres.programs import mark_of
from dataplane.clock import NS_PER_S


class Cause(StrEnum):
    """Reason for giving a task back, as counted."""

    NO_PROBE_TASK = "no-probe-task"
    CANNOT_RUN = "cannot-run"
    """No unit type here, or not the assigned one, runs its kernels or has enough units."""
    NO_UNITS = "no-units"
    """The type has too few units here."""
    QUEUE_FULL = "queue-full"
    WAITED = "waited"
    UNFIT = "unfit"
    """The engine can never run it."""
    LOST = "lost"
    """The end of its job is unknown."""
    DELETED = "deleted"
    SIGNED_OFF = "signed-off"
    MEMBER = "member"
    """Its part at another centre has not succeeded."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Limits on how many tasks wait here, and for how long, before they are given back."""

    most_waiting: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class View:
    """Observed state: tasks that hold units here, jobs by mark, unit types as reported, probes by name.

    A probe that is None does not exist. `now_ns` is the server's time. `ended` are tasks (uid, epoch) whose completion
    is acknowledged; `trials` are jobs of our own, which belong to no task. `probe_counts` are the numbers of units for
    probes that leave it to the centre.
    """

    centre: str
    tasks: Sequence[Task]
    jobs: Mapping[JobMark, JobState]
    types: Sequence[UnitType]
    probes: Mapping[str, ProbeTask | None]
    now_ns: int
    terms: Terms
    ended: frozenset[tuple[str, int]] = frozenset()
    trials: frozenset[str] = frozenset()
    probe_counts: Sequence[int] = (1,)


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the task's request with the unit types that could run it."""

    task: Task
    could_run: tuple[str, ...]
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PickUnit:
    """Pick the unit type, and for some probes the number, for a task that leaves the choice to the centre."""

    task: Task
    unit: str
    units: int
    could_run: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """Have the engine run the task."""

    task: Task
    unit: UnitType
    probe: ProbeTask | None


@dataclass(frozen=True, slots=True)
class NoteRunning:
    """Report that the task runs."""

    task: Task
    job: JobState


@dataclass(frozen=True, slots=True)
class Complete:
    """Report how the job has ended, with its results."""

    task: Task
    job: JobState


@dataclass(frozen=True, slots=True)
class GiveBack:
    """The task has no job, or will have none: end it, or have it dispatched again."""

    task: Task
    phase: TaskPhase
    reason: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a job that is no longer wanted, or has waited too long; `then` is the task's next step."""

    job: JobState
    why: str
    task: Task | None = None
    then: TaskPhase = TaskPhase.FAILED
    cause: Cause = Cause.DELETED


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop an ended job whose outcome is no longer needed."""

    job: JobState


Step = Answer | PickUnit | Begin | NoteRunning | Complete | GiveBack | Cancel | Forget


@dataclass(slots=True)
class _Counts:
    """Units by type that tasks hold here, those held without a type yet, and how many tasks wait."""

    taken: dict[str, int] = field(default_factory=dict)
    promised: int = 0
    waiting: int = 0

    def pick(self, unit: str, units: int, promised: int) -> None:
        """Book units of a type for a task that held `promised` without one."""
        self.taken[unit] = self.taken.get(unit, 0) + units
        self.promised -= promised


def decide(view: View) -> tuple[Step, ...]:
    """Return the steps due now, at most one for each task and for each job without one."""
    counts = _Counts()
    for task in view.tasks:
        units = task.status.units or 0
        if task.status.unit is not None:
            counts.taken[task.status.unit] = counts.taken.get(task.status.unit, 0) + units
        elif (task.metadata.uid, task.status.epoch) not in view.ended:
            counts.promised += units
    steps: list[Step] = []
    wanted: set[JobMark] = set()
    for task in sorted(view.tasks, key=lambda task: (task.status.dispatched_ns or 0, task.metadata.name)):
        mark = mark_of(task, view.centre)
        wanted.add(mark)
        if (task.metadata.uid, task.status.epoch) in view.ended:
            continue
        step = _step_of(view, task, view.jobs.get(mark), counts)
        if step is not None:
            steps.append(step)
    for mark, job in view.jobs.items():
        gone = (mark.uid, mark.epoch) in view.ended or mark not in wanted
        if gone and mark.task not in view.trials:
            why = "its task has left this centre, or was dispatched again"
            steps.append(Forget(job) if job.phase in JOB_ENDED else Cancel(job, why))
    return tuple(steps)


def _step_of(view: View, task: Task, job: JobState | None, counts: _Counts) -> Step | None:
    if task.metadata.deleting_ns is not None:
        if job is not None and job.phase not in JOB_ENDED:
            return Cancel(job, "the task is being deleted", task)
        return GiveBack(task, TaskPhase.FAILED, "it was deleted", Cause.DELETED)
    if (why := task.status.stopping) and (job is None or job.phase not in JOB_ENDED):
        if job is not None:
            return Cancel(job, why, task, TaskPhase.PENDING, Cause.MEMBER)
        return GiveBack(task, TaskPhase.PENDING, why, Cause.MEMBER)
    if job is None:
        return _begin(view, task, counts)
    if job.phase is JobPhase.LOST:
        reason = f"its job is lost: {job.reason or 'the engine does not know it'}"
        return GiveBack(task, TaskPhase.PENDING, reason, Cause.LOST)
    if job.phase in JOB_ENDED:
        return Complete(task, job)
    if job.phase is JobPhase.QUEUED:
        return _wait(view, task, job, counts)
    return NoteRunning(task, job) if task.status.phase is TaskPhase.DISPATCHED else None


def _begin(view: View, task: Task, counts: _Counts) -> Step | None:
    """Return the first step of a task that has no job."""
    if task.status.phase is TaskPhase.RUNNING:
        return GiveBack(task, TaskPhase.PENDING, "its job is lost: the engine does not know it", Cause.LOST)
    entry, probe, units = task.spec.program.entry, None, task.status.units or 0
    if task.spec.is_probe:
        if entry not in view.probes:
            return None  # still being read
        probe = view.probes[entry]
        if probe is None:
            return GiveBack(task, TaskPhase.FAILED, f"there is no ProbeTask {entry}", Cause.NO_PROBE_TASK)
    able = can_run(view.types, probe, units)
    if task.spec.asks:
        return Answer(task, able, _why_none(view, probe, able))
    name = task.status.unit or task.spec.unit
    if name is None:
        return _pick(view, task, able, able, counts) if able else _refuse(task, _why_none(view, probe, able)[0])
    unit = next((unit_type for unit_type in view.types if unit_type.name == name), None)
    if unit is None or unit.count < units:
        has = 0 if unit is None else unit.count
        reason = f"it needs {units} units of type {name}, this centre has {has}"
        return GiveBack(task, TaskPhase.PENDING, reason, Cause.NO_UNITS)
    if probe is not None and unit.name not in able:
        lacks = sorted(set(probe.kernels) - set(unit.operators)) or ["the devices that its kernels need"]
        return _refuse(task, f"units of type {unit.name} cannot run {', '.join(lacks)}")
    if task.status.unit is None:
        return _pick(view, task, (name,), able, counts)
    return Begin(task, unit, probe)


def _refuse(task: Task, reason: str) -> GiveBack:
    return GiveBack(task, TaskPhase.FAILED, reason, Cause.CANNOT_RUN)


def _pick(
    view: View, task: Task, fitting: tuple[str, ...], able: tuple[str, ...], counts: _Counts
) -> PickUnit | GiveBack | Cancel | None:
    """Pick among unit types, and the number of units if the task leaves it open; let it wait if too few are free."""
    units = task.status.units or 0
    picked: tuple[str, int] | None
    if task.spec.leaves_count:
        others = counts.promised - units
        picked = pick_with_count(view.types, fitting, counts.taken, view.probe_counts, promised=others)
    else:
        name = pick(view.types, fitting, counts.taken, units)
        picked = None if name is None else (name, units)
    if picked is None:
        return _wait(view, task, None, counts)
    counts.pick(*picked, promised=units)
    return PickUnit(task, *picked, able)


def _wait(view: View, task: Task, job: JobState | None, counts: _Counts) -> GiveBack | Cancel | None:
    """Let a task wait for units, within the bounds of the queue."""
    counts.waiting += 1
    waited_s = (view.now_ns - (task.status.dispatched_ns or view.now_ns)) / NS_PER_S
    if counts.waiting > view.terms.most_waiting:
        reason, cause = f"{view.terms.most_waiting} tasks are waiting here already", Cause.QUEUE_FULL
    elif waited_s > view.terms.wait_s:
        reason, cause = f"it waited for units for more than {view.terms.wait_s:g} s", Cause.WAITED
    else:
        return None
    if job is None:
        return GiveBack(task, TaskPhase.PENDING, reason, cause)
    return Cancel(job, reason, task, TaskPhase.PENDING, cause)


def _why_none(view: View, probe: ProbeTask | None, able: Sequence[str]) -> tuple[str, ...]:
    if able:
        return ()
    missing = () if probe is None else missing_kernels(view.types, probe)
    if missing:
        return (f"no unit type of this centre runs kernel {', '.join(missing)}",)
    return ("no unit type of this centre can run it",)
