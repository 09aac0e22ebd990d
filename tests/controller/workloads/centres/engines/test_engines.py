"""Behaviour common to all engines, over the real thing: processes, a Slurm cluster, a Ray cluster, containers."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from controller.apiserver.resources.centre import Centre, UnitType
from controller.apiserver.resources.task import TaskPhase
from controller.workloads.centres.engines.base import ERRORS_FILE, OUTPUT_FILE, Engine, JobPhase
from controller.workloads.centres.engines.slurm.settings import SlurmSettings, SlurmUnit
from controller.workloads.centres.errors import EngineError, OrderError
from controller.workloads.centres.selecting import ServedCentre
from controller.workloads.centres.settings import CentreSettings, TrialSettings
from tests.controller.workloads.centres.centre_world import CentreWorld, play_centre, probe, script
from tests.controller.workloads.centres.engines.container_world import Containers, ContainersWorld
from tests.controller.workloads.centres.engines.forging import forged
from tests.controller.workloads.centres.engines.ray_cluster import RayCluster, skip_without_ray
from tests.controller.workloads.centres.engines.slurm_cluster import SlurmCluster, skip_without_slurm
from tests.controller.workloads.centres.engines.worlds import (
    DEADLINE_S,
    ENVIRONMENT,
    LocalWorld,
    RayWorld,
    SlurmWorld,
    World,
    ended,
    order,
    play,
    running,
    started,
    until_there,
)
from tests.waiting import until

pytestmark = pytest.mark.root

_HOSTILE = "a'b\"c $HOME `id` $(id) \\ \n#SBATCH --partition=accelerated\n;rm -rf / %j %% ../.. é \t--uid=1"


@pytest.fixture(scope="module")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A cluster for all tests of this file: it takes a second to start."""
    skip_without_slurm()
    with SlurmCluster(tmp_path_factory.mktemp("slurm") / "cluster") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[RayCluster]:
    """A cluster for all tests of this file: it takes seven seconds to start."""
    with RayCluster(skip_without_ray()) as cluster:
        cluster.start_other()
        yield cluster


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    """Container backend that runs pods, for all tests of this file: it takes two seconds to start."""
    with Containers(tmp_path_factory.mktemp("containers")) as backend:
        yield backend


