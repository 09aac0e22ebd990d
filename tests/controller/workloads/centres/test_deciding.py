"""Next actions of an agent, from the states in API and engine."""

from __future__ import annotations

from msgspec.structs import replace

from controller.apiserver.resources import Metadata, Task
from controller.apiserver.resources.centre import UnitType
from controller.apiserver.resources.hardware import DeviceNeed, Request
from controller.apiserver.resources.task import Program, ProgramKind, TaskPhase, TaskSpec, TaskStatus, UnitChoice
from controller.probing.library import KernelLibrary
from controller.probing.values import Implementation, KernelUse, Library, ProbeTask
from controller.workloads.centres.choosing import can_run, pick
from controller.workloads.centres.deciding import (
    Answer,
    Begin,
    Cancel,
    Cause,
    Complete,
    Forget,
    GiveBack,
    NoteRunning,
    PickUnit,
    Step,
    Terms,
    View,
    decide,
)
from controller.workloads.centres.engines.base import JobMark, JobPhase, JobState
from controller.workloads.centres.programs import mark_of
from dataplane.topology.values import DeviceKind

CPU = Implementation(DeviceKind.CPU, Library.NUMPY, "m:f")
GPU = Implementation(DeviceKind.GPU, Library.TORCH, "m:f")
# The specification's example: unit 1 has operators 1 3 4, unit 2 has 1 2 3 5, unit 3 has 1 2 5.
ONE = UnitType(name="one", count=10, operators=("k1", "k3", "k4"), unit=Request(cpu_milli=1000))
TWO = UnitType(name="two", count=20, operators=("k1", "k2", "k3", "k5"), unit=Request(cpu_milli=4000))
THREE = UnitType(name="three", count=5, operators=("k1", "k2", "k5"), unit=Request(cpu_milli=2000))
TYPES = (ONE, TWO, THREE)
NOW_NS = 10**12


def probe_of(*kernels: str, code: Implementation = CPU) -> ProbeTask:
    uses = tuple(KernelUse(kernel, kernel, 1, (), 1, 1, code, 1e-9) for kernel in kernels)
    return ProbeTask("solve", "hpc", uses)


PROBE = probe_of("k1", "k2")


def task(name: str = "a", phase: TaskPhase = TaskPhase.DISPATCHED, **more: object) -> Task:
    spec = {"is_probe": more.pop("is_probe", False), "asks": more.pop("asks", False)}
    status = {"unit": "two", "units": 2, "epoch": 1, "dispatched_ns": NOW_NS} | more
    return Task(
        metadata=Metadata(name=name, uid=f"uid-of-{name}"),
        spec=TaskSpec(program=Program(kind=ProgramKind.PROBE, entry="solve"), **spec),  # type: ignore[arg-type]
        status=TaskStatus(phase=phase, centre="c1", **status),  # type: ignore[arg-type]
    )


def job_of(task: Task, phase: JobPhase) -> JobState:
    return JobState(id=f"job-{task.metadata.name}", mark=mark_of(task, "c1"), phase=phase)


def steps(*tasks: Task, jobs: tuple[JobState, ...] = (), probe: ProbeTask | None = PROBE, **more: object) -> list[Step]:
    fields = {"types": TYPES, "probes": {"solve": probe}, "terms": Terms(64, 300.0)} | more
    return list(
        decide(View("c1", tasks, {job.mark: job for job in jobs}, now_ns=NOW_NS, **fields))  # type: ignore[arg-type]
    )


def test_unit_qualifies_if_it_supports_every_kernel() -> None:
    assert can_run(TYPES, probe_of("k1")) == ("one", "three", "two")
    assert can_run(TYPES, probe_of("k1", "k2")) == ("three", "two")
    assert can_run(TYPES, probe_of("k4", "k5")) == ()
    assert can_run(TYPES, probe_of("k1"), units=6) == ("one", "two")
    assert can_run(TYPES, None, units=11) == ("two",)


def test_a_kernel_for_a_device_needs_units_that_have_one() -> None:
    with_gpu = replace(ONE, name="gpu", unit=Request(devices=(DeviceNeed(kind=DeviceKind.GPU),)))
    assert can_run((*TYPES, with_gpu), probe_of("k1", code=GPU)) == ("gpu",)


def test_centre_picks_the_freest_unit_and_the_smallest_of_equals() -> None:
    assert pick(TYPES, ("one", "two"), {}, 1) == "two"
    assert pick(TYPES, ("one", "two"), {"two": 15}, 1) == "one"
    assert pick(TYPES, ("one", "two"), {"two": 10}, 1) == "one"
    assert pick(TYPES, ("one", "two"), {"two": 15}, 11) is None
    assert pick((replace(TWO, free=3),), ("two",), {"two": 2}, 2) is None


