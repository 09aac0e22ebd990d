"""A centre's agent with real jobs and a real service: dispatched tasks run, and measurements return."""

from __future__ import annotations

import asyncio
import json
import os
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.apiserver.client import ApiClient, Place
from controller.apiserver.registry.completions import Completion, CompletionRequest
from controller.apiserver.registry.dispatches import Dispatch, DispatchRequest, OtherMember
from controller.apiserver.resources import Centre, Metadata, ProbeTask, Task
from controller.apiserver.resources import ProbeKernel as ProbeKernelResource
from controller.apiserver.resources.centre import CentreStatus, UnitType
from controller.apiserver.resources.task import TASK_ENDED, Program, ProgramKind, TaskPhase, TaskSpec, UnitChoice
from controller.common.errors import NotFoundError, StaleError
from controller.probing import kernel_files
from controller.probing.values import Implementation, Library, ProbeKernel
from controller.workloads.centres.engines.local.engine import LocalEngine
from controller.workloads.centres.errors import CentreError
from controller.workloads.centres.process import serve
from controller.workloads.centres.settings import ControlGroups, TrialSettings, UnitSettings
from controller.workloads.centres.trying import kernels
from controller.workloads.centres.units import Found, FoundDevice
from dataplane.topology.values import DeviceKind
from tests.controller.workloads.centres.centre_world import (
    CORE,
    WAIT_S,
    CentreWorld,
    open_folder,
    play_centre,
    probe,
    script,
)
from tests.left_processes import processes_of_job
from tests.sandboxes import local_settings
from tests.waiting import HANG_S, until

GOOD = """
class Good(Kernel):
    def accuracy(self, output): return 0.0
"""
TRIAL = TrialSettings(kernels=("dot",))
KERNEL = """
import os, pathlib, signal, time

class Kernel:
    def __init__(self, act): self.act = act
    def run(self, inputs): return self.act() or 1.0
    def accuracy(self, output): return 0.5

def _all(): os.kill(0, signal.SIGKILL)

def _lie():
    pathlib.Path("result-1.json").write_text(
        '{"millrace": 1, "probe": "another", "units": 1, "cores": 1, "outcome": "succeeded"}')
    _all()

def crash(sizes, seed): return Kernel(lambda: os.kill(os.getpid(), signal.SIGSEGV))
def wrong(sizes, seed): return Kernel(lambda: None)
def hang(sizes, seed): return Kernel(lambda: time.sleep(1000))
def kill(sizes, seed): return Kernel(_all)
def lie(sizes, seed): return Kernel(_lie)
"""


SPANS = """
import json, os, time

def say():
    begun = time.monotonic_ns()
    time.sleep(0.05)
    span = [os.environ["MILLRACE_TASK"], sorted(os.sched_getaffinity(0)), begun, time.monotonic_ns()]
    name = f"{os.environ['SPANS']}/span-{span[0]}-{begun}"
    with open(name, "x") as file:
        file.write(json.dumps(span))

class Kernel:
    def run(self, inputs): return say() or 1.0
    def accuracy(self, output): return 0.0

def make(sizes, seed): return Kernel()
"""


def runs_these(operators: tuple[str, ...], centre: Centre) -> bool:
    return centre.status.ready and centre.status.units[0].operators == operators


def local_engine(world: CentreWorld, has: list[Found]) -> LocalEngine:
    """Return an engine of a machine with the test's resources."""
    writable = (str(world.folder / "open"),)
    local = local_settings(control_groups=ControlGroups.NEVER, look_s=0.05, writable=writable)
    return LocalEngine(local, world.settings.units, world.folder / "engine", "/millrace-test", lambda _: has[0])


