"""Centres with agents in the test: over the real API they report, take dispatched tasks and complete them.

The test sets the times of a probe's kernels and its success; nothing is run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from controller.apiserver.client import ApiClient, Place
from controller.apiserver.registry.completions import Completion, CompletionRequest, NewResult
from controller.apiserver.registry.dispatches import Pick
from controller.apiserver.resources import Centre, Metadata, ProbeTask, Task
from controller.apiserver.resources.centre import CentreStatus, UnitType
from controller.apiserver.resources.probe_result import ProbeResultStatus, ProbeRun
from controller.apiserver.resources.task import TaskPhase
from controller.apiserver.tokens import TokenRequest
from controller.common.errors import StaleError
from dataplane.rpc.access import Role

Runs = Callable[[Task, ProbeTask | None], Completion | None]
"""Function that returns the outcome of a dispatched task; None means that it keeps running."""


@dataclass(slots=True)
class PlayedCentre:
    """A centre and its tasks; `speed` divides the seconds of a kernel execution."""

    client: ApiClient
    name: str
    units: tuple[UnitType, ...]
    speed: float = 1.0
    hosts: tuple[str, ...] = ()
    runs: Runs | None = None
    given: list[Task] = field(default_factory=list)
    picked: dict[str, int] = field(default_factory=dict)
    is_answering: bool = True

    async def report(self, *, ready: bool = True, **more: object) -> Centre:
        """Report like an agent; create the centre the first time."""
        centres = self.client.of(Centre)
        status = CentreStatus(
            ready=ready,
            engine="local",
            hosts=self.hosts,
            units=self.units,
            **more,  # type: ignore[arg-type]
        )
        try:
            made = await centres.create(Centre(metadata=Metadata(name=self.name)))
        except StaleError:
            made = await centres.get(self.name)
        return await centres.replace_status(replace(made, metadata=replace(made.metadata, revision=0), status=status))

    async def run(self) -> None:
        """Take tasks until cancelled."""
        taken: set[tuple[str, int]] = set()
        async for told in self.client.of(Task).follow(fields=f"centre={self.name}"):
            tasks = told.items if hasattr(told, "items") else () if told.resource is None else (told.resource,)
            for task in (each.at(self.name) for each in tasks):
                key = (task.metadata.uid, task.status.epoch)
                if task.status.phase is TaskPhase.DISPATCHED and key not in taken and self.is_answering:
                    taken.add(key)
                    self.given.append(task)
                    await self._run(task)

    async def _run(self, task: Task) -> None:
        probe = None
        if task.spec.is_probe and not task.spec.asks:
            probe = await self.client.of(ProbeTask).get(task.spec.program.entry)
        if task.spec.leaves_count:
            task = await self._pick(task)
        await self._note_running(task)
        completion = (self.runs or self.completion)(task, probe)
        if completion is not None:
            completion = replace(completion, centre=self.name if task.status.members else None)
            await self.client.complete(CompletionRequest(completions=(completion,)))

    async def _note_running(self, task: Task) -> None:
        running = replace(task, status=replace(task.status, phase=TaskPhase.RUNNING))
        if not task.status.members:
            await self.client.of(Task).replace_status(running)
            return
        # A part is reported with the token of its centre; others write the same task's status meanwhile.
        request = TokenRequest(name=self.name, role=Role.CENTRE, subject=self.name)
        token = (await self.client.create_token(request)).token
        async with ApiClient(Place(self.client.place.address, token)) as client:
            await client.of(Task).replace_status(replace(running, metadata=replace(running.metadata, revision=0)))

    def ends(self, task: Task, phase: TaskPhase, reason: str = "") -> CompletionRequest:
        """Return the request by which the centre ends a task, or its part of it."""
        return CompletionRequest(completions=(self.completion_of(task, phase, reason),))

    def completion_of(self, task: Task, phase: TaskPhase, reason: str = "") -> Completion:
        return Completion(
            task=task.metadata.name,
            epoch=task.status.epoch,
            phase=phase,
            reasons=(reason,) if reason else (),
            centre=self.name if task.status.members else None,
        )

    async def _pick(self, task: Task) -> Task:
        """Take all free units of the first type, as an agent may, and report their number."""
        name, unit = task.metadata.name, self.units[0]
        self.picked[name] = (await self.client.of(Centre).get(self.name)).free_of(unit)
        await self.client.pick(Pick(task=name, epoch=task.status.epoch, unit=unit.name, units=self.picked[name]))
        return await self.client.of(Task).get(name)

    def completion(self, task: Task, probe: ProbeTask | None) -> Completion:
        """Return the completion of a successful task."""
        name, epoch = task.metadata.name, task.status.epoch
        if task.spec.asks:
            return Completion(
                task=name, epoch=epoch, phase=TaskPhase.SUCCEEDED, could_run=tuple(unit.name for unit in self.units)
            )
        if probe is None:
            return Completion(task=name, epoch=epoch, phase=TaskPhase.SUCCEEDED, exit_code=0)
        counts = task.spec.units or (task.status.units or 1,)
        runs = tuple(self.measured(probe, units, task.spec.repetitions) for units in counts)
        result = NewResult(status=ProbeResultStatus(runs=runs))
        return Completion(task=name, epoch=epoch, phase=TaskPhase.SUCCEEDED, exit_code=0, result=result)

    def measured(self, probe: ProbeTask, units: int, repetitions: int, *, serial: float = 0.0) -> ProbeRun:
        """Return a run in which an execution of each kernel took a millisecond of one unit; `serial` never scales."""
        factor = 0.001 * (serial + (1 - serial) / units) / self.speed
        jitter = tuple(1 + 0.001 * (number % 7) for number in range(repetitions))
        times = {use.name: tuple(factor * ratio for ratio in jitter) for use in probe.spec.uses}
        total = sum(factor * use.repetitions for use in probe.spec.uses)
        return ProbeRun(
            units=units,
            run_times_s=tuple(total * ratio for ratio in jitter),
            accuracies=(1e-15,) * repetitions,
            kernels_s=times,
            kernel_accuracies=dict.fromkeys(times, 1e-15),
        )


async def run_all(centres: list[PlayedCentre]) -> list[asyncio.Task[None]]:
    """Let centres report and take tasks; the caller cancels the returned asyncio tasks."""
    for centre in centres:
        await centre.report()
    return [asyncio.create_task(centre.run()) for centre in centres]