@pytest.fixture(params=["local", "slurm", "ray", "containers"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Each engine's world in turn."""
    made: dict[str, Callable[[], World]] = {
        "local": lambda: LocalWorld(tmp_path),
        "slurm": lambda: SlurmWorld(request.getfixturevalue("slurm_cluster"), tmp_path),
        "ray": lambda: RayWorld(request.getfixturevalue("ray_cluster"), tmp_path),
        "containers": lambda: ContainersWorld(request.getfixturevalue("containers"), tmp_path),
    }
    backend = made[request.param]()
    try:
        yield backend
    finally:
        backend.close()


def test_jobs_see_only_their_folder_and_ordered_environment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_TOKEN", "secret")
    monkeypatch.setenv("SBATCH_PARTITION", "accelerated")

    async def script() -> None:
        engine = await started(world)
        files = {"input": b"what it reads", "script": b"#!/bin/sh\ncat input; env >&2; echo made > made\n"}
        asked = order(world, "hello", "./script", files=files)
        job = await engine.submit(asked)
        state = (await ended(engine, job))[job]
        assert (state.phase, state.exit_code, state.reason) == (JobPhase.SUCCEEDED, 0, "")
        assert (state.mark, state.unit, state.units, state.folder) == (asked.mark, world.unit, 1, asked.folder)
        assert (asked.folder / OUTPUT_FILE).read_text() == "what it reads"
        assert (asked.folder / "made").read_text() == "made\n"
        seen = (asked.folder / ERRORS_FILE).read_text()
        assert "PATH=/usr/local/bin" in seen
        assert "secret" not in seen
        assert 0 < (state.started_ns or 0) < (state.finished_ns or 0)
        usage = await engine.usage(job)
        assert usage is not None
        assert usage.cpu_s > 0
        assert (usage.memory_peak_bytes or 0) > 100_000

    play(script)


def test_ends_of_jobs_have_exit_code_or_signal(world: World) -> None:
    async def script() -> None:
        engine = await started(world)
        orders = (
            order(world, "code", "sh", "-c", "exit 7"),
            order(world, "signal", "sh", "-c", "kill -SEGV $$"),
            order(world, "missing", "no-such-program"),
            order(world, "limit", "sleep", "60", limit_s=0.2),
            order(
                world,
                "talkative",
                "sh",
                "-c",
                "echo first; head -c 300000 /dev/zero; echo last",
                output_limit_bytes=2000,
            ),
        )
        code, killed, missing, limit, talkative = [await engine.submit(each) for each in orders]
        states = await ended(engine, code, killed, missing, limit, talkative)
        assert all(states[each].phase is JobPhase.FAILED for each in (code, killed, missing, limit)), states
        assert states[code].exit_code == 7
        assert states[killed].exit_code == 128 + signal.SIGSEGV
        assert states[missing].exit_code == 127
        assert "no-such-program" in states[missing].reason
        assert states[limit].exit_code == 128 + signal.SIGTERM
        assert "0.2 s" in states[limit].reason
        assert states[talkative].phase is JobPhase.SUCCEEDED
        output = (orders[4].folder / OUTPUT_FILE).read_bytes()
        assert output.startswith(b"first\n")
        assert output.endswith(b"last\n")
        assert len(output) < 2100

    play(script)


def test_jobs_get_several_units(world: World) -> None:
    async def script() -> None:
        engine = await started(world)
        before = await _unit(engine, world.unit)
        asked = order(
            world, "wide", "sh", "-c", "echo on > $GATE/on; while [ ! -e $GATE/go ]; do sleep 0.05; done", units=2
        )
        job = await engine.submit(asked)
        await until_there(world.gate(asked) / "on")
        assert (await running(engine, job))[job].units == 2
        now = before

        async def all_are_free() -> bool:
            nonlocal now
            now = await _unit(engine, world.unit)
            return now.free is None or now.free >= (before.free or 0)

        # The centre's own jobs are not others' work, though Ray counts late.
        await until(all_are_free, lambda: now, limit_s=DEADLINE_S, poll_s=0.05)
        assert now.count == before.count
        (world.gate(asked) / "go").touch()
        assert (await ended(engine, job))[job].phase is JobPhase.SUCCEEDED

    play(script)


def test_impossible_order_is_refused_before_anything_starts(world: World) -> None:
    async def script() -> None:
        engine = await started(world)
        wrongs = [
            (order(world, "huge", "true", units=100_000), "100000"),
            (order(world, "none", "true", units=0), "0 units"),
            (order(world, "elsewhere", "true", unit="no-such-unit"), "no-such-unit"),
            (order(world, "image", "true", image="docker.io/library/busybox", files={"a": b""}), "image"),
            (order(world, "nothing"), "task nothing"),
            (order(world, "out", "true", files={"../out": b""}), "../out"),
        ]
        if not isinstance(world, LocalWorld):  # whose jobs fail then
            wrongs += [
                (order(world, "zero", "echo", "a\0b"), "zero byte"),
                (order(world, "name", "true", environment={"A=B": "c"}), "A=B"),
            ]
        for wrong, message in wrongs:
            with pytest.raises(OrderError) as raised:
                await engine.submit(wrong)
            assert message in str(raised.value)
            assert "\n" not in str(raised.value)
        assert await engine.jobs() == ()
        assert not (world.root / "out").exists()

    play(script)


def test_hostile_words_reach_the_program_as_they_are(world: World) -> None:
    async def script() -> None:
        engine = await started(world)
        program = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['WORDS']]))"
        argv = ("python3", "-c", program, _HOSTILE, "", "--job-name=x", "-")
        asked = order(
            world, "hostile", *argv, environment={**ENVIRONMENT, "WORDS": _HOSTILE}, files={"a b'c;.txt": b"x"}
        )
        job = await engine.submit(asked)
        state = (await ended(engine, job))[job]
        assert state.phase is JobPhase.SUCCEEDED, (asked.folder / ERRORS_FILE).read_text()
        words = json.loads((asked.folder / OUTPUT_FILE).read_text())
        assert words == [[_HOSTILE, "", "--job-name=x", "-"], _HOSTILE]
        assert (asked.folder / "a b'c;.txt").read_text() == "x"

    play(script)


