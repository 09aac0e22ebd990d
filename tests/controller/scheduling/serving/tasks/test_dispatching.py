"""Tasks from submission to end: probed first, then dispatched by measurements, with reasons."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from controller.apiserver.registry.completions import Completion
from controller.apiserver.registry.dispatches import Dispatch, DispatchRequest
from controller.apiserver.resources import Centre, ProbeResult, ProbeTask, ScoringPolicy, Task
from controller.apiserver.resources.centre import UnitType
from controller.apiserver.resources.decision import Outcome
from controller.apiserver.resources.task import OperatorCount, Program, ProgramKind, TaskPhase, UnitChoice
from controller.probing.evaluation import Policy, resource_of
from controller.probing.library import KernelLibrary
from controller.scheduling import builder
from controller.scheduling.process import load_settings
from controller.scheduling.serving.tasks.builds import benchmark
from controller.scheduling.serving.tasks.hours import Hours
from controller.scheduling.serving.tasks.knowledge import Knowledge
from controller.scheduling.serving.tasks.metrics import TaskMetrics
from controller.scheduling.serving.tasks.probes import NO_CENTRE, NO_UNIT, Probes
from controller.scheduling.serving.tasks.view import TasksView
from controller.scheduling.serving.tasks.writing import Writer
from controller.scheduling.settings import SchedulerSettings
from controller.scheduling.tasks.prices import PriceSettings, PriceStep
from controller.scheduling.tasks.probing import ProbingSettings
from controller.scheduling.tasks.settings import BuilderSettings, TaskSettings
from dataplane.clock import MonotonicClock
from dataplane.config import loads
from dataplane.daemon import Lifecycle
from tests.controller.scheduling.serving.tasks.centres import PlayedCentre
from tests.controller.scheduling.serving.tasks.conftest import Play, Site, units
from tests.waiting import until

DGEMM = benchmark("fixed-dgemm", KernelLibrary(()))


def probes(tasks: dict[str, Task]) -> list[Task]:
    return [task for task in tasks.values() if task.spec.is_probe]


def test_new_type_is_probed_everywhere_then_sent_to_the_fastest(play: Play) -> None:
    async def act(site: Site) -> None:
        slow, fast = site.centre("slow"), site.centre("fast", 2.0)
        async with site.running(slow, fast), site.scheduling():
            await site.submit("first", task_type="products")
            tasks = await site.ended("first")
            listing = await site.client.of(ProbeTask).list()
            assert [probe.spec.task_type for probe in listing.items] == ["products"]
            assert {task.spec.centre for task in probes(tasks)} == {"slow", "fast"}
            assert tasks["first"].status.centre == "fast"
            assert all(centre.given[0].spec.is_probe for centre in (slow, fast))
            assert all(task.metadata.labels["millrace.probe"] == "true" for task in probes(tasks))
            decision = (await site.decisions_about("first"))[-1]
            assert decision.spec.outcome is Outcome.DISPATCHED
            assert [score.node for score in decision.spec.scores] == ["fast", "slow"]

    play(act)


def test_probes_are_built_away_from_the_scheduler(play: Play) -> None:
    settings = TaskSettings(probing=ProbingSettings(builds=False, patience_s=3600.0))

    async def act(site: Site) -> None:
        stop = asyncio.Event()
        async with site.running(site.centre("a")), site.scheduling(settings):
            await site.submit("t", task_type="products")
            tasks = await site.tasks_when(lambda tasks: bool(tasks["t"].status.reasons))
            assert tasks["t"].status.reasons[0].startswith("none of 1 centres: 1 by probed")
            assert (await site.client.of(ProbeTask).list()).items == ()
            # The builder takes over what waits, and a second one changes nothing.
            builders = [asyncio.create_task(builder.serve(BuilderSettings(api=site.socket), stop)) for _ in range(2)]
            assert (await site.ended("t"))["t"].status.phase is TaskPhase.SUCCEEDED
            listing = await site.client.of(ProbeTask).list()
            assert [probe.spec.task_type for probe in listing.items] == ["products"]
            # What has nothing to build from is its own measurement, as with a scheduler that builds.
            await site.submit("blind", operators=(), task_type="unknown")
            assert (await site.ended("blind"))["blind"].status.phase is TaskPhase.SUCCEEDED
            stop.set()
            await asyncio.gather(*builders)

    play(act)


def test_type_that_no_builder_builds_in_time_measures_itself(play: Play) -> None:
    settings = TaskSettings(probing=ProbingSettings(builds=False, patience_s=0.001))

    async def act(site: Site) -> None:
        async with site.running(site.centre("a")), site.scheduling(settings):
            await site.submit("t", task_type="products")
            assert (await site.ended("t"))["t"].status.phase is TaskPhase.SUCCEEDED
            reason = (await site.decisions_about("t"))[-1].spec.reason
            assert "its run is the first measurement there: type products has no probe" in reason

    play(act)


def test_known_type_is_dispatched_at_once_with_its_stored_probe(play: Play) -> None:
    async def act(site: Site) -> None:
        async with site.running(site.centre("a")), site.scheduling():
            await site.submit("first", task_type="products")
            await site.ended("first")
            before = {task.metadata.name for task in probes(await site.tasks_when(lambda _: True))}
            await site.submit("second", task_type="products")
            after = await site.ended("second")
            assert {task.metadata.name for task in probes(after)} == before
            assert after["second"].status.phase is TaskPhase.SUCCEEDED
            assert len((await site.client.of(ProbeTask).list()).items) == 1

    play(act)


def test_every_centre_is_probed_before_it_gets_work(play: Play) -> None:
    async def act(site: Site) -> None:
        centres = [site.centre(f"c{number}", 1.0 + number) for number in range(3)]
        async with site.running(*centres), site.scheduling():
            for number in range(6):
                await site.submit(f"t{number}", task_type=f"type-{number % 2}")
            await site.ended(*(f"t{number}" for number in range(6)))
            assert all(centre.given[0].spec.is_probe for centre in centres if centre.given)

    play(act)


@pytest.mark.parametrize("stated", [{}, {"centre": "b"}, {"centre": "b", "unit": "cpu"}, {"units": (2, 3)}])
def test_type_that_cannot_be_probed_measures_itself(play: Play, stated: dict[str, Any]) -> None:
    """Nothing else is there to wait for: neither a probe of the type nor a measured centre."""

    async def act(site: Site) -> None:
        async with site.running(site.centre("a"), site.centre("b")), site.scheduling():
            await site.submit("blind", operators=(), task_type="unknown", **stated)
            task = (await site.ended("blind"))["blind"]
            assert task.status.phase is TaskPhase.SUCCEEDED
            assert task.status.centre == stated.get("centre", "a")
            assert not probes(await site.tasks_when(lambda _: True))
            decision = (await site.decisions_about("blind"))[-1].spec
            assert decision.outcome is Outcome.DISPATCHED
            assert "its run is the first measurement there: type unknown has no probe" in decision.reason
            await site.submit("second", operators=(), task_type="unknown", **stated)
            tasks = await site.ended("second")
            assert tasks["second"].status.centre == task.status.centre
            assert " s, measured; " in (await site.decisions_about("second"))[-1].spec.reason
            # The measured one is elsewhere.
            await site.submit(
                "third", operators=(), task_type="unknown", centre="b" if task.status.centre == "a" else "a"
            )
            tasks = await site.ended("third")
            assert tasks["third"].status.centre != task.status.centre

    play(act)


def test_unprobed_type_waits_for_a_ready_centre_with_the_reason(play: Play) -> None:
    async def act(site: Site) -> None:
        async with site.running(site.centre("a")), site.scheduling():
            await site.submit("blind", operators=(), task_type="unknown", centre="elsewhere")
            tasks = await site.tasks_when(lambda tasks: bool(tasks["blind"].status.reasons))
            reason = "none of 1 centres: 1 by stated (its user stated centre elsewhere)"
            assert tasks["blind"].status.reasons == (reason,)

    play(act)


def test_later_task_with_operators_gets_its_type_probed(play: Play) -> None:
    async def act(site: Site) -> None:
        async with site.running(site.centre("a")), site.scheduling():
            await site.submit("blind", operators=(), task_type="products")
            await site.tasks_when(lambda tasks: bool(tasks["blind"].status.reasons))
            await site.submit("seeing", task_type="products")
            tasks = await site.ended("seeing", "blind")
            assert {tasks[name].status.phase for name in ("seeing", "blind")} == {TaskPhase.SUCCEEDED}

    play(act)


def test_operators_that_cannot_be_hold_up_no_other_task(play: Play) -> None:
    async def act(site: Site) -> None:
        async with site.running(site.centre("a")), site.scheduling():
            for number, name in enumerate(("gemm", "factorise", "fft", "sort")):
                odd = (OperatorCount(name="a", operator=name, sizes={"n": 1 << 53}, feeds=("a",) * (number % 2)),)
                await site.submit(f"odd-{number}", operators=odd, task_type=f"odd-{number}")
            await site.submit("good", task_type="products")
            tasks = await site.ended("good")
            assert tasks["good"].status.phase is TaskPhase.SUCCEEDED

    play(act)


def test_operators_without_similar_kernel_measure_themselves(play: Play) -> None:
    async def act(site: Site) -> None:
        centre = site.centre("a")
        async with site.running(centre), site.scheduling():
            await site.submit("odd", operators=(OperatorCount(name="x", operator="tea-leaves"),), task_type="odd")
            tasks = await site.ended("odd")
            assert tasks["odd"].status.phase is TaskPhase.SUCCEEDED
            assert not probes(tasks)

    play(act)


@pytest.mark.parametrize("lie", ["zero", "same", "wrong"])
def test_a_centre_that_lies_gets_no_task_by_its_figure(play: Play, lie: str) -> None:
    async def act(site: Site) -> None:
        liar, honest = site.centre("liar", 1.0), site.centre("honest", 1.0)
        true = liar.completion

        def lying(task: Task, probe: ProbeTask | None) -> Completion:
            completion = true(task, probe)
            if completion.result is None:
                return completion
            parts: dict[str, Any] = {
                "zero": {"run_times_s": (1e-12,) * 3},
                "same": {"run_times_s": (1e-3,) * 3},
                "wrong": {"accuracies": (0.5,) * 3},
            }[lie]
            if lie == "wrong":
                names = completion.result.status.runs[0].kernel_accuracies
                parts["kernel_accuracies"] = dict.fromkeys(names, 0.5)
            runs = tuple(replace(run, **parts) for run in completion.result.status.runs)
            return replace(
                completion, result=replace(completion.result, status=replace(completion.result.status, runs=runs))
            )

        liar.runs = lying
        async with site.running(liar, honest), site.scheduling():
            await site.submit("t", task_type="products")
            tasks = await site.ended("t")
            assert tasks["t"].status.centre == "honest"
            decision = (await site.decisions_about("t"))[-1].spec
            assert [(refusal.nodes, refusal.policy) for refusal in decision.refused] == [(("liar",), "firm-estimate")]

    play(act)


def test_only_free_units_are_probed_one_probe_per_centre(play: Play) -> None:
    async def act(site: Site) -> None:
        centre = site.centre("a", 1.0, units("cpu", 2), units("gpu", 2))
        seen: list[int] = []
        true = centre.completion

        def watching(task: Task, probe: ProbeTask | None) -> Completion:
            seen.append(max(task.spec.units, default=0))
            return true(task, probe)

        centre.runs = watching
        async with site.running(centre), site.scheduling():
            await site.submit("t", task_type="products")
            await site.ended("t")
            tasks = await site.tasks_when(lambda tasks: len(probes(tasks)) == 2)
            assert {task.spec.unit for task in probes(tasks)} == {"cpu", "gpu"}
            assert all(task.spec.units == (1, 2) for task in probes(tasks))

    play(act)


def test_only_units_that_support_all_kernels_are_chosen(play: Play) -> None:
    async def act(site: Site) -> None:
        centre = site.centre("a", 1.0, units("plain", 4, "fft"), units("dense", 2, "dgemm", "fft"))
        async with site.running(centre), site.scheduling():
            await site.submit("t", task_type="products")
            tasks = await site.ended("t")
            assert tasks["t"].status.unit == "dense"
            assert {task.spec.unit for task in probes(tasks)} == {"dense"}

    play(act)


def test_stated_centre_and_unit_are_used_after_a_probe(play: Play) -> None:
    async def act(site: Site) -> None:
        slow, fast = site.centre("slow"), site.centre("fast", 4.0)
        async with site.running(slow, fast), site.scheduling():
            await site.submit("t", task_type="products", centre="slow", unit="cpu", units=(3,))
            tasks = await site.ended("t")
            status = tasks["t"].status
            assert (status.centre, status.unit, status.units) == ("slow", "cpu", 3)
            assert slow.given[0].spec.is_probe

    play(act)


def test_more_units_than_there_are_wait_with_the_reason(play: Play) -> None:
    async def act(site: Site) -> None:
        async with site.running(site.centre("a")), site.scheduling():
            await site.submit("big", task_type="products", centre="a", unit="cpu", units=(9,))
            tasks = await site.tasks_when(
                lambda tasks: "units-exist" in "".join(tasks["big"].status.reasons) if "big" in tasks else False
            )
            assert tasks["big"].status.phase is TaskPhase.PENDING
            decision = (await site.decisions_about("big"))[-1].spec
            assert any("9 units wanted, 4 of cpu exist" in refusal.reason for refusal in decision.refused)

    play(act)


def test_a_task_left_to_the_centre_goes_without_a_unit(play: Play) -> None:
    async def act(site: Site) -> None:
        centre = site.centre("a")
        async with site.running(centre), site.scheduling():
            await site.submit("t", task_type="products", choice=UnitChoice.CENTRE)
            await site.ended("t")
            assert centre.given[-1].status.unit is None
            # A probe without a number leaves that to the centre too, which reports it with the result.
            (stored,) = (await site.client.of(ProbeTask).list(fields="task-type=products")).items
            program = Program(kind=ProgramKind.PROBE, entry=stored.metadata.name)
            stated = {"is_probe": True, "operators": (), "category": None, "choice": UnitChoice.CENTRE}
            await site.submit("counted", program=program, centre="a", task_type="products", **stated)
            tasks = await site.tasks_when(lambda tasks: tasks["counted"].status.finished_ns is not None)
            status = tasks["counted"].status
            (given,) = (task.status for task in centre.given if task.metadata.name == "counted")
            assert (given.unit, given.units) == (None, 1)
            number = centre.picked["counted"]
            assert (status.phase, status.unit, status.units) == (TaskPhase.SUCCEEDED, "cpu", number)
            assert status.result is not None
            result = (await site.client.of(ProbeResult).get(status.result)).status
            assert (result.units, [run.units for run in result.runs]) == (number, [number])
            decision = (await site.decisions_about("counted"))[-1].spec
            assert decision.reason == "a: the centre picks the unit type and number of units; demand"

    play(act)


def test_scoring_policy_is_replaced_in_a_running_scheduler(
    play: Play, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By SIGHUP and by the API, whose policy goes first; all results get scores of the new one, and name it."""
    file = tmp_path / "scheduler.yaml"

    def of(points: int) -> Policy:
        return loads(f"run_time_s: {{intervals: [{{points: {points}}}]}}", Policy)

    async def act(site: Site) -> None:
        async def scored_by(policy: Policy, points: float) -> None:
            seen: set[tuple[str, float | None]] = set()

            async def holds() -> bool:
                nonlocal seen
                results = (await site.client.of(ProbeResult).list()).items
                seen = {(result.status.scored_by, result.status.score) for result in results}
                return seen == {(policy.version, points)}

            await until(holds, lambda: seen, poll_s=0.05)

        async with site.running(site.centre("a")), site.scheduling(TaskSettings(scoring=of(1))) as reload:
            await site.submit("t", task_type="products")
            await site.ended("t")
            await scored_by(of(1), 1)
            lifecycle = Lifecycle("scheduler", SchedulerSettings(), lambda: load_settings(file), asyncio.Event(), print)
            lifecycle.reload(reload)
            file.write_text("tasks:\n  scoring:\n    run_time_s: {intervals: [{points: 2}]}\n")
            lifecycle.hang_up()
            await scored_by(of(2), 2)
            # A wrong one changes nothing, and says so by file, line and key.
            file.write_text("tasks:\n  scoring:\n    run_time_s: {intervals: [{below: 1, points: 2}]}\n")
            lifecycle.hang_up()
            await until(lambda: "keeping the previous profiles and scoring policy" in caplog.text)
            assert f"{file}:3: tasks.scoring.run_time_s: intervals[0].below: from 1 on figures have no" in caplog.text
            policies = site.client.of(ScoringPolicy)
            await policies.create(resource_of(of(3)))
            await scored_by(of(3), 3)
            await site.submit("later", task_type="products")
            assert "(score 3)" in (await site.ended("later"))["later"].status.reasons[-1]
            await policies.delete("default")
            await scored_by(of(2), 2)
            await lifecycle.close()

    caplog.set_level("INFO")
    play(act)