def test_centre_reports_its_units_with_the_kernels_that_ran(tmp_path: Path) -> None:
    async def act(world: CentreWorld) -> None:
        async with world.agent():
            status = (await world.centre()).status
            (unit,) = status.units
            assert (unit.name, unit.count, unit.operators, unit.unit.cpu_milli) == ("core", 1, ("dot",), 1000)
            assert (status.engine, status.asks_for_probe) == ("local", False)
            assert any("no control groups, as the settings say" in note for note in status.notes)
        assert (await world.centre(lambda centre: not centre.status.ready)).status.reason == "its agent has stopped"

    play_centre(tmp_path, act, trial=TRIAL)


async def run_part_of_two(world: CentreWorld) -> None:
    """Run tasks together with another centre, which the test plays: one ends well, one fails there."""
    tasks, centres = world.client.of(Task), world.client.of(Centre)
    other = await centres.create(Centre(metadata=Metadata(name="c2")))
    units = (UnitType(name="core", count=1),)
    await centres.replace_status(replace(other, status=CentreStatus(ready=True, units=units)))
    is_first = 'test "$MILLRACE_CENTRE_RANK $MILLRACE_CENTRES" = "0 c1,c2"'
    told = f"""{is_first} && echo "$MILLRACE_INPUTS" | grep '"task":"good"'"""
    for name, text, phase in (("pair", told, TaskPhase.SUCCEEDED), ("torn", "sleep 1000", TaskPhase.FAILED)):
        await tasks.create(Task(metadata=Metadata(name=name), spec=script(text, centres=2, after=("good",))))
        others = (OtherMember(centre="c2", unit="core"),)
        item = Dispatch(task=name, centre="c1", unit="core", others=others)
        await world.client.dispatch(DispatchRequest(dispatches=(item,)))
        reasons = () if phase is TaskPhase.SUCCEEDED else ("no luck",)
        theirs = Completion(task=name, epoch=1, phase=phase, centre="c2", reasons=reasons)
        await world.client.complete(CompletionRequest(completions=(theirs,)))
        status = (await world.until(name, *TASK_ENDED)).status
        assert (name, status.phase) == (name, phase), status
    assert status.reasons == ("centre c2: no luck",)
    assert status.members[0].phase is TaskPhase.PENDING


def test_programs_of_each_kind_run_and_report_their_end(tmp_path: Path) -> None:
    double = Program(kind=ProgramKind.PYTHON, entry="mine:double", text="def double(a): return a * 2", arguments=("x",))
    query = Program(kind=ProgramKind.SQL, text="select 6 * 7")
    image = Program(kind=ProgramKind.CONTAINER, entry="busybox")

    async def act(world: CentreWorld) -> None:
        async with world.agent():
            await world.centre()
            for name, spec, phase, code, reasons in (
                ("good", script("#!/bin/sh\ntest $MILLRACE_TASK = good"), TaskPhase.SUCCEEDED, 0, ()),
                ("bad", script("echo first >&2; echo last >&2; exit 3"), TaskPhase.FAILED, 3, ("first", "last")),
                ("call", TaskSpec(program=double), TaskPhase.SUCCEEDED, 0, ()),
                ("query", TaskSpec(program=query), TaskPhase.SUCCEEDED, 0, ()),
                (
                    "limit",
                    script("sleep 1000", limit_s=0.2),
                    TaskPhase.FAILED,
                    143,
                    ("it exceeded its limit of 0.2 s",),
                ),
                (
                    "image",
                    TaskSpec(program=image),
                    TaskPhase.FAILED,
                    None,
                    ("engine local: task image: this engine cannot run containers (busybox)",),
                ),
                (
                    "empty",
                    script(""),
                    TaskPhase.FAILED,
                    None,
                    ("task empty: a program of kind script needs a text",),
                ),
            ):
                status = (await world.run(name, spec)).status
                assert (name, status.phase, status.exit_code, status.reasons) == (name, phase, code, reasons)
            await run_part_of_two(world)
            assert (await world.centre()).shares == ()
            # A job's leftovers are removed once the API has its outcome.
            folders = (tmp_path / "state/jobs", tmp_path / "state/engine")
            await until(lambda: not any(any(folder.iterdir()) for folder in folders), "jobs leave files")

    play_centre(tmp_path, act)