def test_cancelled_jobs_end_with_all_that_they_have_started(world: World) -> None:
    async def script() -> None:
        engine = await started(world)
        polite = order(world, "polite", "sh", "-c", "trap 'echo bye; exit 0' TERM; echo on > $GATE/on; sleep 60 & wait")
        stubborn = order(
            world,
            "stubborn",
            "sh",
            "-c",
            "trap '' TERM; setsid sh -c 'echo $$ > $GATE/other; exec sleep 60' & sleep 60",
        )
        jobs = [await engine.submit(each) for each in (polite, stubborn)]
        await until_there(world.gate(polite) / "on")
        process = int(await until_there(world.gate(stubborn) / "other"))
        await asyncio.gather(engine.cancel(jobs[0], 20), engine.cancel(jobs[1], 0.2))
        states = await ended(engine, *jobs)
        assert all(state.phase is JobPhase.FAILED for state in states.values()), states
        assert all("cancelled" in state.reason for state in states.values()), states
        assert (polite.folder / OUTPUT_FILE).read_text() == "bye\n"
        assert states[jobs[1]].exit_code == 128 + signal.SIGKILL
        assert not world.has_process(process, "sleep")
        await engine.cancel(jobs[0], 1)  # repeated, and for an unknown job: neither is an error
        await engine.cancel("999999", 1)

    play(script)


def test_restarted_agent_finds_only_its_own_jobs(world: World) -> None:
    async def script() -> None:
        first, other = await started(world), await started(world, centre="elsewhere")
        asked = order(world, "long", "sh", "-c", "while [ ! -e $GATE/go ]; do sleep 0.05; done; exit 5", is_probe=True)
        job = await first.submit(asked)
        done = await first.submit(order(world, "done", "true"))
        foreign = await other.submit(order(world, "foreign", "true", centre="elsewhere"))
        await ended(other, foreign)
        await ended(first, done)
        await running(first, job)
        await first.close()

        second = await started(world)
        states = {state.mark.task: state for state in await second.jobs()}
        assert {name: state.phase for name, state in states.items()} == {
            "long": JobPhase.RUNNING,
            "done": JobPhase.SUCCEEDED,
        }
        assert (states["long"].mark, states["long"].id, states["long"].folder) == (asked.mark, job, asked.folder)
        assert await second.submit(asked) == job, "the same mark twice is one job"
        (world.gate(asked) / "go").touch()
        assert (await ended(second, job))[job].exit_code == 5
        await second.forget(job)
        await second.forget(done)
        third = await started(world)
        assert await third.jobs() == (), "forgotten jobs are not listed again"
        await other.forget(foreign)

    play(script)


def test_no_job_forges_the_end_of_another_one(world: World) -> None:
    """Neither by records in its own folder, nor by another job's name and labels, nor by files in another's folder."""

    async def script() -> None:
        engine = await started(world)
        waits = "echo on > $GATE/on; while [ ! -e $GATE/go ]; do sleep 0.05; done; exit 5"
        asked = order(world, "victim", "sh", "-c", waits)
        job = await engine.submit(asked)
        await until_there(world.gate(asked) / "on")
        (state,) = (await running(engine, job)).values()
        with forged(world, asked, state):
            again = await started(world)
            for each in (engine, again):
                (adopted,) = await each.jobs()
                assert (adopted.id, adopted.mark, adopted.phase, adopted.folder) == (
                    job, asked.mark, JobPhase.RUNNING, asked.folder,
                )  # fmt: skip
            assert await again.submit(asked) == job
            (world.gate(asked) / "go").touch()
            state = (await ended(engine, job))[job]
            assert (state.phase, state.exit_code) == (JobPhase.FAILED, 5)
            # The task's next job gets its own folder, whatever exists there.
            later = await engine.submit(order(world, "victim", "sh", "-c", "exit 6", epoch=2))
            assert (await ended(engine, later))[later].exit_code == 6

    play(script)