def test_task_cost_is_units_times_time_times_the_scores_price(play: Play) -> None:
    prices = PriceSettings(steps=(PriceStep(score=0, per_unit_s=7.0),))

    async def act(site: Site) -> None:
        async with site.running(site.centre("a")), site.scheduling(TaskSettings(prices=prices)):
            await site.submit("t", task_type="products")
            task = (await site.ended("t"))["t"]
            status = task.status
            assert status.started_ns is not None
            assert status.finished_ns is not None
            seconds = (status.finished_ns - status.started_ns) / 1e9
            assert status.cost == pytest.approx(7.0 * seconds * (status.units or 0))
            assert "x 7 (score " in status.reasons[-1]
            results = (await site.client.of(ProbeResult).list()).items
            assert all(result.status.score is not None and result.status.policy == "default" for result in results)

    play(act)


def test_profiles_decide_each_in_its_own_way(play: Play) -> None:
    """The fixed benchmark ranks by dgemm and STREAM only; all-units uses all measurements."""

    async def act(site: Site) -> None:
        a, b = site.centre("a", 1.0), site.centre("b", 3.0, units("cpu", 4, *units().operators, "network-pull"))
        async with site.running(a, b), site.scheduling():
            # Networks are checked where that is possible, without any task.
            tasks = await site.tasks_when(lambda tasks: any(task.status.finished_ns for task in tasks.values()))
            ((name, check),) = tasks.items()
            assert (check.spec.program.entry, check.spec.centre, check.spec.units) == ("network-check", "b", (1,))
            assert check.metadata.labels["millrace.probe-reason"] == "network"
            assert name.startswith("probe")
            await site.submit("fixed", task_type="products", profile="fixed-benchmark")
            await site.ended("fixed")
            await site.submit("all", task_type="products", profile="all-units")
            tasks = await site.ended("all", "fixed")
            assert tasks["all"].status.units == 4
            assert tasks["fixed"].status.expected_s is None
            names = {probe.metadata.name for probe in (await site.client.of(ProbeTask).list()).items}
            assert {"fixed-dgemm", "fixed-stream", "network-check"} <= names

    play(act)