def test_dispatched_task_is_begun_and_reported_running_and_ended() -> None:
    dispatched = task()
    assert steps(dispatched) == [Begin(dispatched, TWO, None)]
    running, queued = job_of(dispatched, JobPhase.RUNNING), job_of(dispatched, JobPhase.QUEUED)
    assert steps(dispatched, jobs=(queued,)) == []
    assert steps(dispatched, jobs=(running,)) == [NoteRunning(dispatched, running)]
    told = task(phase=TaskPhase.RUNNING)
    assert steps(told, jobs=(job_of(told, JobPhase.RUNNING),)) == []
    for phase in (JobPhase.SUCCEEDED, JobPhase.FAILED):
        ended = job_of(told, phase)
        assert steps(told, jobs=(ended,)) == [Complete(told, ended)]


def test_a_lost_job_gives_its_task_back() -> None:
    running = task(phase=TaskPhase.RUNNING)
    reason = "its job is lost: the engine does not know it"
    assert steps(running) == [GiveBack(running, TaskPhase.PENDING, reason, Cause.LOST)]
    assert steps(running, jobs=(job_of(running, JobPhase.LOST),)) == [
        GiveBack(running, TaskPhase.PENDING, reason, Cause.LOST)
    ]


def test_jobs_of_older_epochs_and_without_tasks_end() -> None:
    old, new = task(epoch=1), task(epoch=2)
    job = job_of(old, JobPhase.RUNNING)
    begun, ended = steps(new, jobs=(job,))
    assert begun == Begin(new, TWO, None)
    assert isinstance(ended, Cancel)
    assert (ended.job, ended.task) == (job, None)
    done = job_of(old, JobPhase.SUCCEEDED)
    assert Forget(done) in steps(new, jobs=(done,))
    mine = JobState(id="t", mark=JobMark("c1", "trial", "u", 0, is_probe=True), phase=JobPhase.RUNNING)
    assert steps(jobs=(mine,), trials=frozenset({"trial"})) == []


def test_acknowledged_completion_is_neither_repeated_nor_begun() -> None:
    dispatched = task()
    ended = frozenset({("uid-of-a", 1)})
    assert steps(dispatched, ended=ended) == []
    done = job_of(dispatched, JobPhase.SUCCEEDED)
    assert steps(dispatched, jobs=(done,), ended=ended) == [Forget(done)]


def test_a_task_that_is_being_deleted_is_ended_then_given_back() -> None:
    going = task()
    going = replace(going, metadata=replace(going.metadata, deleting_ns=5))
    running = job_of(going, JobPhase.RUNNING)
    assert steps(going, jobs=(running,)) == [Cancel(running, "the task is being deleted", going)]
    assert steps(going) == [GiveBack(going, TaskPhase.FAILED, "it was deleted", Cause.DELETED)]


def test_a_question_is_answered_with_the_units_that_could_run_it() -> None:
    asks = task(is_probe=True, asks=True, unit=None, units=0)
    assert steps(asks) == [Answer(asks, ("three", "two"))]
    strange = probe_of("k1", "k9")
    reason = "no unit type of this centre runs kernel k9"
    assert steps(asks, probe=strange) == [Answer(asks, (), (reason,))]


def test_probe_without_a_unit_gets_one_that_can_run_it() -> None:
    free, busy = task("a", is_probe=True, unit=None, units=3), task("b", unit="two", units=18, phase=TaskPhase.RUNNING)
    jobs = (job_of(busy, JobPhase.RUNNING),)
    assert steps(free, busy, jobs=jobs) == [PickUnit(free, "three", 3, ("three", "two"))]
    too_many = task("a", is_probe=True, unit=None, units=21)
    assert steps(too_many) == [
        GiveBack(too_many, TaskPhase.FAILED, "no unit type of this centre can run it", Cause.CANNOT_RUN)
    ]


def test_two_probes_without_a_unit_get_different_units() -> None:
    first, second = (task(name, is_probe=True, unit=None, units=4) for name in "ab")
    types = (replace(TWO, count=5), THREE)
    assert steps(first, second, types=types) == [
        PickUnit(first, "three", 4, ("three", "two")),
        PickUnit(second, "two", 4, ("three", "two")),
    ]


COUNTS = (1, 2, 4, 8, 16)


def open_task(name: str = "a", unit: str | None = None) -> Task:
    """Return a probe that leaves the number of units, and without `unit` their type, to the centre."""
    made = task(name, is_probe=True, unit=None, units=1)
    return replace(made, spec=replace(made.spec, choice=UnitChoice.CENTRE, unit=unit))