def test_a_task_gets_secrets_of_its_project(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    (folder / "vision").mkdir(parents=True)
    (folder / "vision" / "api-key").write_text("hidden")
    for path, mode in ((folder, 0o700), (folder / "vision", 0o700), (folder / "vision" / "api-key", 0o600)):
        path.chmod(mode)

    async def act(world: CentreWorld) -> None:
        async with world.agent(replace(world.settings, secrets=str(folder))):
            await world.centre()
            for name, project, phase in (("a", "vision", TaskPhase.SUCCEEDED), ("b", "audio", TaskPhase.FAILED)):
                told = {"KEY": "api-key"}
                program = Program(kind=ProgramKind.SCRIPT, text='test "$KEY" = hidden', secrets=told)
                made = Task(metadata=Metadata(name=name, project=project), spec=TaskSpec(program=program))
                await world.client.of(Task).create(made)
                await world.dispatch(name)
                task = await world.until(name, TaskPhase.SUCCEEDED, TaskPhase.FAILED)
                assert task.status.phase is phase
            assert task.status.reasons == ("secret api-key of project audio: no such file or directory",)

    play_centre(tmp_path, act)


def test_probe_returns_one_sub_result_per_unit_count(tmp_path: Path) -> None:
    async def act(world: CentreWorld) -> None:
        name = await world.add_probe()
        async with world.agent():
            await world.centre()
            task = await world.run("p", probe(name, units=(1,), repetitions=3, task_type="mine"))
            result = await world.result_of(task)
            assert (result.spec.probe, result.spec.centre, result.spec.unit) == ("products", "c1", "core")
            assert (result.spec.task_type, result.spec.kernels) == ("mine", {"dot": 2})
            (run,) = result.status.runs
            assert (run.units, run.cores, run.unit, run.outcome) == (1, 1, "core", "succeeded")
            assert len(run.run_times_s) == 3
            assert min(run.run_times_s) > 0
            assert max(run.accuracies) <= 1e-9

    play_centre(tmp_path, act, trial=TRIAL)


def test_item_5_parts_of_a_device_have_operators_and_scores(tmp_path: Path) -> None:
    """A time slice and an instance are units of their own types, tried and probed each on its own."""
    cores = tuple(sorted(os.sched_getaffinity(0)))[:2]
    if len(cores) < 2:
        pytest.skip("needs two CPUs")
    kind = DeviceKind.XPU
    whole, instance = FoundDevice(0, kind, "X", handle="x-0"), FoundDevice(1, kind, "X part", handle="part-1")
    units = (
        UnitSettings(name="slice", count=1, devices=1, device_kind=kind, device_models=("X",), device_thousandths=500),
        UnitSettings(name="instance", devices=1, device_kind=kind, device_models=("X part",)),
    )

    async def act(world: CentreWorld) -> None:
        name = await world.add_probe()
        has = [Found(cores, 2000, devices=(whole, instance))]
        async with world.agent(engine=local_engine(world, has)):
            status = (await world.centre()).status
            assert {unit.name: (unit.count, unit.operators) for unit in status.units} == {
                "slice": (1, ("dot",)),
                "instance": (1, ("dot",)),
            }
            assert [need.thousandths for unit in status.units for need in unit.unit.devices] == [500, 1000]
            for unit in ("slice", "instance"):
                result = await world.result_of(await world.run(f"on-{unit}", probe(name, units=(1,)), unit=unit))
                assert (result.spec.unit, result.status.runs[0].outcome) == (unit, "succeeded")

    play_centre(tmp_path, act, trial=TRIAL, units=units)


def test_the_four_ways_of_choosing_the_unit(tmp_path: Path) -> None:
    """Units come from the dispatch by configuration or user; if left to it or asked, the centre chooses."""

    async def act(world: CentreWorld) -> None:
        name = await world.add_probe()
        async with world.agent():
            await world.centre()
            asked = await world.run("asks", probe(name, asks=True), None, 0)
            assert asked.status.could_run == ("core",)
            assert (await world.result_of(asked)).status.could_run == ("core",)
            assert (await world.result_of(asked)).status.runs == ()
            picked = await world.run("picks", probe(name), None)
            assert (picked.status.phase, picked.status.unit) == (TaskPhase.SUCCEEDED, "core")
            result = await world.result_of(picked)
            assert (result.status.unit, result.status.could_run) == ("core", ("core",))
            named = await world.run("named", probe(name, unit="core"))
            assert named.status.phase is TaskPhase.SUCCEEDED
            # Without a number the centre picks that too: all units here, one or two.
            counted = await world.run("counted", probe(name, choice=UnitChoice.CENTRE), None)
            assert (counted.status.unit, counted.status.units) == ("core", len(cores))
            status = (await world.result_of(counted)).status
            assert (status.units, [run.units for run in status.runs]) == (len(cores), [len(cores)])

    cores = sorted(os.sched_getaffinity(0))[:2]
    text = ",".join(str(core) for core in cores)
    local = local_settings(cores=text, control_groups=ControlGroups.NEVER, writable=(str(open_folder(tmp_path)),))
    play_centre(tmp_path, act, trial=TRIAL, local=local)


def test_probe_that_cannot_run_is_one_line(tmp_path: Path) -> None:
    async def act(world: CentreWorld) -> None:
        await world.add_probe("millrace: 1\nname: big\nkernels: [{kernel: dgemm}]\n")
        async with world.agent():
            await world.centre()
            for name, entry, reason in (
                ("a", "big", "units of type core cannot run dgemm"),
                ("b", "nobody", "there is no ProbeTask nobody"),
            ):
                status = (await world.run(name, probe(entry))).status
                assert (status.phase, status.reasons) == (TaskPhase.FAILED, (reason,))

    play_centre(tmp_path, act, trial=TRIAL)


def test_a_kernel_that_fails_is_a_failed_probe_with_its_reason(tmp_path: Path) -> None:
    (open_folder(tmp_path) / "users_kernel.py").write_text(KERNEL)

    async def act(world: CentreWorld) -> None:
        name = await world.add_probe()
        probe_task = await world.client.of(ProbeTask).get(name)
        (use,) = probe_task.spec.uses
        async with world.agent(
            replace(world.settings, environment={"PYTHONPATH": str(tmp_path / "open")}, trial=TRIAL)
        ):
            await world.centre()
            for case, outcome, problem in (
                ("crash", "crash", "SIGSEGV"),
                ("wrong", "wrong-value", "has a relative error of 0.5, at most 1e-09 is allowed"),
                ("hang", "hang", "not done after"),
                ("kill", None, "result-1.json: No such file or directory"),
                ("lie", None, "is for probe another on 1 units, which was not requested"),
            ):
                theirs = replace(use.implementation, entry=f"users_kernel:{case}", library="python", threads=False)
                spec = replace(probe_task.spec, uses=(replace(use, implementation=theirs, tolerance=1e-9),))
                await world.client.of(ProbeTask).create(ProbeTask(metadata=Metadata(name=case), spec=spec))
                task = await world.run(f"p-{case}", probe(case, limit_s=2.5 if case == "hang" else HANG_S))
                assert task.status.phase is TaskPhase.FAILED
                assert any(problem in reason for reason in task.status.reasons), (case, task.status.reasons)
                runs = (await world.result_of(task)).status.runs
                assert [run.outcome for run in runs] == ([outcome] if outcome else [])

    play_centre(tmp_path, act, trial=TRIAL)


def test_a_deleted_task_is_stopped_and_goes(tmp_path: Path) -> None:
    async def act(world: CentreWorld) -> None:
        async with world.agent():
            await world.centre()
            await world.submit("a", script("sleep 1000"))
            await world.until("a", TaskPhase.RUNNING)
            await world.client.of(Task).delete("a")
            with pytest.raises(NotFoundError):
                await world.until("a", TaskPhase.SUCCEEDED)
            assert (await world.centre()).shares == ()

    play_centre(tmp_path, act)


def test_redispatched_task_is_not_completed_by_the_old_job(tmp_path: Path) -> None:
    async def act(world: CentreWorld) -> None:
        async with world.agent():
            await world.centre()
            await world.submit("a", script("sleep 1000"))
            first = await world.until("a", TaskPhase.RUNNING)
            await until(lambda: processes_of_job(first.status.engine_id) != [], "no process", poll_s=0.02)
            lost = Completion(task="a", epoch=1, phase=TaskPhase.PENDING)
            await world.client.complete(CompletionRequest(completions=(lost,)))
            await world.dispatch("a")
            second = first

            async def runs_again() -> bool:
                nonlocal second
                second = await world.until("a", TaskPhase.RUNNING)
                return second.status.epoch == 2

            await until(runs_again, lambda: second.status, poll_s=0.02)
            jobs = (second.status.engine_id, first.status.engine_id)
            assert jobs[0] != jobs[1]
            await until(lambda: [bool(processes_of_job(job)) for job in jobs] == [True, False], poll_s=0.02)

    play_centre(tmp_path, act)


def test_lost_cores_are_reported_and_a_probe_requested(tmp_path: Path) -> None:
    async def act(world: CentreWorld) -> None:
        has = [Found((CORE, CORE + 1), 2000)]
        name = await world.add_probe()
        settings = replace(world.settings, units=(UnitSettings(name="core"),))
        async with world.agent(settings, engine=local_engine(world, [Found((CORE,), 1000)])):
            await world.centre()
        engine = local_engine(world, has)
        async with world.agent(settings, engine=engine):
            # The machine has gained a core since the last agent.
            reported = await world.centre(lambda centre: centre.status.ready and centre.status.asks_for_probe)
            assert reported.status.units[0].count == 2
            task = await world.run("p", probe(name))
            assert task.status.phase is TaskPhase.SUCCEEDED
            await world.centre(lambda centre: not centre.status.asks_for_probe)
            has[0] = Found((CORE,), 1000)
            reported = await world.centre(lambda centre: centre.status.asks_for_probe)
            assert reported.status.units[0].count == 1
            # A probe requested before the change does not count.
            assert (await world.run("q", probe(name))).status.phase is TaskPhase.SUCCEEDED
            await world.centre(lambda centre: not centre.status.asks_for_probe)

    play_centre(tmp_path, act, trial=TRIAL)


def test_centre_without_units_is_not_ready_with_a_reason(tmp_path: Path) -> None:
    local = local_settings(cores=str(CORE), cpu_milli=500, control_groups=ControlGroups.NEVER)

    async def act(world: CentreWorld) -> None:
        async with world.agent(replace(world.settings, local=local)):
            reported = await world.centre(lambda centre: "no units" in centre.status.reason)
            assert not reported.status.ready
            assert "unit type core: no unit: needs 1000 thousandths of a core, 500 left" in reported.status.reason

    play_centre(tmp_path, act)


def test_settings_reload_and_invalid_ones_keep_the_old(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def act(world: CentreWorld) -> None:
        async with world.agent():
            before = await world.centre()
            world.file.write_text("centre: other\nstate: x\n")
            world.hang_up()
            await until(lambda: "keeping the previous settings: " in caplog.text, "the reload does not fail")
            half = UnitSettings(name="half", cpu_milli=500)
            world.write(replace(world.settings, units=(half,)))
            world.hang_up()
            after = await world.centre(lambda centre: [unit.name for unit in centre.status.units] == ["half"])
            assert (before.status.units[0].name, after.status.units[0].unit.cpu_milli) == ("core", 500)
            await world.centre(lambda centre: centre.status.asks_for_probe and centre.status.units[0].operators != ())

    play_centre(tmp_path, act, trial=TRIAL)


def test_a_trial_runs_on_free_units_only(tmp_path: Path) -> None:
    """Counted by holdings, not by time: while a job has the only core, there are no trials."""

    async def act(world: CentreWorld) -> None:
        async with world.agent():
            await world.centre()
            await world.submit("a", script(f"while [ ! -e {tmp_path}/open/go ]; do sleep 0.02; done"))
            await world.until("a", TaskPhase.RUNNING)
            world.write(replace(world.settings, trial=TrialSettings(kernels=("dgemv",))))
            world.hang_up()
            reported = await world.centre(lambda centre: any("was free to try" in note for note in centre.status.notes))
            assert reported.status.units[0].operators == ()
            assert [path.name.split("-")[1] for path in (tmp_path / "state/engine").iterdir()] == ["task"]
            (tmp_path / "open/go").write_text("")
            await world.until("a", *TASK_ENDED)
            await world.centre(lambda centre: centre.status.units[0].operators == ("dgemv",))

    play_centre(tmp_path, act, trial=TRIAL)


def test_a_kernel_that_is_added_to_the_store_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_AGAIN_S", 0.1)
    (open_folder(tmp_path) / "users_kernel.py").write_text(
        KERNEL + "\ndef good(sizes, seed): return Good(lambda: None)\n" + GOOD
    )

    async def act(world: CentreWorld) -> None:
        mine = TrialSettings(kernels=("mine",))
        async with world.agent(replace(world.settings, environment={"PYTHONPATH": str(tmp_path / "open")}, trial=mine)):
            problem = "no kernel mine"
            await world.centre(lambda centre: any(problem in note for note in centre.status.notes))
            for version, entry in ((1, "wrong"), (2, "good")):
                code = Implementation(DeviceKind.CPU, Library.PYTHON, f"users_kernel:{entry}")
                kernel = ProbeKernel("mine", version, "hpc", "mine", None, (), (code,), 1e-9)
                await world.client.of(ProbeKernelResource).create(kernel_files.resource_of(kernel))
                runs = ("mine",) if entry == "good" else ()
                reported = await world.centre(partial(runs_these, runs))
                problem = "kernel mine does not run: wrong-value"
                assert any(problem in note for note in reported.status.notes) == (entry == "wrong")

    play_centre(tmp_path, act)


def test_kernels_left_by_a_trial_are_tried_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_AGAIN_S", 0.1)
    # The second of three kernels ends the job, as its time limit would, until it has done so twice.
    (open_folder(tmp_path) / "users_kernel.py").write_text(f"""{KERNEL}
import os, signal
from pathlib import Path

def ends(sizes, seed):
    for name in ("once", "twice"):
        if not (seen := Path({str(tmp_path / "open")!r}, name)).exists():
            seen.touch()
            os.kill(os.getppid(), signal.SIGKILL)
            signal.pause()
    return Good(lambda: None)

def good(sizes, seed): return Good(lambda: None)
{GOOD}""")

    async def act(world: CentreWorld) -> None:
        for name, entry in (("a", "good"), ("b", "ends"), ("c", "good")):
            code = Implementation(DeviceKind.CPU, Library.PYTHON, f"users_kernel:{entry}")
            kernel = ProbeKernel(name, 1, "hpc", name, None, (), (code,), 1e-9)
            await world.client.of(ProbeKernelResource).create(kernel_files.resource_of(kernel))
        environment = {"PYTHONPATH": str(tmp_path / "open")}
        mine = TrialSettings(kernels=("a", "b", "c"))
        async with world.agent(replace(world.settings, environment=environment, trial=mine)):
            # The second job ends at its first kernel, which is given up; the third tries the rest.
            reported = await world.centre(partial(runs_these, ("a", "c")))
            failures = [note for note in reported.status.notes if "does not run" in note]
            assert [note.split(": ")[1] for note in failures] == ["kernel b does not run"]

    play_centre(tmp_path, act, trial=TRIAL)


def test_probes_never_share_a_core_with_running_work(tmp_path: Path) -> None:
    """Overlaps on cores are counted from the reports of all jobs, probes or not."""
    (open_folder(tmp_path) / "spans.py").write_text(SPANS)
    environment = {"PYTHONPATH": str(tmp_path / "open"), "SPANS": str(tmp_path / "open")}

    async def act(world: CentreWorld) -> None:
        probe_task = await world.client.of(ProbeTask).get(await world.add_probe())
        (use,) = probe_task.spec.uses
        theirs = replace(use.implementation, entry="spans:make", library="python", threads=False)
        spec = replace(probe_task.spec, uses=(replace(use, implementation=theirs),))
        await world.client.of(ProbeTask).create(ProbeTask(metadata=Metadata(name="says"), spec=spec))
        settings = replace(world.settings, environment=environment)
        async with world.agent(settings, engine=local_engine(world, [Found(tuple(range(2)), 2000)])):
            await world.centre()
            program = Program(kind=ProgramKind.PYTHON, text="import spans\nspans.say()\n")

            async def keep(number: int) -> None:
                spec = TaskSpec(program=program) if number % 2 else probe("says")
                await world.client.of(Task).create(Task(metadata=Metadata(name=f"t{number}"), spec=spec))

                async def is_dispatched() -> bool:
                    try:
                        await world.dispatch(f"t{number}")
                    except StaleError:  # no unit is free yet
                        return False
                    return True

                await until(is_dispatched, f"t{number} gets no unit", limit_s=WAIT_S, poll_s=0.05)
                assert (await world.until(f"t{number}", *TASK_ENDED)).status.phase is TaskPhase.SUCCEEDED

            await asyncio.gather(*(keep(number) for number in range(8)))
        spans: dict[str, list[tuple[list[int], int, int]]] = {}
        for file in sorted((tmp_path / "open").glob("span-*"), key=lambda file: int(file.name.split("-")[-1])):
            task, cores, begun, ended = json.loads(file.read_text())
            spans.setdefault(task, []).append((cores, begun, ended))
        assert spans.keys() == {f"t{number}" for number in range(8)}
        assert all(len(cores) == 1 and cores == some[0][0] for some in spans.values() for cores, _, _ in some)
        whole = [(some[0][0], some[0][1], some[-1][2]) for some in spans.values()]
        overlaps = sum(
            span[0] == other[0] and span[1] < other[2] and other[1] < span[2]
            for index, span in enumerate(whole)
            for other in whole[:index]
        )
        assert overlaps == 0

    play_centre(tmp_path, act, trial=TRIAL)


def test_hosts_are_those_of_the_topology(tmp_path: Path) -> None:
    async def act(world: CentreWorld) -> None:
        wrong = replace(world.settings, topology="abilene", hosts=("nowhere",))
        with pytest.raises(CentreError, match="hosts: nowhere: topology abilene has no such host"):
            await serve(wrong, asyncio.Event())

    play_centre(tmp_path, act)


def test_a_second_agent_of_the_same_folder_or_name_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def act(world: CentreWorld) -> None:
        async with world.agent():
            await world.centre()
            with pytest.raises(CentreError, match=r"state: folder .*: an agent already runs there \(process \d+\)"):
                await serve(world.settings, asyncio.Event())
            other = replace(world.settings, state=str(tmp_path / "other"))
            async with ApiClient(Place(world.served.socket), tries=1) as client, world.agent(other):
                await until(lambda: "whose lease has not expired" in caplog.text, "the second agent is not refused")
                assert (await client.of(Centre).get("c1")).status.ready

    play_centre(tmp_path, act)