def test_no_more_units_than_the_threshold_up_to_which_they_help(play: Play) -> None:
    async def act(site: Site) -> None:
        centre = site.centre("a", 1.0, units("cpu", 16))
        plain = PlayedCentre.measured

        def flat(task: Task, probe: ProbeTask | None) -> Completion:
            made = centre.completion(task, probe)
            if made.result is None or probe is None:
                return made
            runs = tuple(
                replace(plain(centre, probe, min(count, 4), task.spec.repetitions), units=count)
                for count in task.spec.units
            )
            return replace(made, result=replace(made.result, status=replace(made.result.status, runs=runs)))

        centre.runs = flat
        async with site.running(centre), site.scheduling():
            await site.submit("t", task_type="products")
            tasks = await site.ended("t")
            assert tasks["t"].status.units == 4

    play(act)


def test_a_probe_that_fails_goes_again_a_bounded_number_of_times(play: Play) -> None:
    settings = TaskSettings()

    async def act(site: Site) -> None:
        bad = site.centre("bad")

        def crash(task: Task, probe: ProbeTask | None) -> Completion:
            del probe
            name, epoch = task.metadata.name, task.status.epoch
            return Completion(task=name, epoch=epoch, phase=TaskPhase.FAILED, exit_code=10, reasons=("dgemm: crash",))

        bad.runs = crash
        quick = replace(settings, probing=replace(settings.probing, retry_s=0.01, most_tries=2))
        async with site.running(bad), site.scheduling(quick):
            await site.submit("t", task_type="products")
            tasks = await site.tasks_when(
                lambda tasks: (
                    sum(task.status.phase is TaskPhase.FAILED for task in tasks.values()) == 2
                    and tasks["t"].status.phase is TaskPhase.PENDING
                    and bool(tasks["t"].status.reasons)
                )
            )
            assert len(probes(tasks)) == 2
            assert tasks["t"].status.centre is None

    play(act)


