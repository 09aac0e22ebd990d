"""Failing probes, with a real service, scheduler and agents: an error that names the cause, or a weaker basis."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import yaml

from controller.apiserver.client import ApiClient
from controller.apiserver.registry.dispatches import Dispatch, DispatchRequest
from controller.apiserver.resources import Centre, Metadata, ProbeResult, ProbeTask, Task
from controller.apiserver.resources.centre import CentreSpec, UnitType
from controller.apiserver.resources.hardware import Request
from controller.apiserver.resources.task import OperatorCount, Program, ProgramKind, TaskPhase, TaskSpec
from controller.apiserver.tokens import TokenRequest
from controller.cluster.estimates import Basis, Estimate
from controller.common.errors import StaleError
from controller.probing import files
from controller.probing.evaluation import TRUSTED, estimate_of, trust_of
from controller.probing.evaluation.trust import Evidence, TrustSettings
from controller.probing.prediction import predicted
from controller.probing.values import Implementation, KernelUse, Library
from controller.probing.values import ProbeTask as Probe
from controller.scheduling.tasks.settings import TaskSettings
from controller.workloads.centres.engines.base import JOB_ENDED, Engine, JobPhase, JobState
from controller.workloads.centres.engines.local.engine import LocalEngine
from controller.workloads.centres.engines.local.machine import look
from controller.workloads.centres.process import serve as serve_centre
from controller.workloads.centres.settings import CentreSettings, TrialSettings, UnitSettings
from dataplane.config import document_of
from dataplane.local.deadline import local_timeout
from dataplane.rpc.access import Role
from dataplane.topology.values import DeviceKind
from tests.controller.apiserver.api_server import serving, settings_in
from tests.controller.scheduling.serving.tasks.conftest import DGEMMS, Site
from tests.sandboxes import local_settings
from tests.waiting import until

ROOT = Path(__file__).parents[2]
WAIT_S = 120.0
Act = Callable[["World"], Awaitable[None]]


class LateEngine(LocalEngine):
    """Real processes whose exits are reported this many seconds late."""

    late_s = 0.0

    async def jobs(self) -> tuple[JobState, ...]:
        return tuple(self._reported(job) for job in await super().jobs())

    def _reported(self, job: JobState) -> JobState:
        told_ns = (job.finished_ns or 0) + round(self.late_s * 1e9)
        if job.phase not in JOB_ENDED or time.time_ns() > told_ns:
            return job
        return replace(job, phase=JobPhase.RUNNING, exit_code=None, finished_ns=None)


class World(Site):
    """An API server, and agents of centres with the local engine."""

    def __init__(self, client: ApiClient, socket: str, folder: Path) -> None:
        super().__init__(client, socket)
        self.folder = folder

    async def settings(self, name: str) -> CentreSettings:
        """Return the settings of a centre of one unit."""
        made = await self.client.create_token(TokenRequest(name=name, role=Role.CENTRE, subject=name))
        token = self.folder / f"{name}.token"
        token.touch(0o600)
        token.write_text(made.token, encoding="ascii")
        return CentreSettings(
            centre=name,
            state=str(self.folder / name),
            api=self.socket,
            token_file=str(token),
            units=(UnitSettings(name="cpu", count=1),),
            local=local_settings(cores="0"),
            trial=TrialSettings(kernels=("dgemm",)),
            report_s=0.3,
            probe_limit_s=5.0,
            environment={"PYTHONPATH": str(ROOT)},
        )

    @asynccontextmanager
    async def agent(self, name: str, engine: Engine | None = None) -> AsyncIterator[None]:
        """Run a centre's agent in this loop."""
        stop = asyncio.Event()
        task = asyncio.create_task(serve_centre(await self.settings(name), stop, engine=engine))
        try:
            await self.ready(name)
            yield
        finally:
            stop.set()
            await task

    @asynccontextmanager
    async def agent_process(self, name: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a centre's agent as a process."""
        file = self.folder / f"{name}.yaml"
        settings = document_of(await self.settings(name))
        file.write_text(yaml.safe_dump(settings), encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "controller.apps.cli", "centre", "serve", "-s", str(file), cwd=ROOT
        )
        try:
            await self.ready(name)
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def ready(self, name: str) -> None:
        """Wait until a centre is ready and its kernels are tried."""
        async for _ in self.client.of(Centre).follow():
            centres = {centre.metadata.name: centre for centre in (await self.client.of(Centre).list()).items}
            if (
                name in centres
                and centres[name].status.ready
                and any(unit.operators for unit in centres[name].status.units)
            ):
                return

    async def probe(self, kernel: str, task_type: str = "products") -> Probe:
        """Make a probe task of one of the faulty kernels, which stands for a product of matrices."""
        code = Implementation(DeviceKind.CPU, Library.PYTHON, f"tests.integration.faulty_kernels:{kernel}")
        use = KernelUse("product", "dgemm", 1, (), 1, 1000, code, 1e-9, operator="product")
        probe = Probe(f"probe-{kernel}", "hpc", (use,), task_type=task_type, share_matched=1.0)
        spec = files.to_spec(probe)
        await self.client.of(ProbeTask).create(ProbeTask(metadata=Metadata(name=probe.name), spec=spec))
        return probe

    async def late_engine(self, name: str) -> LateEngine:
        """Return an engine that may be late, for a centre's agent."""
        made = await self.settings(name)
        group = f"/millrace-test-{os.getpid()}-{name}"
        return LateEngine(
            made.local, made.units, self.folder / "engine", group, lambda now: look(now, "not looked for")
        )

    async def run_probe(
        self, probe: Probe, centre: str, units: int = 1, *, name: str = ""
    ) -> tuple[Task, ProbeResult | None]:
        """Dispatch a probe to a centre by hand; return it, and its result, once it has ended."""
        name = name or f"{probe.name}-at-{centre}"
        spec = TaskSpec(program=Program(kind=ProgramKind.PROBE, entry=probe.name), is_probe=True, units=(units,))
        await self.client.of(Task).create(Task(metadata=Metadata(name=name), spec=spec))
        await self.client.dispatch(DispatchRequest(dispatches=(Dispatch(name, centre, "cpu", units),)))
        ended = {TaskPhase.SUCCEEDED, TaskPhase.FAILED}
        task = (await self.tasks_when(lambda tasks: tasks[name].status.phase in ended))[name]
        return task, task.status.result and await self.client.of(ProbeResult).get(task.status.result)  # type: ignore[return-value]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Act], None]:
    """Run a function in a world."""

    def run(act: Act) -> None:
        async def main() -> None:
            async with local_timeout(WAIT_S, "a test"), serving(settings_in(tmp_path, None), tmp_path) as served:
                await act(World(served.client, served.socket, tmp_path))

        asyncio.run(main())

    return run


WRONGS = (
    ("crashing", "crash", "SIGABRT"),
    ("raising", "crash", "no such matrix"),
    ("hanging", "hang", "not done after"),
    ("wrong", "wrong-value", "relative error of 0.5"),
)


def test_faulty_kernel_is_named_and_gives_no_estimate(play: Callable[[Act], None]) -> None:
    async def act(world: World) -> None:
        async with world.agent("here"):
            for kernel, outcome, expected in WRONGS:
                probe = await world.probe(kernel)
                task, result = await world.run_probe(probe, "here")
                assert task.status.phase is TaskPhase.FAILED
                assert result is not None
                assert len(result.status.runs) == 1, f"{kernel}: {task.status}, {result.status}"
                (run,) = result.status.runs
                assert run.outcome == outcome
                assert "product" in run.problem or "dgemm" in run.problem
                assert expected in run.problem
                estimate = predicted(probe, result.status.runs)
                assert not estimate.is_known
                assert any(expected in reason for reason in estimate.reasons)

    play(act)


def test_task_with_failing_probes_everywhere_is_not_dispatched(play: Callable[[Act], None]) -> None:
    async def act(world: World) -> None:
        async with world.agent("here"), world.scheduling():
            await world.probe("wrong")
            await world.submit("real", task_type="products")
            tasks = await world.tasks_when(
                lambda tasks: any(
                    task.spec.is_probe and task.status.phase is TaskPhase.FAILED for task in tasks.values()
                )
            )
            assert tasks["real"].status.centre is None
            async for outcome in _decisions(world, "real", 1):
                assert outcome != "dispatched"
            assert (await world.client.of(Task).get("real")).status.centre is None

    play(act)


async def _decisions(world: World, task: str, number: int) -> AsyncIterator[str]:
    """Yield the outcomes of the first decisions about a task."""

    async def are_recorded() -> bool:
        return len(await world.decisions_about(task)) >= number

    await until(are_recorded)
    for decision in await world.decisions_about(task):
        yield decision.spec.outcome.value


def test_centre_with_impossible_figures_gets_no_real_task(play: Callable[[Act], None]) -> None:
    async def act(world: World) -> None:
        unit = UnitType(name="cpu", count=1, operators=("dgemm",), unit=Request(cpu_milli=1000, memory_bytes=1 << 30))
        liar = world.centre("liar", 1e9, unit)
        async with world.agent("honest"), world.running(liar), world.scheduling():
            await world.submit("real", task_type="products")
            tasks = await world.ended("real")
            assert tasks["real"].status.centre == "honest"
            assert all(task.spec.is_probe for task in liar.given)

    play(act)


def test_late_completions_lower_trust_but_keep_the_figures(
    play: Callable[[Act], None],
) -> None:
    async def scheduled(world: World, name: str, late: TrustSettings) -> tuple[Task, str]:
        """Return a finished real task, and the reason for its centre."""
        async with world.scheduling(TaskSettings(trust=late)):
            await world.submit(name, task_type="products")
            task = (await world.ended(name))[name]
            return task, [decision.spec.reason for decision in await world.decisions_about(name)][-1]

    async def believed(world: World, late: TrustSettings) -> tuple[Estimate, Estimate]:
        """Return the results' estimate of the probe's run time at full trust, and at the centre's trust."""
        results = (await world.client.of(ProbeResult).list()).items
        tasks = (await world.client.of(Task).list(fields="centre=slow")).items
        now_ns = time.time_ns()
        trust = trust_of(Evidence(results, await world.client.of(Centre).get("slow"), tasks), now_ns, late)
        return tuple(estimate_of(results, now_ns, units=1, trust=degree) for degree in (TRUSTED, trust))  # type: ignore[return-value]

    async def act(world: World) -> None:
        engine = await world.late_engine("slow")
        async with world.agent("slow", engine):
            probe = await world.probe("steady")
            first, why = await scheduled(world, "first", TrustSettings())
            assert "measured" in why
            # Late means three times as long as the first probe took, however loaded this machine is.
            probes = [task for task in (await world.client.of(Task).list()).items if task.spec.is_probe]
            late = TrustSettings(late_s=max(3.0, 3 * max(_told_after_s(probe) for probe in probes)))
            sound, now = await believed(world, late)
            assert now == sound
            assert now.basis is Basis.MEASURED

            engine.late_s = late.late_s + 0.2
            task, result = await world.run_probe(probe, "slow", name="late")
            assert (task.status.phase, task.status.finished_ns is not None) == (TaskPhase.SUCCEEDED, True)
            engine.late_s = 0.0
            sound, now = await believed(world, late)
            assert (sound.basis, now.basis) == (Basis.MEASURED, Basis.HISTORY)
            assert now.times == sound.times
            assert result is not None
            assert any(line.startswith(f"{result.metadata.name} came ") for line in now.reasons)
            assert sum(result.status.runs[0].run_times_s) < 1.0, "the wait is in no figure"
            # The expected time is the first one's, at high or low trust.
            second, why = await scheduled(world, "second", late)
            assert "history" in why
            assert second.status.expected_s == first.status.run_time_s

            await world.run_probe(probe, "slow", name="prompt")
            sound, now = await believed(world, late)
            assert now == sound
            _, why = await scheduled(world, "third", late)
            assert "measured" in why

    play(act)


def _told_after_s(task: Task) -> float:
    assert task.status.finished_ns is not None
    assert task.status.dispatched_ns is not None
    return (task.status.finished_ns - task.status.dispatched_ns) / 1e9


def test_a_centre_that_disappears_amid_a_probe_gets_no_task(play: Callable[[Act], None]) -> None:
    async def act(world: World) -> None:
        await world.client.of(Centre).create(Centre(metadata=Metadata(name="gone"), spec=CentreSpec(lease_s=1.0)))
        await world.probe("hanging")
        async with world.agent_process("gone") as process, world.scheduling():
            await world.submit("real", task_type="products")
            await world.tasks_when(
                lambda tasks: any(
                    task.status.phase is TaskPhase.RUNNING for task in tasks.values() if task.spec.is_probe
                )
            )
            os.kill(process.pid, signal.SIGKILL)
            tasks = await world.tasks_when(
                lambda tasks: not any(task.is_held for task in tasks.values() if task.spec.is_probe)
            )
            assert tasks["real"].status.centre is None
            assert (await world.client.of(Centre).get("gone")).shares == ()

    play(act)


def test_task_without_a_kernel_is_dispatched_without_estimate(play: Callable[[Act], None]) -> None:
    async def act(world: World) -> None:
        strange = OperatorCount(name="strange", operator="divination", count=1000, sizes={"n": 10})
        async with world.agent("here"), world.scheduling():
            await world.submit("real", operators=(strange,), task_type="strange", limit_s=5.0)
            async for outcome in _decisions(world, "real", 1):
                assert outcome
            task = await world.client.of(Task).get("real")
            assert task.status.expected_s is None
            assert not (await world.client.of(ProbeTask).list()).items

    play(act)


def test_more_units_than_there_are_is_refused_in_one_line(play: Callable[[Act], None]) -> None:
    async def act(world: World) -> None:
        async with world.agent("here"):
            probe = await world.probe("right")
            with pytest.raises(StaleError, match="unit") as refused:
                await world.run_probe(probe, "here", units=99)
            assert "\n" not in str(refused.value)

    play(act)


def test_task_wanting_too_many_units_waits_with_the_reason(play: Callable[[Act], None]) -> None:
    async def act(world: World) -> None:
        async with world.agent("here"), world.scheduling():
            await world.submit("real", operators=DGEMMS, task_type="products", units=(99,))
            async for outcome in _decisions(world, "real", 1):
                assert outcome != "dispatched"
            decision = (await world.decisions_about("real"))[-1]
            text = msgspec.json.encode(decision).decode()
            assert "99" in text
            assert (await world.client.of(Task).get("real")).status.centre is None

    play(act)