def test_unknown_jobs_are_lost(world: World) -> None:
    async def script() -> None:
        engine = await started(world)
        states = await engine.states(("424242",))
        assert all(state.phase is JobPhase.LOST and state.reason for state in states.values())

    play(script)


def test_an_engine_that_hangs_is_an_error_of_one_line_in_time(world: World) -> None:
    async def script() -> None:
        engine = await started(world, deadline_s=0.5)
        with world.hanging():
            for asked in (
                engine.resources(),
                engine.jobs(),
                engine.start(),
                engine.submit(order(world, "late", "true")),
            ):
                with pytest.raises(EngineError) as raised:
                    async with asyncio.timeout(10):
                        await asked
                assert "0.5 s" in str(raised.value)
                assert "\n" not in str(raised.value)

    play(script)


def test_jobs_outlive_an_engine_that_is_away_for_a_while(world: World) -> None:
    async def script() -> None:
        engine = await started(world, deadline_s=1.5)
        asked = order(
            world,
            "through",
            "sh",
            "-c",
            "echo on > $GATE/on; while [ ! -e $GATE/go ]; do sleep 0.05; done; echo end > $GATE/end",
        )
        job = await engine.submit(asked)
        await until_there(world.gate(asked) / "on")
        with world.away():
            with pytest.raises(EngineError) as raised:
                await engine.resources()
            assert "\n" not in str(raised.value)
            (world.gate(asked) / "go").touch()
            await until_there(world.gate(asked) / "end")
        assert (await ended(engine, job))[job].phase is JobPhase.SUCCEEDED
        again = order(world, "after", "true")
        assert (await ended(engine, late := await engine.submit(again)))[late].phase is JobPhase.SUCCEEDED

    play(script)


def test_output_of_a_running_job_is_in_its_folder(world: World) -> None:
    async def script() -> None:
        engine = await started(world)
        says = "echo begun; echo on > $GATE/on; while [ ! -e $GATE/go ]; do sleep 0.05; done; echo end"
        asked = order(world, "says", "sh", "-c", says)
        job = await engine.submit(asked)
        await until_there(world.gate(asked) / "on")
        state, file = (await running(engine, job))[job], asked.folder / OUTPUT_FILE
        assert state.folder == asked.folder
        if state.output_comes_at_end:
            assert not file.exists()
        else:
            assert await until_there(file) == "begun\n"
        (world.gate(asked) / "go").touch()
        assert not (await ended(engine, job))[job].output_comes_at_end
        assert file.read_text() == "begun\nend\n"

    play(script)


def test_output_of_a_users_image_comes_while_it_runs(containers: Containers, tmp_path: Path) -> None:
    world = ContainersWorld(containers, tmp_path)

    async def act() -> None:
        engine = await started(world)
        says = "echo begun; echo wrong >&2; seq 1 1000; while :; do sleep 0.1; done"
        asked = order(world, "image", "sh", "-c", says, image=containers.image, output_limit_bytes=1024)
        job = await engine.submit(asked)
        file = asked.folder / OUTPUT_FILE
        await until(lambda: file.exists() and file.stat().st_size == 512, "its output does not come")
        begun = file.read_bytes()
        assert begun.startswith(b"begun\n1\n2\n")
        assert await until_there(asked.folder / ERRORS_FILE) == "wrong\n"
        assert not (await running(engine, job))[job].output_comes_at_end
        await engine.cancel(job, 0.1)
        whole = file.read_bytes()
        assert whole.startswith(begun)
        assert whole.endswith(b"999\n1000\n")

    try:
        play(act)
    finally:
        world.close()


def test_changes_of_resources_are_reported(world: World) -> None:
    async def script() -> None:
        engine = await started(world)
        before = (await _unit(engine, world.unit)).count
        async with aclosing(engine.changes()) as changes:  # type: ignore[type-var]

            async def told_until(is_so: Callable[[int], bool]) -> None:
                # Leftovers of earlier tests may vanish meanwhile, which is reported, too.
                await anext(changes)
                while not is_so((await _unit(engine, world.unit)).count):
                    await anext(changes)

            told = asyncio.create_task(told_until(lambda count: 0 < count < before))
            await asyncio.sleep(0.3)
            with world.smaller():
                await told
                assert engine.notes
                told = asyncio.create_task(told_until(lambda count: count == before))
            await told

    play(script)