def test_an_unschedulable_centre_gets_nothing_not_even_a_probe(play: Play) -> None:
    async def act(site: Site) -> None:
        left, other = site.centre("left", 9.0), site.centre("other")
        await left.report()
        made = await site.client.of(Centre).get("left")
        await site.client.of(Centre).replace(replace(made, spec=replace(made.spec, unschedulable=True)))
        async with site.running(left, other), site.scheduling():
            await site.submit("t", task_type="products")
            tasks = await site.ended("t")
            assert tasks["t"].status.centre == "other"
            assert not left.given

    play(act)


def test_a_unit_type_without_units_is_no_place(play: Play) -> None:
    async def act(site: Site) -> None:
        empty = site.centre("empty", 9.0, UnitType(name="cpu", count=0, operators=("dgemm",)))
        async with site.running(empty, site.centre("full")), site.scheduling():
            await site.submit("t", task_type="products")
            assert (await site.ended("t"))["t"].status.centre == "full"

    play(act)


def test_a_probe_created_by_hand_waits_to_be_dispatched_by_hand(play: Play) -> None:
    async def act(site: Site) -> None:
        async with site.running(site.centre("a")), site.scheduling():
            probe = await site.client.of(ProbeTask).create(DGEMM)
            program = Program(kind=ProgramKind.PROBE, entry=probe.metadata.name)
            await site.submit("mine", program=program, is_probe=True, units=(1,), operators=(), category=None)
            text = replace(program, entry="", text="true")
            await site.submit("own", program=text, is_probe=True, centre="a", operators=(), category=None)
            waiting = await site.tasks_when(
                lambda tasks: bool(tasks["mine"].status.reasons and tasks["own"].status.reasons)
            )
            told = {name: (waiting[name].status.phase, *waiting[name].status.reasons) for name in ("mine", "own")}
            assert told == {"mine": (TaskPhase.PENDING, NO_CENTRE), "own": (TaskPhase.PENDING, NO_UNIT)}
            await site.client.dispatch(DispatchRequest(dispatches=(Dispatch("mine", "a", "cpu", 1),)))
            tasks = await site.tasks_when(lambda tasks: tasks["mine"].status.result is not None)
            assert tasks["mine"].status.phase is TaskPhase.SUCCEEDED

    play(act)


