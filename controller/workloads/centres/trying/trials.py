"""Trials: jobs that run each probe kernel once on a unit type, to find out which of them really work there."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.apiserver.resources.centre import UnitType
from controller.probing import files
from controller.probing.errors import ProbeError
from controller.probing.running.report import Outcome
from controller.probing.running.results import MAX_BYTES, decode
from controller.probing.values import Implementation, KernelUse, Library, ProbeKernel, ProbeTask
from controller.workloads.centres.engines.base import JOB_ENDED, Engine, JobMark, JobOrder, JobPhase, JobState
from controller.workloads.centres.engines.jobs.places import read_file
from controller.workloads.centres.errors import CentreError
from controller.workloads.centres.folder import CentreFolder
from controller.workloads.centres.programs import cores_of, python_of, python_path
from controller.workloads.centres.settings import CentreSettings
from dataplane.blas_threads import VARIABLES
from dataplane.topology.values import DeviceKind

_POLL_S: Final = 0.05
_NAME: Final = "trial"


@dataclass(frozen=True, slots=True)
class Tried:
    """The kernels with correct results, sorted, and why others failed, one line each.

    `untried` are those that a job did not come to before it was ended, for example by its time limit.
    """

    operators: tuple[str, ...]
    notes: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()


class Trials:
    """Runs trials at an engine, one at a time."""

    def __init__(self, settings: CentreSettings, folder: CentreFolder) -> None:
        self._settings, self._folder = settings, folder
        self.names = frozenset({_NAME})

    async def clear(self, engine: Engine) -> None:
        """End trials that an earlier agent has begun."""
        for job in await engine.jobs():
            if job.mark.task == _NAME:
                await engine.cancel(job.id, 0.0)
                await engine.forget(job.id)

    async def operators_of(self, engine: Engine, unit: UnitType, kernels: Sequence[ProbeKernel]) -> Tried | None:
        """Return the kernels that run on one unit of a type; None if none was free in time."""
        uses = {kernel.identifier: use for kernel in kernels if (use := _use_of(kernel, unit)) is not None}
        if not uses:
            return Tried(())
        operators, notes = list[str](), list[str]()
        while uses:
            if await self._is_busy(engine, unit):
                return None
            tried = await self._run(engine, unit, uses)
            if tried is None:
                return None
            operators += tried.operators
            notes += tried.notes
            uses = {name: uses[name] for name in tried.untried}
        return Tried(tuple(sorted(operators)), tuple(sorted(notes)))

    async def _run(self, engine: Engine, unit: UnitType, uses: Mapping[str, KernelUse]) -> Tried | None:
        """Try kernels in one job; return None if it did not begin, or end, in time."""
        job = await engine.submit(self._order(unit, uses))
        try:
            state = await self._ended(engine, job)
            if state is None:
                return None
            folder = state.folder or self._folder.jobs / state.mark.job_name
            return await asyncio.to_thread(_tried, folder, unit.name, uses, state)
        finally:
            await engine.cancel(job, 0.0)
            await engine.forget(job)

    async def _is_busy(self, engine: Engine, unit: UnitType) -> bool:
        """Return whether our own jobs hold, or wait for, all units of a type: a trial must disturb nobody."""
        held = sum(job.units for job in await engine.jobs() if job.unit == unit.name and job.phase not in JOB_ENDED)
        return held >= unit.for_tasks

    async def _ended(self, engine: Engine, job: str) -> JobState | None:
        """Return a job once it has ended; None if it did not begin, or end, in time."""
        due_s = time.monotonic() + self._settings.trial.limit_s + self._settings.grace_s + self._settings.wait_s
        while time.monotonic() < due_s:
            state = (await engine.states((job,))).get(job)
            if state is None or state.phase is JobPhase.LOST:
                return None
            if state.phase in JOB_ENDED:
                return state
            await asyncio.sleep(_POLL_S)
        return None

    def _order(self, unit: UnitType, uses: Mapping[str, KernelUse]) -> JobOrder:
        trial, cores = self._settings.trial, cores_of(unit, 1)
        mark = JobMark(self._settings.centre, _NAME, secrets.token_hex(8), 0, is_probe=True)
        content = {
            f"{name}.json": files.dumps(ProbeTask(name, "trial", (use,)), as_json=True).encode()
            for name, use in uses.items()
        }
        environment = dict.fromkeys(VARIABLES, str(cores)) | self._settings.environment | python_path(self._settings)
        words = ("-m", "controller.workloads.centres.trying.program", str(cores), f"{trial.kernel_s:g}", *sorted(uses))
        return JobOrder(
            mark=mark,
            argv=(python_of(self._settings), *words),
            folder=self._folder.jobs / mark.job_name,
            unit=unit.name,
            units=1,
            files=content,
            environment=environment,
            limit_s=trial.limit_s,
            grace_s=0.0,
        )


def _use_of(kernel: ProbeKernel, unit: UnitType) -> KernelUse | None:
    """Return a kernel's use on a unit of a type, on its device if it has one; None without code for it."""
    implementation = _implementation(kernel, {kind for need in unit.unit.devices for kind in need.kinds})
    if implementation is None or implementation.library is Library.CONTAINER:
        return None
    return KernelUse(
        "use",
        kernel.identifier,
        kernel.version,
        kernel.sizes,
        1,
        1,
        implementation,
        kernel.tolerance,
        splits=kernel.splits,
    )


def _implementation(kernel: ProbeKernel, devices: set[DeviceKind]) -> Implementation | None:
    for kind in (*sorted(devices), DeviceKind.CPU):
        implementation = kernel.implementation(kind)
        if implementation is not None:
            return implementation
    return None


def _tried(folder: Path, unit: str, uses: Mapping[str, KernelUse], state: JobState) -> Tried:
    operators, notes = [], []
    untried: tuple[str, ...] = ()
    if state.phase is JobPhase.FAILED:
        # A slow machine does not come to all kernels within the limit. The first one that is missing was running at the
        # end: it gets another chance, but not at the head of a job.
        untried = tuple(name for name in sorted(uses) if not (folder / f"{name}.out").exists())
        untried = untried[len(untried) == len(uses) :]
    for name in sorted(uses.keys() - set(untried)):
        try:
            result = decode(read_file(folder, f"{name}.out", MAX_BYTES), source=name)
        except (CentreError, ProbeError) as error:
            why = state.reason or str(error)
            notes.append(f"unit type {unit}: kernel {name} does not run: {why}"[:1000])
            continue
        if result.outcome is Outcome.SUCCEEDED:
            operators.append(name)
        else:
            notes.append(
                f"unit type {unit}: kernel {name} does not run: {result.outcome.value}: {result.problem}"[:1000]
            )
    return Tried(tuple(operators), tuple(notes), untried)
