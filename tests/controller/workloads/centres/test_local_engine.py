"""Jobs as real local processes, on their own cores, in control groups if available."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from controller.workloads.centres.engines.base import JOB_ENDED, JobMark, JobOrder, JobPhase, JobState
from controller.workloads.centres.engines.local.engine import LocalEngine
from controller.workloads.centres.errors import EngineError, OrderError
from controller.workloads.centres.settings import ControlGroups, UnitSettings
from controller.workloads.centres.units import Found, FoundDevice
from dataplane.cgroup_limits import remove_empty
from dataplane.fabric.kernel import namespaces
from dataplane.local.deadline import local_timeout
from dataplane.topology.values import DeviceKind
from tests.left_processes import processes_of_job
from tests.sandboxes import local_settings
from tests.waiting import finish_within, until

WAIT_S = 20.0
CORES = tuple(sorted(os.sched_getaffinity(0)))
PYTHON = sys.executable


@dataclass
class World:
    """An engine in a folder; `found` has the resources of its machine."""

    folder: Path
    engine: LocalEngine
    found: list[Found]

    def order(self, name: str, *argv: str, units: int = 1, **more: object) -> JobOrder:
        mark = JobMark("c1", name, f"uid-of-{name}", 1)
        return JobOrder(
            mark=mark,
            argv=argv,
            folder=self.folder / "jobs" / name,
            unit="core",
            units=units,
            **more,  # type: ignore[arg-type]
        )

    async def state(self, job: str) -> JobState:
        return (await self.engine.states((job,)))[job]

    async def until(self, job: str, *phases: JobPhase) -> JobState:
        state = await self.state(job)

        async def is_in_phase() -> bool:
            nonlocal state
            state = await self.state(job)
            return state.phase in phases

        await until(is_in_phase, lambda: state, poll_s=0.01)
        return state

    async def run(self, name: str, *argv: str, **more: object) -> JobState:
        return await self.until(await self.engine.submit(self.order(name, *argv, **more)), *JOB_ENDED)  # type: ignore[arg-type]

    def text(self, name: str, file: str = "stdout") -> str:
        return (self.folder / "jobs" / name / file).read_text()


def group_of(folder: Path) -> str:
    return f"/millrace-test-{os.getpid()}-{abs(hash(folder)) % 10**8}"


@asynccontextmanager
async def engine_in(folder: Path, machine: Found | None = None, **settings: object) -> AsyncIterator[World]:
    has = [machine or Found(CORES[:1], 1000 * len(CORES[:1]))]
    units = settings.pop("units", (UnitSettings(name="core"),))
    local = local_settings(**({"control_groups": ControlGroups.NEVER} | settings))
    engine = LocalEngine(local, units, folder / "local", group_of(folder), lambda _: has[0])  # type: ignore[arg-type]
    await engine.start()
    try:
        yield World(folder, engine, has)
    finally:
        await engine.close()


Act = Callable[[World], Awaitable[None]]


def play(folder: Path, act: Act, machine: Found | None = None, **settings: object) -> None:
    async def main() -> None:
        async with local_timeout(WAIT_S, "a test"), engine_in(folder, machine, **settings) as world:
            try:
                await act(world)
            finally:
                for job in await world.engine.jobs():
                    await world.engine.cancel(job.id, 0)
                    await world.engine.forget(job.id)

    asyncio.run(main())


def test_a_job_runs_on_its_cores_and_sees_nothing_of_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_AGENT", "x")
    script = (
        "import os, json; print(json.dumps([sorted(os.sched_getaffinity(0)), dict(os.environ), os.getcwd(),"
        " os.getsid(0) == os.getpid()]))"
    )

    async def act(world: World) -> None:
        state = await world.run("a", PYTHON, "-c", script, environment={"MINE": "1"})
        assert (state.phase, state.exit_code, state.reason) == (JobPhase.SUCCEEDED, 0, "")
        cores, environment, folder, leads = json.loads(world.text("a"))
        assert (cores, folder, leads) == ([CORES[0]], str(tmp_path / "jobs" / "a"), True)
        assert set(environment) - {"LC_CTYPE"} == {
            "PATH", "LANG", "HOME", "TMPDIR", "MINE", "MILLRACE_JOB", "MILLRACE_CORES", "CUDA_VISIBLE_DEVICES",
        }  # fmt: skip
        assert environment["CUDA_VISIBLE_DEVICES"] == ""
        assert (await world.engine.usage(state.id)) is not None

    play(tmp_path, act)


@pytest.mark.parametrize(
    ("argv", "code", "reason"),
    [
        (("/bin/sh", "-c", "exit 7"), 7, ""),
        (("/bin/sh", "-c", "kill -9 $$"), 137, ""),
        (("/no/such/program",), 127, "it cannot be started: /no/such/program: No such file or directory"),
    ],
)
def test_end_of_a_job_is_reported(tmp_path: Path, argv: tuple[str, ...], code: int, reason: str) -> None:
    async def act(world: World) -> None:
        state = await world.run("a", *argv)
        assert (state.phase, state.exit_code, state.reason) == (JobPhase.FAILED, code, reason)
        assert (state.finished_ns or 0) > (state.started_ns or 0) > 0

    play(tmp_path, act)


def test_job_over_its_limit_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    script = "trap '' TERM; setsid sleep 1000 & while :; do sleep 0.05; done"

    async def act(world: World) -> None:
        state = await world.run("a", "/bin/sh", "-c", script, limit_s=0.3, grace_s=0.1)
        assert (state.phase, state.exit_code) == (JobPhase.FAILED, 137)
        assert state.reason == "it exceeded its limit of 0.3 s"
        assert processes_of_job(state.id) == []

    play(tmp_path, act)


def test_a_cancelled_job_has_its_grace(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        script = "trap 'echo bye; exit 3' TERM; echo here; while :; do sleep 0.02; done"
        job = await world.engine.submit(world.order("a", "/bin/sh", "-c", script))
        output = tmp_path / "jobs/a/stdout"
        await until(lambda: output.exists() and output.read_text() != "", "the job writes nothing")
        await world.engine.cancel(job, 5.0)
        state = await world.state(job)
        assert (state.phase, state.exit_code, state.reason) == (JobPhase.FAILED, 3, "it was cancelled")
        assert world.text("a") == "here\nbye\n"
        await world.engine.cancel(job, 5.0)
        await world.engine.cancel("nobody", 5.0)

    play(tmp_path, act)


def test_jobs_wait_for_units_in_order_and_never_share_a_core(tmp_path: Path) -> None:
    two = Found((CORES[0], CORES[-1]), 2000) if len(CORES) > 1 else Found(CORES, 1000)
    say = (
        "import os, time; b = time.monotonic_ns(); time.sleep(0.05);"
        "print(os.environ['MILLRACE_CORES'], b, time.monotonic_ns())"
    )

    async def act(world: World) -> None:
        jobs = [await world.engine.submit(world.order(f"j{n}", PYTHON, "-S", "-c", say)) for n in range(5)]
        for job in jobs:
            assert (await world.until(job, *JOB_ENDED)).phase is JobPhase.SUCCEEDED
        told = [world.text(f"j{n}").split() for n in range(5)]
        spans = [(cores, int(begun), int(ended)) for cores, begun, ended in told]
        for index, (cores, begun, ended) in enumerate(spans):
            for other, (theirs, since, by) in enumerate(spans):
                assert index == other or cores != theirs or ended < since or by < begun

    play(tmp_path, act, two)


def test_impossible_order_is_refused_before_it_is_stored(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        for order, problem in (
            (world.order("a", "true", units=2), "task a: wants 2 units of type core, not 1 to 1"),
            (world.order("a"), "task a: has no command"),
            (world.order("a", "true", image="busybox"), "task a: this engine cannot run containers \\(busybox\\)"),
            (world.order("a", "true", files={"../x": b""}), "task a: '../x' is not a file name"),
        ):
            with pytest.raises(OrderError, match=f"engine local: {problem}"):
                await world.engine.submit(order)
        assert await world.engine.jobs() == ()
        with pytest.raises(EngineError, match="is not a job id"):
            await world.state("../local")

    play(tmp_path, act)


def test_same_mark_is_one_job_and_a_running_job_is_kept(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        order = world.order("a", "/bin/sleep", "1000")
        assert await world.engine.submit(order) == await world.engine.submit(order)
        (job,) = await world.engine.jobs()
        assert (job.mark, job.unit, job.units) == (order.mark, "core", 1)
        with pytest.raises(EngineError, match="cannot be forgotten"):
            await world.engine.forget(job.id)
        await world.engine.cancel(job.id, 1.0)
        await world.engine.forget(job.id)
        assert await world.engine.jobs() == ()
        assert not (tmp_path / "jobs/a").exists()

    play(tmp_path, act)


def test_output_is_kept_within_its_limit_beginning_and_end(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        say = "import sys; sys.stdout.write('a' * 600 + 'b' * 100_000 + 'c' * 500)"
        await world.run("a", PYTHON, "-S", "-c", say, output_limit_bytes=1000)
        assert world.text("a") == "a" * 500 + "\n... 100100 bytes omitted ...\n" + "c" * 500

    play(tmp_path, act)


def test_running_and_queued_jobs_outlive_the_agent(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_timeout(WAIT_S, "a test"):
            async with engine_in(tmp_path) as world:
                script = "while [ ! -e go ]; do sleep 0.02; done; exit 4"
                runs = await world.engine.submit(world.order("runs", "/bin/sh", "-c", script))
                waits = await world.engine.submit(world.order("waits", "/bin/sh", "-c", "exit 5"))
                await world.until(runs, JobPhase.RUNNING)
                assert (await world.state(waits)).phase is JobPhase.QUEUED
            (tmp_path / "jobs/runs/go").write_text("")
            async with engine_in(tmp_path) as world:
                assert (await world.until(runs, *JOB_ENDED)).exit_code == 4
                assert (await world.until(waits, *JOB_ENDED)).exit_code == 5

    asyncio.run(main())


def test_killed_keeper_ends_its_job_which_is_lost(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        script = "setsid sleep 1000 & wait"
        job = await world.engine.submit(world.order("a", "/bin/sh", "-c", script))
        await until(lambda: len(processes_of_job(job)) >= 2, "the job starts no second process", poll_s=0.01)
        keeper = int((tmp_path / "local" / job / "lock").read_text())
        os.kill(keeper, signal.SIGKILL)
        state = await world.until(job, *JOB_ENDED)
        assert (state.phase, state.exit_code) == (JobPhase.LOST, None)
        await until(lambda: processes_of_job(job) == [], "a process survives its keeper", poll_s=0.01)
        # Its units are free again.
        assert (await world.run("b", "/bin/true")).phase is JobPhase.SUCCEEDED

    play(tmp_path, act)


def test_missing_control_groups_are_noted_and_data_limited(tmp_path: Path) -> None:
    unit = UnitSettings(name="core", memory_bytes=64 << 20)

    async def act(world: World) -> None:
        assert any("no control groups, as the settings say" in note for note in world.engine.notes)
        state = await world.run("a", PYTHON, "-S", "-c", "b'x' * (128 << 20)")
        assert state.exit_code == 1
        assert "MemoryError" in world.text("a", "stderr")

    play(tmp_path, act, Found(CORES[:1], 1000, 1 << 30), units=(unit,))


@pytest.mark.root
def test_control_groups_limit_memory_processes_and_time(tmp_path: Path) -> None:
    unit = UnitSettings(name="core", memory_bytes=64 << 20, cpu_milli=200)
    burn = "import time\nb = time.monotonic()\nwhile time.process_time() < 0.15: pass\nprint(time.monotonic() - b)"
    fork = "import os, sys\ntry:\n  for n in range(64): os.fork() or os.pause()\nexcept OSError as e: print(e.errno)"

    async def act(world: World) -> None:
        assert not [note for note in world.engine.notes if "control group" in note]
        state = await world.run("memory", PYTHON, "-S", "-c", "x = bytearray(256 << 20)")
        assert (state.exit_code, state.reason) == (137, "out of memory: it used all memory of its units")
        assert (await world.run("time", PYTHON, "-S", "-c", burn)).phase is JobPhase.SUCCEEDED
        # 0.15 s of CPU time at a fifth of a core: no faster than the quota allows.
        assert float(world.text("time")) > 0.3
        await world.run(
            "fork", PYTHON, "-S", "-c", fork.replace("os.pause()", "__import__('signal').pause()"), limit_s=5.0
        )
        assert world.text("fork") == "11\n"

    try:
        play(
            tmp_path,
            act,
            Found(CORES[:1], 1000, 1 << 30),
            units=(unit,),
            control_groups=ControlGroups.ALWAYS,
            processes=16,
        )
    finally:
        assert remove_empty(group_of(tmp_path))


@pytest.mark.root
def test_a_job_runs_as_a_named_user(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        script = "id -u; id -G; grep NoNewPrivs /proc/self/status; echo > mine; echo > ../mine"
        state = await world.run("a", "/bin/sh", "-c", script)
        assert world.text("a").split() == ["65534", "65534", "NoNewPrivs:", "1"]
        assert state.exit_code == 2
        assert "ermission denied" in world.text("a", "stderr")
        assert (tmp_path / "jobs/a/mine").stat().st_uid == 65534

    play(tmp_path, act, user="nobody")


def test_settings_that_cannot_be_are_one_line(tmp_path: Path) -> None:
    async def act(_: World) -> None: ...

    with pytest.raises(EngineError, match=r"engine local: local\.user: there is no user nobody-at-all"):
        play(tmp_path, act, user="nobody-at-all")


def test_vanished_units_are_reported_and_orders_for_them_refused(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        assert [(unit.name, unit.count) for unit in await world.engine.resources()] == [("core", 1)]
        world.found[0] = Found((), 0)
        assert [(unit.name, unit.count) for unit in await world.engine.resources()] == [("core", 0)]
        assert world.engine.notes[0] == "unit type core: no unit: needs 1 cores, 0 left"
        with pytest.raises(OrderError, match="wants 1 units of type core, not 1 to 0"):
            await world.engine.submit(world.order("a", "/bin/true"))

    play(tmp_path, act)


GPU = FoundDevice(0, DeviceKind.GPU, "A", 0, "GPU-0")


@pytest.mark.skipif(len(CORES) < 2, reason="needs two CPUs")
def test_item_5_jobs_share_a_device_by_time_slices(tmp_path: Path) -> None:
    names = ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
    script = f"import os; print(*(os.environ[name] for name in {names}))"
    machine = Found(CORES[:2], 2000, devices=(GPU, replace(GPU, number=1, handle="GPU-1")))

    async def act(world: World) -> None:
        assert (await world.run("one", PYTHON, "-c", script)).phase is JobPhase.SUCCEEDED
        assert (await world.run("two", PYTHON, "-c", script, units=2)).phase is JobPhase.SUCCEEDED
        assert (world.text("one"), world.text("two")) == ("GPU-0 40\n", "GPU-0 80\n")
        assert "parts of devices are admitted, and enforced only where CUDA's MPS serves the jobs" in world.engine.notes

    units = (UnitSettings(name="core", devices=1, device_thousandths=400),)
    play(tmp_path, act, machine, units=units)


@pytest.mark.skipif(len(CORES) < 2, reason="needs two CPUs")
def test_a_device_that_disappears_gives_no_job_anothers_device(tmp_path: Path) -> None:
    """The second device becomes the first one by number, while a job runs on it."""
    second = replace(GPU, number=1, handle="GPU-1")
    machine = Found(CORES[:2], 2000, devices=(GPU, second))
    units = (UnitSettings(name="core", devices=1),)

    async def act(world: World) -> None:
        first = await world.engine.submit(world.order("first", "sleep", "600"))
        other = await world.engine.submit(world.order("other", "sleep", "600"))
        await world.until(first, JobPhase.RUNNING)
        await world.until(other, JobPhase.RUNNING)
        world.found[0] = Found(CORES[:2], 2000, devices=(replace(second, number=0),))
        await world.engine.resources()
        assert f"job {first}: its device GPU-0 is gone" in world.engine.notes
        await world.engine.cancel(first, 0)
        third = await world.engine.submit(world.order("third", "sleep", "600"))
        assert (await world.state(third)).phase is JobPhase.QUEUED  # GPU-1 is the other job's
        await world.engine.cancel(other, 0)
        await world.until(third, JobPhase.RUNNING)

    play(tmp_path, act, machine, units=units)


@pytest.mark.root
def test_a_job_runs_in_the_network_namespace_that_is_named(tmp_path: Path) -> None:
    name = f"mr-centre-{os.getpid()}"

    async def main() -> None:
        local = local_settings(control_groups=ControlGroups.NEVER)
        has = Found(CORES[:1], 1000)
        engine = LocalEngine(
            local,
            (UnitSettings(name="core"),),
            tmp_path / "local",
            group_of(tmp_path),
            lambda _: has,
            network_namespace=namespaces.RUN_NETNS / name,
        )
        with pytest.raises(EngineError, match=f"network namespace /run/netns/{name} does not exist"):
            await engine.start()
        namespaces.create(name)
        try:
            await engine.start()
            world = World(tmp_path, engine, [has])
            await world.run("a", "/bin/sh", "-c", "readlink /proc/self/ns/net; cat /proc/net/dev | wc -l")
            inode = (namespaces.RUN_NETNS / name).stat().st_ino
            # Two header lines, and loopback.
            assert world.text("a").split() == [f"net:[{inode}]", "3"]
            await engine.close()
        finally:
            namespaces.remove(name)

    asyncio.run(finish_within(main(), WAIT_S))