def test_probe_that_exists_only_at_the_server_is_found(play: Play) -> None:
    """Watches of kinds are not in step: a task may be known before the centre or probe that it names."""

    async def act(site: Site) -> None:
        centre = site.centre("a")
        await centre.report()
        probe = await site.client.of(ProbeTask).create(DGEMM)
        view, settings = TasksView(), TaskSettings()
        clock, registry = MonotonicClock(), CollectorRegistry()
        writer = Writer(site.client, view, TaskMetrics(registry), name="s", clock=clock, now_ns=time.time_ns)
        probes_of = Probes(view, Knowledge(view, settings, Hours(view)), settings, writer)
        program = Program(kind=ProgramKind.PROBE, entry=probe.metadata.name)
        view.take(await site.submit("mine", program=program, is_probe=True, centre="a", operators=(), category=None), 0)
        stated = {"is_probe": True, "operators": (), "category": None}
        view.take(await site.submit("nowhere", program=program, centre="b", **stated), 0)
        view.take(await site.submit("unknown", program=replace(program, entry="none"), centre="a", **stated), 0)
        await probes_of.send(clock.now_ns())
        assert view.tasks["mine"].status.phase is TaskPhase.DISPATCHED
        assert view.tasks["nowhere"].status.reasons == ("there is no centre b",)
        assert view.tasks["unknown"].status.reasons == ("probe task none: it does not exist",)

    play(act)
