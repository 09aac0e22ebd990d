"""An API server with centres, and a task scheduler of it, in the test's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from controller.apiserver.client import ApiClient
from controller.apiserver.resources import Decision, Metadata, Task
from controller.apiserver.resources.centre import UnitType
from controller.apiserver.resources.task import OperatorCount, Program, ProgramKind, TaskSpec
from controller.scheduling.process import serve
from controller.scheduling.settings import SchedulerSettings
from controller.scheduling.tasks.settings import TaskSettings
from dataplane.daemon import Reload
from dataplane.local.deadline import local_timeout
from dataplane.topology.values import NumberFormat
from tests.controller.apiserver.api_server import serving, settings_in
from tests.controller.scheduling.serving.tasks.centres import PlayedCentre, run_all

WAIT_S = 60.0
DGEMMS = (
    OperatorCount(
        name="products",
        operator="gemm",
        count=3000,
        sizes={"m": 256, "n": 256, "k": 256},
        number_format=NumberFormat.FP64,
        seconds=3.0,
    ),
)


def units(name: str = "cpu", count: int = 4, *operators: str) -> UnitType:
    return UnitType(name=name, count=count, operators=operators or ("dgemm", "sgemm", "fft", "stream-triad"))


@dataclass(slots=True)
class Site:
    """The service, and actions of a test on it."""

    client: ApiClient
    socket: str

    def centre(self, name: str, speed: float = 1.0, *types: UnitType, **more: object) -> PlayedCentre:
        return PlayedCentre(self.client, name, types or (units(),), speed, **more)  # type: ignore[arg-type]

    async def submit(self, name: str, **more: object) -> Task:
        """Create a pending task, by default with three thousand matrix products."""
        given = {"program": Program(kind=ProgramKind.SCRIPT, text="true"), "category": "hpc", "operators": DGEMMS}
        spec = TaskSpec(**{**given, **more})  # type: ignore[arg-type]
        return await self.client.of(Task).create(Task(metadata=Metadata(name=name), spec=spec))

    async def tasks_when(self, holds: Callable[[dict[str, Task]], bool]) -> dict[str, Task]:
        """Return all tasks once a condition holds."""
        tasks: dict[str, Task] = {}
        async for told in self.client.of(Task).follow():
            if hasattr(told, "items"):
                tasks = {task.metadata.name: task for task in told.items}
            elif told.resource is not None and told.type != "DELETE":
                tasks[told.name] = told.resource
            elif told.name:
                tasks.pop(told.name, None)
            if holds(tasks):
                return tasks
        raise AssertionError("the watch ended")

    async def ended(self, *names: str) -> dict[str, Task]:
        """Return all tasks once some have ended and have their cost."""
        return await self.tasks_when(
            lambda tasks: all(name in tasks and tasks[name].status.cost is not None for name in names)
        )

    async def decisions_about(self, task: str) -> list[Decision]:
        decisions = (await self.client.of(Decision).list(fields=f"about={task}")).items
        return sorted(decisions, key=lambda decision: decision.metadata.revision)

    @asynccontextmanager
    async def running(self, *centres: PlayedCentre) -> AsyncIterator[None]:
        """Let centres report and take tasks until the block ends."""
        tasks = await run_all(list(centres))
        try:
            yield
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @asynccontextmanager
    async def scheduling(
        self, tasks: TaskSettings | None = None, **more: object
    ) -> AsyncIterator[Reload[SchedulerSettings]]:
        """Run a scheduler until the block ends; yield what SIGHUP applies to it."""
        stop, ready, reloads = asyncio.Event(), asyncio.Event(), list[Reload[SchedulerSettings]]()
        settings = SchedulerSettings(api=self.socket, tasks=tasks or TaskSettings(), **more)  # type: ignore[arg-type]
        task = asyncio.create_task(serve(settings, stop, on_ready=lambda _: ready.set(), on_reload=reloads.append))
        await ready.wait()
        try:
            yield reloads[0]
        finally:
            stop.set()
            await task


class Play(Protocol):
    """Runs a function on a site."""

    def __call__(self, act: Callable[[Site], Awaitable[None]]) -> None: ...


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Run a function on a service over SQLite."""

    def run(act: Callable[[Site], Awaitable[None]]) -> None:
        async def main() -> None:
            async with local_timeout(WAIT_S, "a test"), serving(settings_in(tmp_path, None), tmp_path) as served:
                await act(Site(served.client, served.socket))

        asyncio.run(main())

    return run
