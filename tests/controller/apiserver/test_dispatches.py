"""Dispatches, picks and completions, decided from stored state."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from controller.apiserver.registry.completions import Completion, CompletionRequest, NewResult, complete
from controller.apiserver.registry.dispatches import Dispatch, DispatchRequest, OtherMember, Pick, dispatch, pick
from controller.apiserver.registry.task_state import TaskState
from controller.apiserver.resources import Centre, Metadata, Task
from controller.apiserver.resources.centre import CentreSpec, CentreStatus, UnitType
from controller.apiserver.resources.hardware import DeviceNeed, Request
from controller.apiserver.resources.operator_devices import MOST_LETTERS, OperatorDevice, text_of
from controller.apiserver.resources.probe_result import ProbeResultStatus, ProbeRun
from controller.apiserver.resources.task import OperatorCount, Program, ProgramKind, TaskPhase, TaskSpec, UnitChoice
from controller.apiserver.resources.task_rules import TASK, member_reported, reported
from controller.common.errors import ApiError, InvalidError, NotFoundError, StaleError
from dataplane.topology.values import DeviceKind

NOW_NS = 100_000_000_000
SMALL, LARGE = UnitType(name="small", count=4), UnitType(name="large", count=2)


def centre(name: str = "c1", *units: UnitType, heartbeat_ns: int = NOW_NS, ready: bool = True) -> Centre:
    status = CentreStatus(ready=ready, heartbeat_ns=heartbeat_ns, units=units or (SMALL, LARGE))
    return Centre(metadata=Metadata(name=name, revision=7), status=status)


def task(name: str, **spec: object) -> Task:
    made = TaskSpec(program=Program(kind=ProgramKind.PROBE, entry="solve"), **spec)  # type: ignore[arg-type]
    return Task(metadata=Metadata(name=name, uid=f"uid-of-{name}", revision=3), spec=made)


def state(*tasks: Task, centres: tuple[Centre, ...] = (centre(), centre("c2"))) -> TaskState:
    return TaskState(
        {centre.metadata.name: centre for centre in tasks}, {centre.metadata.name: centre for centre in centres}
    )


def sent(before: TaskState, *items: Dispatch) -> TaskState:
    made = dispatch(before, DispatchRequest(dispatches=items), NOW_NS)
    return TaskState(before.tasks | made.tasks, before.centres | made.centres)


def completed(before: TaskState, *items: Completion) -> TaskState:
    return complete(before, CompletionRequest(completions=items), NOW_NS + 1)


def task_of(made: TaskState, name: str) -> Task:
    task = made.tasks[name]
    assert task is not None
    return task


def test_a_dispatch_writes_task_and_share() -> None:
    made = sent(state(task("a")), Dispatch(task="a", centre="c1", unit="small", units=3))
    status = task_of(made, "a").status
    assert (status.phase, status.centre, status.unit, status.units) == (TaskPhase.DISPATCHED, "c1", "small", 3)
    assert (status.epoch, status.dispatched_ns) == (1, NOW_NS)
    (share,) = made.centres["c1"].shares
    assert (share.task, share.uid, share.epoch, share.unit, share.units) == ("a", "uid-of-a", 1, "small", 3)
    assert [made.centres[name].shares_version for name in ("c1", "c2")] == [1, 0]


def test_no_unit_is_given_twice() -> None:
    before = sent(state(task("a"), task("b")), Dispatch(task="a", centre="c1", unit="small", units=3))
    with pytest.raises(StaleError, match="Centre c1: b wants 2 units of type small, 1 are free"):
        sent(before, Dispatch(task="b", centre="c1", unit="small", units=2))
    assert len(sent(before, Dispatch(task="b", centre="c1", unit="small", units=1)).centres["c1"].shares) == 2


def test_units_that_others_work_takes_are_not_given() -> None:
    busy = centre("c1", replace(SMALL, free=2))
    sent(state(task("a"), centres=(busy,)), Dispatch(task="a", centre="c1", unit="small", units=2))
    with pytest.raises(StaleError, match="wants 3 units of type small, 2 are free"):
        sent(state(task("a"), centres=(busy,)), Dispatch(task="a", centre="c1", unit="small", units=3))


def test_dispatch_without_a_unit_has_a_place_in_the_centre() -> None:
    before = sent(
        state(*(task(name) for name in "abcd")),
        Dispatch(task="a", centre="c1", units=3),
        Dispatch(task="b", centre="c1", units=2),
    )
    with pytest.raises(StaleError, match="Centre c1: c wants 2 units, but no type has that many free"):
        sent(before, Dispatch(task="c", centre="c1", units=2))
    # A task that names its type must leave room for those that do not.
    with pytest.raises(StaleError, match="Centre c1: d wants 2 units, but no type"):
        sent(before, Dispatch(task="d", centre="c1", unit="small", units=2))
    picked = pick(before, Pick(task="a", epoch=1, unit="small", could_run=("large", "small")))
    status = task_of(picked, "a").status
    assert (status.unit, status.could_run) == ("small", ("large", "small"))
    assert {share.task: share.unit for share in picked.centres["c1"].shares} == {"a": "small", "b": None}


def test_pick_takes_only_free_units_and_only_once() -> None:
    before = sent(
        state(task("a"), task("b")),
        Dispatch(task="a", centre="c1", unit="large", units=2),
        Dispatch(task="b", centre="c1", units=1),
    )
    for item, problem in (
        (Pick(task="b", epoch=1, unit="large"), "b wants 1 units of type large, 0 are free"),
        (Pick(task="b", epoch=1, unit="huge"), "Centre c1 has no units of type huge"),
        (Pick(task="a", epoch=1, unit="small"), "Task a has units of type large, there is no unit to pick"),
        (Pick(task="b", epoch=2, unit="small"), "Task b is in epoch 1, no longer in 2"),
    ):
        with pytest.raises(StaleError, match=problem):
            pick(before, item)


def test_centre_picks_the_count_of_a_probe_and_reports_it() -> None:
    """The dispatch holds one unit, the pick as many as the centre chooses, and the result has their number."""
    left = {"is_probe": True, "choice": UnitChoice.CENTRE}
    before = sent(
        state(task("open", **left), task("typed", unit="large", **left), task("stated", units=(1,), **left)),
        *(Dispatch(task=name, centre="c1") for name in ("open", "typed", "stated")),
    )
    assert [share.units for share in before.centres["c1"].shares] == [1, 1, 1]
    made = pick(before, Pick(task="open", epoch=1, unit="small", units=3))
    assert {share.task: share.units for share in made.centres["c1"].shares} == {"typed": 1, "stated": 1, "open": 3}
    assert task_of(made, "open").status.units == 3
    # Picked units count for the quota of the probe's sender.
    usages = [TASK.strategy.usage(task) for task in (task_of(before, "open"), task_of(made, "open"))]
    assert [usage.units for usage in usages if usage is not None] == [1, 3]
    after = TaskState(before.tasks | made.tasks, before.centres | made.centres)
    for item, problem in (
        (Pick(task="open", epoch=1, unit="small", units=2), "Task open has 3 units: their number is picked once"),
        (Pick(task="typed", epoch=1, unit="small", units=1), "Task typed is for unit large, not small"),
        (Pick(task="typed", epoch=1, unit="large", units=3), "typed wants 3 units of type large, 2 are free"),
        (Pick(task="stated", epoch=1, unit="small", units=2), "dispatched on 1 units: its centre picks no other"),
    ):
        with pytest.raises(StaleError, match=problem):
            pick(after, item)
    run = ProbeRun(units=3, run_times_s=(1.5,))
    measured = NewResult(status=ProbeResultStatus(runs=(run,), units=99))
    done = completed(after, Completion(task="open", epoch=1, phase=TaskPhase.SUCCEEDED, result=measured))
    (result,) = done.results.values()
    assert (result.status.unit, result.status.units) == ("small", 3)
    assert [share.task for share in done.centres["c1"].shares] == ["typed", "stated"]


@pytest.mark.parametrize(
    ("item", "error", "problem"),
    [
        (Dispatch(task="x", centre="c1", unit="small"), NotFoundError, "there is no Task x"),
        (Dispatch(task="a", centre="c9", unit="small"), NotFoundError, "there is no Centre c9"),
        (Dispatch(task="a", centre="c1", unit="huge"), StaleError, "Centre c1 has no units of type huge"),
        (Dispatch(task="a", centre="c1", unit="small", units=0), InvalidError, "Task a must request at least one unit"),
        (Dispatch(task="a", centre="c1", task_revision=2), StaleError, "Task a is at revision 3, no longer at 2"),
        (Dispatch(task="a", centre="c1", shares_version=5), StaleError, "shares of Centre c1 are at version 0, not 5"),
        (Dispatch(task="asks", centre="c1", units=1), InvalidError, "Task asks is only a query: it gets no units"),
        (Dispatch(task="mine", centre="c1", unit="small"), StaleError, "Task mine is for centre c2, not c1"),
        (Dispatch(task="mine", centre="c2", unit="small"), StaleError, "Task mine is for unit large, not small"),
        (Dispatch(task="going", centre="c1"), StaleError, "Task going is being deleted"),
        (Dispatch(task="done", centre="c1"), StaleError, "Task done has succeeded"),
        (Dispatch(task="a", centre="silent"), StaleError, "silent has been silent for longer than its lease of 60 s"),
        (Dispatch(task="a", centre="unready"), StaleError, "Centre unready is not ready: it has not reported"),
        (Dispatch(task="a", centre="closed"), StaleError, "Centre closed does not accept tasks"),
    ],
)
def test_impossible_dispatch_is_refused(item: Dispatch, error: type[ApiError], problem: str) -> None:
    done, going = task("done"), task("going")
    done = replace(done, status=replace(done.status, phase=TaskPhase.SUCCEEDED))
    going = replace(going, metadata=replace(going.metadata, deleting_ns=1))
    before = state(
        task("a"),
        task("asks", asks=True),
        task("mine", centre="c2", unit="large"),
        done,
        going,
        centres=(
            centre(),
            centre("c2"),
            centre("silent", heartbeat_ns=NOW_NS - 60_000_000_001),
            centre("unready", ready=False),
            replace(centre("closed"), spec=CentreSpec(unschedulable=True)),
        ),
    )
    with pytest.raises(error, match=problem):
        sent(before, item)


WITH_GPU = UnitType(name="gpu", count=2, unit=Request(devices=(DeviceNeed(kind=DeviceKind.GPU),)))
PRODUCTS = (OperatorCount(name="product", operator="gemm"), OperatorCount(name="p" * 1000, operator="gemm"))
ON_GPU = (OperatorDevice(operator="product", device=DeviceKind.GPU),)


def test_dispatch_keeps_operator_devices_until_the_task_returns() -> None:
    before = state(task("a", operators=PRODUCTS), centres=(centre("c1", WITH_GPU),))
    made = sent(before, Dispatch(task="a", centre="c1", unit="gpu", operator_devices=ON_GPU))
    assert task_of(made, "a").status.operator_devices == ON_GPU
    ended = completed(made, Completion(task="a", epoch=1, phase=TaskPhase.FAILED))
    assert task_of(ended, "a").status.operator_devices == ON_GPU
    back = completed(made, Completion(task="a", epoch=1, phase=TaskPhase.PENDING))
    assert task_of(back, "a").status.operator_devices == ()


@pytest.mark.parametrize(
    ("unit", "devices", "error", "problem"),
    [
        (
            "gpu",
            (OperatorDevice(operator="sum", device=DeviceKind.GPU),),
            InvalidError,
            "Task a: operator 'sum' does not exist",
        ),
        (
            "gpu",
            (OperatorDevice(operator="product", device=DeviceKind.NPU),),
            StaleError,
            "'product' should run on a npu, but there is none",
        ),
        (
            "small",
            ON_GPU,
            StaleError,
            "Task a on small of c1: operator 'product' should run on a gpu, but there is none",
        ),
        ("gpu", ON_GPU * 2, InvalidError, "operator 'product' does not exist, or already has a device"),
        (None, ON_GPU, InvalidError, "Task a: its centre picks its units"),
    ],
)
def test_operators_are_put_on_no_device_that_their_units_lack(
    unit: str | None, devices: tuple[OperatorDevice, ...], error: type[ApiError], problem: str
) -> None:
    before = state(task("a", operators=PRODUCTS), centres=(centre("c1", WITH_GPU, SMALL),))
    with pytest.raises(error, match=problem):
        sent(before, Dispatch(task="a", centre="c1", unit=unit, operator_devices=devices))


def test_operator_names_too_long_for_an_environment_are_refused() -> None:
    many = tuple(OperatorCount(name=f"{number}{'é' * 1000}", operator="gemm") for number in range(4))
    devices = tuple(OperatorDevice(operator=operator.name, device=DeviceKind.CPU) for operator in many)
    before = state(task("a", operators=many))
    with pytest.raises(InvalidError, match=r"names of operators take \d+ characters, more than 16384"):
        sent(before, Dispatch(task="a", centre="c1", unit="small", operator_devices=devices))
    assert len(text_of(devices[:2])) < MOST_LETTERS


def test_a_question_holds_no_units() -> None:
    full = sent(state(task("a"), task("asks", asks=True)), Dispatch(task="a", centre="c1", unit="small", units=4))
    asked = sent(full, Dispatch(task="asks", centre="c1", units=0))
    assert task_of(asked, "asks").status.phase is TaskPhase.DISPATCHED
    made = completed(asked, Completion(task="asks", epoch=1, phase=TaskPhase.SUCCEEDED, could_run=("large",)))
    assert task_of(made, "asks").status.could_run == ("large",)


def test_a_completion_gives_back_the_units_and_keeps_the_result() -> None:
    before = sent(
        state(task("a", is_probe=True, task_type="dense")), Dispatch(task="a", centre="c1", unit="small", units=3)
    )
    run = ProbeRun(units=3, run_times_s=(1.5,))
    flattered = replace(run, score=99.0, points={"run-time": 99.0})
    measured = ProbeResultStatus(runs=(flattered,), score=99.0, score_units=3, policy="mine", unit="large")
    item = Completion(
        task="a",
        epoch=1,
        phase=TaskPhase.SUCCEEDED,
        exit_code=0,
        result=NewResult(status=measured, kernels={"dgemm": 3}),
    )
    made = completed(before, item)
    (result,) = made.results.values()
    status = task_of(made, "a").status
    assert (status.phase, status.exit_code, status.finished_ns) == (TaskPhase.SUCCEEDED, 0, NOW_NS + 1)
    assert (status.centre, status.unit, status.result) == ("c1", "small", "a.uid-of-a.1")
    assert (made.centres["c1"].shares, made.centres["c1"].shares_version) == ((), 2)
    spec = result.spec
    assert (spec.probe, spec.centre, spec.task_type, spec.unit, spec.task) == ("solve", "c1", "dense", "small", "a")
    assert spec.kernels == {"dgemm": 3}
    # A centre reports measurements, never their value, and only for its own units.
    assert (result.status.runs, result.status.score, result.status.policy) == ((run,), None, "")
    assert result.status.unit == "small"


def test_task_ended_before_it_was_reported_running_has_a_start() -> None:
    before = sent(state(task("a")), Dispatch(task="a", centre="c1", unit="small"))
    made = completed(before, Completion(task="a", epoch=1, phase=TaskPhase.SUCCEEDED, run_time_s=2.0))
    status = task_of(made, "a").status
    assert (status.started_ns, status.run_time_s) == (NOW_NS + 1 - 2_000_000_000, 2.0)


def test_a_result_is_of_a_probe() -> None:
    before = sent(state(task("a")), Dispatch(task="a", centre="c1", unit="small"))
    new = NewResult(status=ProbeResultStatus())
    with pytest.raises(InvalidError, match="Task a is not a probe: it has no result"):
        completed(before, Completion(task="a", epoch=1, phase=TaskPhase.SUCCEEDED, result=new))


def test_returned_task_is_dispatched_again_in_a_new_epoch() -> None:
    before = sent(state(task("a")), Dispatch(task="a", centre="c1", unit="small"))
    made = completed(before, Completion(task="a", epoch=1, phase=TaskPhase.PENDING, reasons=("its units went",)))
    status = task_of(made, "a").status
    assert (status.phase, status.centre, status.unit, status.units) == (TaskPhase.PENDING, None, None, None)
    assert status.reasons == ("its units went",)
    again = sent(TaskState(before.tasks | made.tasks, before.centres | made.centres), Dispatch(task="a", centre="c2"))
    assert task_of(again, "a").status.epoch == 2
    with pytest.raises(StaleError, match="Task a is in epoch 2, no longer in 1"):
        completed(again, Completion(task="a", epoch=1, phase=TaskPhase.SUCCEEDED))


def test_a_completed_task_is_completed_once() -> None:
    before = sent(state(task("a")), Dispatch(task="a", centre="c1", unit="small"))
    made = completed(before, Completion(task="a", epoch=1, phase=TaskPhase.FAILED))
    with pytest.raises(StaleError, match="Task a is failed: it holds nothing"):
        completed(
            TaskState(before.tasks | made.tasks, made.centres), Completion(task="a", epoch=1, phase=TaskPhase.PENDING)
        )


def test_a_task_that_is_being_deleted_goes_with_its_completion() -> None:
    before = sent(state(task("a")), Dispatch(task="a", centre="c1", unit="small"))
    held = task_of(before, "a")
    before.tasks["a"] = replace(held, metadata=replace(held.metadata, deleting_ns=1))
    made = completed(before, Completion(task="a", epoch=1, phase=TaskPhase.FAILED))
    assert made.tasks == {"a": None}
    assert made.centres["c1"].shares == ()


def test_a_centre_that_has_reported_since_is_not_silent() -> None:
    before = sent(state(task("a")), Dispatch(task="a", centre="c1", unit="small"))
    late = Completion(task="a", epoch=1, phase=TaskPhase.PENDING, heartbeat_ns=5)
    with pytest.raises(StaleError, match="Centre c1 has reported since: Task a is kept"):
        completed(before, late)
    assert completed(before, replace(late, heartbeat_ns=NOW_NS)).centres["c1"].shares == ()


def test_a_completion_ends_a_task_or_gives_it_back() -> None:
    with pytest.raises(ValueError, match="must be succeeded, failed or pending, not running"):
        Completion(task="a", epoch=1, phase=TaskPhase.RUNNING)


def test_reports_move_no_units_and_begin_and_end_nothing() -> None:
    dispatched = task_of(sent(state(task("a")), Dispatch(task="a", centre="c1", unit="small")), "a")
    wanted = replace(
        dispatched.status,
        phase=TaskPhase.RUNNING,
        centre="c2",
        unit="large",
        units=9,
        cost=3.0,
        engine_id="job 5",
        operator_devices=ON_GPU,
    )
    status = reported(dispatched, replace(dispatched, status=wanted), 77, by_centre=True).status
    assert (status.phase, status.centre, status.unit, status.units) == (TaskPhase.RUNNING, "c1", "small", 1)
    assert (status.engine_id, status.cost, status.started_ns, status.operator_devices) == ("job 5", None, 77, ())
    by_scheduler = reported(dispatched, replace(dispatched, status=wanted), 77, by_centre=False).status
    assert by_scheduler.operator_devices == ()
    ended = replace(dispatched, status=replace(dispatched.status, phase=TaskPhase.SUCCEEDED))
    for before, phase, epoch, problem in (
        (dispatched, TaskPhase.SUCCEEDED, 1, "Task a holds units: it must end by a completion"),
        (dispatched, TaskPhase.RUNNING, 0, "Task a is in epoch 1, no longer in 0"),
        (task("a"), TaskPhase.RUNNING, 0, "Task a is pending: it must get units by a dispatch"),
        (task("a"), TaskPhase.SUCCEEDED, 0, "Task a has not run"),
        (ended, TaskPhase.SUCCEEDED, 1, "Task a has succeeded: this is final"),
    ):
        forged = replace(before, status=replace(before.status, phase=phase, epoch=epoch))
        with pytest.raises(StaleError, match=problem):
            reported(before, forged, 77, by_centre=True)


def several(**more: object) -> Task:
    return task("wide", centres=3, **more)


def to_three(*units: int) -> Dispatch:
    first, *others = (
        OtherMember(centre=f"c{number}", unit="small", units=count) for number, count in enumerate(units, 1)
    )
    return Dispatch(task="wide", centre=first.centre, unit="small", units=first.units, others=tuple(others))


THREE = (centre(), centre("c2"), centre("c3"))


def part(name: str, phase: TaskPhase = TaskPhase.SUCCEEDED, **more: object) -> Completion:
    return Completion(task="wide", epoch=1, phase=phase, centre=name, **more)  # type: ignore[arg-type]


def after(before: TaskState, item: Completion) -> TaskState:
    made = completed(before, item)
    return TaskState(before.tasks | made.tasks, before.centres | made.centres)


def test_several_centres_are_bound_all_or_none() -> None:
    """Item 14: one of them lacks a unit, so that none gets a share."""
    busy = sent(state(several(), task("b"), centres=THREE), Dispatch(task="b", centre="c3", unit="small", units=4))
    with pytest.raises(StaleError, match="Centre c3: wide wants 1 units of type small, 0 are free"):
        sent(busy, to_three(2, 2, 1))
    assert [len(busy.centres[name].shares) for name in ("c1", "c2", "c3")] == [0, 0, 1]
    made = sent(state(several(), centres=THREE), to_three(2, 3, 4))
    assert [made.centres[name].shares[0].units for name in ("c1", "c2", "c3")] == [2, 3, 4]
    wide = task_of(made, "wide")
    assert (wide.status.centre, wide.status.units) == ("c1", 2)
    assert wide.held_units == {"c1": 2, "c2": 3, "c3": 4}
    assert (wide.at("c2").status.centre, wide.at("c2").status.units) == ("c2", 3)
    assert TASK.field("centre")(wide) == ("c1", "c2", "c3")  # type: ignore[misc]
    usage = TASK.strategy.usage(several(units=(2,)))
    assert usage is not None
    assert usage.units == 6


@pytest.mark.parametrize(
    ("item", "error", "problem"),
    [
        (to_three(1, 1), StaleError, "Task wide is for 3 centres at once, not for 2"),
        (Dispatch(task="wide", centre="c1", unit="small"), StaleError, "is for 3 centres at once, not for 1"),
        (
            replace(to_three(1, 1, 1), others=to_three(1, 1, 1).others[:1] * 2),
            InvalidError,
            "its 3 centres must be different ones",
        ),
        (replace(to_three(1, 1, 1), unit=None), InvalidError, "a task of several centres needs a unit type at each"),
        (
            replace(to_three(1, 1, 1), others=(*to_three(1, 1).others, OtherMember("c9", "small"))),
            NotFoundError,
            "there is no Centre c9",
        ),
        (
            replace(
                to_three(1, 1, 1), others=tuple(replace(each, shares_version=7) for each in to_three(1, 1, 1).others)
            ),
            StaleError,
            "shares of Centre c2 are at version 0, not 7",
        ),
    ],
)
def test_impossible_dispatch_to_several_is_refused(item: Dispatch, error: type[ApiError], problem: str) -> None:
    with pytest.raises(error, match=problem):
        sent(state(several(), centres=THREE), item)


def test_task_of_several_centres_ends_with_its_last_part() -> None:
    made = sent(state(several(), centres=THREE), to_three(1, 1, 1))
    for name, time_s in (("c2", 3.0), ("c1", 1.0)):
        made = after(made, part(name, exit_code=0, run_time_s=time_s))
        assert (task_of(made, "wide").is_held, made.centres[name].shares) == (True, ())
    with pytest.raises(StaleError, match="Task wide holds nothing of centre c2"):
        completed(made, part("c2"))
    with pytest.raises(InvalidError, match="Task wide runs at several centres: a completion names one"):
        completed(made, Completion(task="wide", epoch=1, phase=TaskPhase.SUCCEEDED))
    status = task_of(after(made, part("c3", exit_code=0, run_time_s=2.0)), "wide").status
    assert (status.phase, status.exit_code, status.run_time_s) == (TaskPhase.SUCCEEDED, 0, 3.0)
    assert [member.phase for member in status.members] == [TaskPhase.SUCCEEDED] * 3


@pytest.mark.parametrize("phase", [TaskPhase.FAILED, TaskPhase.PENDING])
def test_part_that_does_not_succeed_stops_the_others(phase: TaskPhase) -> None:
    made = sent(state(several(), centres=THREE), to_three(1, 1, 1))
    made = after(made, part("c1", exit_code=0))
    made = after(made, part("c3", phase, exit_code=9, reasons=("no room",)))
    wide = task_of(made, "wide")
    assert wide.status.stopping == "a part of the task has ended: centre c3: no room"
    assert (wide.is_held, wide.at("c3").is_held, wide.at("c2").is_held) == (True, False, True)
    made = after(made, part("c2", TaskPhase.PENDING, reasons=("stopped",)))
    status = task_of(made, "wide").status
    assert status.phase is phase
    if phase is TaskPhase.FAILED:
        assert (status.exit_code, status.reasons) == (9, ("centre c3: no room",))
    else:
        assert (status.members, status.centre, status.stopping) == ((), None, "")
    assert all(not made.centres[name].shares for name in ("c1", "c2", "c3"))


def test_deleted_task_goes_with_its_last_part() -> None:
    made = sent(state(several(), centres=THREE), to_three(1, 1, 1))
    wide = task_of(made, "wide")
    made.tasks["wide"] = replace(wide, metadata=replace(wide.metadata, deleting_ns=1))
    for name in ("c2", "c3"):
        made = after(made, part(name, TaskPhase.FAILED, reasons=("it was deleted",)))
        assert task_of(made, "wide").is_held
    made = after(made, part("c1", TaskPhase.FAILED, reasons=("it was deleted",)))
    assert made.tasks["wide"] is None
    assert not any(made.centres[name].shares for name in ("c1", "c2", "c3"))


def test_task_of_several_centres_runs_once_all_parts_do() -> None:
    wide = task_of(sent(state(several(), centres=THREE), to_three(1, 1, 1)), "wide")
    for number, name in enumerate(("c2", "c3", "c1"), 1):
        mine = wide.at(name)
        running = replace(mine, status=replace(mine.status, phase=TaskPhase.RUNNING, engine_id=f"job-{name}"))
        wide = member_reported(wide, running, name, NOW_NS + number)
        assert (wide.status.phase is TaskPhase.RUNNING) == (number == 3)
    assert (wide.status.started_ns, wide.status.centre) == (NOW_NS + 3, "c1")
    assert [member.engine_id for member in wide.status.members] == ["job-c1", "job-c2", "job-c3"]
    late = wide.at("c2")
    with pytest.raises(StaleError, match="runs: it cannot become dispatched again"):
        member_reported(wide, replace(late, status=replace(late.status, phase=TaskPhase.DISPATCHED)), "c2", NOW_NS)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"is_probe": True}, "a probe runs at one centre, not at 3"),
        ({"centre": "c1"}, "a task with a stated centre runs at one centre"),
        ({"choice": UnitChoice.CENTRE}, "a task whose unit its centre chooses runs at one centre"),
    ],
)
def test_tasks_of_one_centre_only_state_no_more(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidError, match=problem):
        TASK.strategy.validate(None, several(**spec))