def test_centre_picks_the_count_of_a_probe_without_one() -> None:
    probe, able = open_task(), ("three", "two")
    assert steps(probe, probe_counts=COUNTS) == [PickUnit(probe, "two", 16, able)]
    # 17 of type two are held, so that type three has most free, and 5 of them.
    busy = task("b", unit="two", units=17, phase=TaskPhase.RUNNING)
    jobs = (job_of(busy, JobPhase.RUNNING),)
    assert steps(probe, busy, jobs=jobs, probe_counts=COUNTS) == [PickUnit(probe, "three", 4, able)]
    assert steps(probe, busy, jobs=jobs, probe_counts=(5, 16)) == [PickUnit(probe, "three", 5, able)]
    # None of the counts is free: one unit is, as the dispatch holds it.
    assert steps(probe, busy, jobs=jobs, probe_counts=(16,)) == [PickUnit(probe, "three", 1, able)]
    # Stated counts are not the centre's.
    stated = replace(probe, spec=replace(probe.spec, units=(1,)))
    assert steps(stated, probe_counts=COUNTS) == [PickUnit(stated, "two", 1, able)]


def test_centre_picks_the_count_alone_on_a_stated_type() -> None:
    on_three = open_task(unit="three")
    assert steps(on_three, probe_counts=COUNTS) == [PickUnit(on_three, "three", 4, ("three", "two"))]
    wrong, gone = open_task(unit="one"), open_task(unit="four")
    assert steps(wrong) == [GiveBack(wrong, TaskPhase.FAILED, "units of type one cannot run k2", Cause.CANNOT_RUN)]
    assert steps(gone) == [
        GiveBack(gone, TaskPhase.PENDING, "it needs 1 units of type four, this centre has 0", Cause.NO_UNITS)
    ]


def test_picked_count_leaves_room_for_unpicked_tasks() -> None:
    probe, other = open_task("a"), task("b", is_probe=True, unit=None, units=3)
    types = (replace(TWO, count=6),)
    assert steps(probe, other, types=types, probe_counts=COUNTS) == [
        PickUnit(probe, "two", 2, ("two",)),
        PickUnit(other, "two", 3, ("two",)),
    ]


def test_probe_is_refused_on_unfit_units_or_if_unknown() -> None:
    wrong = task(is_probe=True, unit="one")
    assert steps(wrong) == [GiveBack(wrong, TaskPhase.FAILED, "units of type one cannot run k2", Cause.CANNOT_RUN)]
    assert steps(wrong, probe=None) == [
        GiveBack(wrong, TaskPhase.FAILED, "there is no ProbeTask solve", Cause.NO_PROBE_TASK)
    ]
    assert steps(wrong, probes={}) == []


def test_units_that_went_give_their_task_back() -> None:
    wide = task(units=21)
    assert steps(wide) == [
        GiveBack(wide, TaskPhase.PENDING, "it needs 21 units of type two, this centre has 20", Cause.NO_UNITS)
    ]
    gone = task(unit="four")
    assert steps(gone) == [
        GiveBack(gone, TaskPhase.PENDING, "it needs 2 units of type four, this centre has 0", Cause.NO_UNITS)
    ]


def test_the_queue_is_bounded_in_number_and_in_time() -> None:
    first, second, third = (task(name, dispatched_ns=NOW_NS - index) for index, name in enumerate("cba"))
    jobs = tuple(job_of(waiting, JobPhase.QUEUED) for waiting in (first, second, third))
    terms = Terms(most_waiting=2, wait_s=300.0)
    # The newest one is returned.
    assert steps(first, second, third, jobs=jobs, terms=terms) == [
        Cancel(jobs[0], "2 tasks are waiting here already", first, TaskPhase.PENDING, Cause.QUEUE_FULL)
    ]
    late = task(dispatched_ns=NOW_NS - 301 * 10**9)
    assert steps(late, jobs=(job_of(late, JobPhase.QUEUED),)) == [
        Cancel(
            job_of(late, JobPhase.QUEUED),
            "it waited for units for more than 300 s",
            late,
            TaskPhase.PENDING,
            Cause.WAITED,
        )
    ]


def test_an_empty_library_runs_no_probe() -> None:
    assert KernelLibrary(built_in=()).kernels() == ()
    bare = tuple(replace(unit, operators=()) for unit in TYPES)
    asked = task(is_probe=True, unit=None, units=1)
    reason = "no unit type of this centre runs kernel k1, k2"
    assert steps(asked, types=bare) == [GiveBack(asked, TaskPhase.FAILED, reason, Cause.CANNOT_RUN)]


def test_part_is_stopped_once_another_has_not_succeeded() -> None:
    """Item 14: a task of several centres runs everywhere or nowhere."""
    why = "a part of the task has ended: centre c2: no room"
    stopping = task(stopping=why)
    running = job_of(stopping, JobPhase.RUNNING)
    assert steps(stopping, jobs=(running,)) == [Cancel(running, why, stopping, TaskPhase.PENDING, Cause.MEMBER)]
    assert steps(stopping) == [GiveBack(stopping, TaskPhase.PENDING, why, Cause.MEMBER)]
    ended = job_of(stopping, JobPhase.SUCCEEDED)
    assert steps(stopping, jobs=(ended,)) == [Complete(stopping, ended)]