def test_cluster_centre_runs_dispatched_tasks_and_probes(slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    cluster = SlurmSettings(configuration=slurm_cluster.configuration, poll_s=0.1, unsafe_same_user=True)

    async def act(world: CentreWorld) -> None:
        fields = {name: getattr(world.settings, name) for name in CentreSettings.__struct_fields__}
        async with world.agent(ServedCentre(**fields | {"slurm": cluster})):
            centre = await world.centre(_has_tried)
            assert centre.status.engine == "slurm"
            assert {unit.name: unit.count for unit in centre.status.units} == {"accelerated": 2, "batch": 8}
            task = await world.run("hello", script("echo $SLURM_JOB_PARTITION > where; exit 3"), "batch")
            assert (task.status.phase, task.status.exit_code) == (TaskPhase.FAILED, 3)
            await world.add_probe()
            measured = await world.run("products", probe(units=(1, 2)), "batch", 2)
            assert measured.status.phase is TaskPhase.SUCCEEDED, measured.status
            result = await world.result_of(measured)
            assert [run.units for run in result.status.runs] == [1, 2]
            assert all(time_s > 0 for run in result.status.runs for time_s in run.run_times_s)
            assert (await world.centre()).shares == ()

    play_centre(tmp_path, act, trial=TrialSettings(kernels=("dot",)))


def test_units_of_slurm_may_be_tasks_on_several_nodes(slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    world = SlurmWorld(slurm_cluster, tmp_path)
    rank = SlurmUnit(partition="batch", cpus=2, spans_nodes=True)
    says = "echo $MILLRACE_RANK $MILLRACE_WORLD_SIZE $SLURMD_NODENAME"

    async def act() -> None:
        engine = await started(world, units={"rank": rank})
        asked = order(world, "ranks", "sh", "-c", says, unit="rank", units=3)
        job = await engine.submit(asked)
        assert (await ended(engine, job))[job].phase is JobPhase.SUCCEEDED
        lines = sorted(line.split() for line in (asked.folder / OUTPUT_FILE).read_text().splitlines())
        assert [line[:2] for line in lines] == [["0", "3"], ["1", "3"], ["2", "3"]]
        assert {line[2] for line in lines} == {"n1", "n2"}

    play(act)


def test_slurm_jobs_run_as_root_only_if_configured(slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    world = SlurmWorld(slurm_cluster, tmp_path)
    for folder in (tmp_path, *tmp_path.parents[:3], slurm_cluster.folder, slurm_cluster.folder.parent):
        folder.chmod(folder.stat().st_mode | 0o011)

    async def act() -> None:
        with pytest.raises(EngineError, match=r"slurm: jobs would run as root: .* or set slurm\.user"):
            await started(world, user=None)
        engine = await started(world, user="games")
        asked = order(world, "other", "sh", "-c", "id -un; echo on > on; while [ ! -e go ]; do sleep 0.05; done")
        stubborn = order(world, "stubborn", "sh", "-c", "trap '' TERM; echo on > on; while :; do sleep 0.05; done")
        job, other = [await engine.submit(each) for each in (asked, stubborn)]
        await running(engine, job, other)
        for each in (asked, stubborn):
            await until_there(each.folder / "on")
        await engine.cancel(other, 0.1)  # the grace is read by the job's user
        (asked.folder / "go").touch()
        assert (await ended(engine, job))[job].phase is JobPhase.SUCCEEDED
        assert (await ended(engine, other))[other].reason == "it was cancelled"
        assert (asked.folder / OUTPUT_FILE).read_text() == "games\n"

    play(act)


def _has_tried(centre: Centre) -> bool:
    return centre.status.ready and all(unit.operators for unit in centre.status.units)


async def _unit(engine: Engine, name: str) -> UnitType:
    return next(kind for kind in await engine.resources() if kind.name == name)
