"""An API server in the test's loop, a centre's agent in the loop or as a process, and dispatched tasks."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from msgspec.structs import replace

from controller.apiserver.client import ApiClient
from controller.apiserver.registry.dispatches import Dispatch, DispatchRequest
from controller.apiserver.resources import Centre, Metadata, ProbeResult, ProbeTask, Task
from controller.apiserver.resources.task import TASK_ENDED, Program, ProgramKind, TaskPhase, TaskSpec
from controller.apiserver.tokens import TokenRequest
from controller.common.errors import NotFoundError
from controller.probing import files
from controller.probing.expert import loads
from controller.probing.library import KernelLibrary
from controller.workloads.centres.engines.base import Engine
from controller.workloads.centres.process import load_settings, serve
from controller.workloads.centres.selecting import ServedCentre
from controller.workloads.centres.settings import CentreSettings, ControlGroups, TrialSettings, UnitSettings
from dataplane.config import document_of
from dataplane.daemon import Lifecycle
from dataplane.local.deadline import local_timeout
from dataplane.rpc.access import Role
from tests.controller.apiserver.api_server import Served, serving, settings_in
from tests.left_processes import kill_those_of
from tests.sandboxes import local_settings
from tests.waiting import until

WAIT_S = 60.0
CORE = min(os.sched_getaffinity(0))
PROBE = "millrace: 1\nname: products\nkernels: [{kernel: dot, repetitions: 2, sizes: {n: 1000}}]\n"


@dataclass
class CentreWorld:
    """The service and a centre of it, named c1."""

    served: Served
    settings: CentreSettings
    folder: Path
    client: ApiClient
    stops: list[asyncio.Event] = field(default_factory=list)
    lifecycle: Lifecycle[ServedCentre] | None = None

    @property
    def file(self) -> Path:
        return self.folder / "centre.yaml"

    def write(self, settings: CentreSettings) -> None:
        self.file.write_text(yaml.safe_dump(document_of(settings)))

    @asynccontextmanager
    async def agent(self, settings: CentreSettings | None = None, engine: Engine | None = None) -> AsyncIterator[None]:
        """Run an agent in this loop until the end of the block."""
        stop = asyncio.Event()
        self.write(settings or self.settings)
        served = load_settings(self.file)
        self.lifecycle = Lifecycle("centre", served, lambda: load_settings(self.file), stop, print)
        running = asyncio.create_task(
            serve(settings or self.settings, stop, on_reload=self.lifecycle.reload, engine=engine)
        )
        try:
            yield
        finally:
            stop.set()
            await running
            await self.lifecycle.close()

    def hang_up(self) -> None:
        """Let the agent reload its settings, as on SIGHUP."""
        assert self.lifecycle is not None
        self.lifecycle.hang_up()

    async def centre(self, holds: Callable[[Centre], bool] = lambda centre: centre.status.ready) -> Centre:
        """Return the centre once a condition holds."""
        seen: list[Centre] = []

        async def is_there() -> bool:
            with suppress(NotFoundError):
                seen.append(await self.client.of(Centre).get("c1"))
            return seen != [] and holds(seen[-1])

        await until(is_there, lambda: [centre.status for centre in seen[-1:]], limit_s=WAIT_S, poll_s=0.02)
        return seen[-1]

    async def submit(self, name: str, spec: TaskSpec, unit: str | None = "core", units: int = 1) -> Task:
        """Create a task and dispatch it."""
        await self.client.of(Task).create(Task(metadata=Metadata(name=name), spec=spec))
        await self.dispatch(name, unit, units)
        return await self.client.of(Task).get(name)

    async def dispatch(self, name: str, unit: str | None = "core", units: int = 1) -> None:
        item = Dispatch(task=name, centre="c1", unit=unit, units=units)
        await self.client.dispatch(DispatchRequest(dispatches=(item,)))

    async def until(self, name: str, *phases: TaskPhase) -> Task:
        """Return a task once it is in one of some phases."""
        task = await self.client.of(Task).get(name)

        async def is_in_phase() -> bool:
            nonlocal task
            task = await self.client.of(Task).get(name)
            return task.status.phase in phases

        await until(is_in_phase, lambda: task.status, limit_s=WAIT_S, poll_s=0.02)
        return task

    async def run(self, name: str, spec: TaskSpec, unit: str | None = "core", units: int = 1) -> Task:
        """Dispatch a task and return it once it has ended."""
        await self.submit(name, spec, unit, units)
        return await self.until(name, *TASK_ENDED)

    async def add_probe(self, text: str = PROBE) -> str:
        """Create a probe task from an expert's text; return its name."""
        probe = loads(text, KernelLibrary())
        await self.client.of(ProbeTask).create(ProbeTask(metadata=Metadata(name=probe.name), spec=files.to_spec(probe)))
        return probe.name

    async def result_of(self, task: Task) -> ProbeResult:
        assert task.status.result is not None
        return await self.client.of(ProbeResult).get(task.status.result)


def script(text: str, **more: object) -> TaskSpec:
    return TaskSpec(program=Program(kind=ProgramKind.SCRIPT, text=text), **more)  # type: ignore[arg-type]


def probe(name: str = "products", **more: object) -> TaskSpec:
    program = Program(kind=ProgramKind.PROBE, entry=name)
    return TaskSpec(program=program, is_probe=True, **more)  # type: ignore[arg-type]


def open_folder(folder: Path) -> Path:
    """Return a folder writable by jobs and tests."""
    path = folder / "open"
    path.mkdir(exist_ok=True)
    path.chmod(0o777)
    return path


def settings_for(folder: Path, served: Served, token: Path, **more: object) -> CentreSettings:
    made = CentreSettings(
        centre="c1",
        state=str(folder / "state"),
        api=f"unix:{served.socket.removeprefix('unix:')}",
        token_file=str(token),
        units=(UnitSettings(name="core"),),
        local=local_settings(cores=str(CORE), control_groups=ControlGroups.NEVER, writable=(str(open_folder(folder)),)),
        trial=TrialSettings(kernels=()),
        report_s=0.2,
        look_s=0.2,
        grace_s=0.2,
    )
    return replace(made, **more)


def play_centre(folder: Path, act: Callable[[CentreWorld], Awaitable[None]], **more: object) -> None:
    """Run a function with an API server and a centre's token."""

    async def main() -> None:
        async with serving(settings_in(folder), folder) as served:
            request = TokenRequest(name="c1", role=Role.CENTRE, subject="c1")
            token = folder / "token"
            token.write_text((await served.client.create_token(request)).token)
            token.chmod(0o600)
            try:
                async with local_timeout(WAIT_S, "a test"):
                    await act(CentreWorld(served, settings_for(folder, served, token, **more), folder, served.client))
            except TimeoutError:
                tasks = (await served.client.of(Task).list()).items
                lines = [f"{task.metadata.name}: {task.status}" for task in tasks]
                raise AssertionError("\n".join(["timed out", *lines])) from None

    try:
        asyncio.run(main())
    finally:
        kill_those_of(folder / "state")


class AgentProcess:
    """`millrace centre serve` as a process that can be killed and restarted."""

    def __init__(self, world: CentreWorld) -> None:
        world.write(world.settings)
        self._file, self._log = world.file, world.folder / "centre.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "controller.apps.cli", "centre", "serve", "--settings", str(self._file)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    @property
    def log(self) -> str:
        return self._log.read_text()
