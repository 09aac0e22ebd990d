"""The engine that has Ray run the jobs.

A job is the entry point of a Ray job: one process on one node, for which Ray sets aside what all its units have. It may
use Ray itself: RAY_ADDRESS is passed on to it.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Final

from controller.api.resources.centre import UnitType
from controller.centres.engines.base import JOB_ENDED, JobMark, JobOrder, JobPhase, JobState, Usage
from controller.centres.engines.jobs.folders import OWN, JobFolder, JobFolders, unknown_job
from controller.centres.engines.ray.client import RayClient, RayJob
from controller.centres.engines.ray.settings import RaySettings, RayUnit
from controller.centres.engines.ray.units import divided, largest, unit_types
from controller.centres.errors import EngineError, OrderError

_ENGINE: Final = "ray"
_UNIT, _UNITS, _FOLDER = "millrace.unit", "millrace.units", "millrace.folder"
_PHASES: Final = {"PENDING": JobPhase.QUEUED, "RUNNING": JobPhase.RUNNING, "SUCCEEDED": JobPhase.SUCCEEDED}
"""All others have failed."""
_RAYS_GRACE_S: Final = "86400"
"""Ray would kill after three seconds: what watches over the job does, after its own grace."""
_MARGIN_S: Final = 5.0
_POLL_S: Final = 0.1


class RayEngine:
    """Jobs of a centre on a cluster; `root` is the folder below which the agent has them, shared with the nodes."""

    def __init__(self, settings: RaySettings, *, centre: str, root: Path) -> None:
        self._settings, self._centre = settings, centre
        self._client = RayClient(settings)
        self._folders = JobFolders(_ENGINE, root)
        self._known: dict[str, JobFolder] = {}
        self._notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As CentreStatus.engine says it."""
        return _ENGINE

    @property
    def notes(self) -> tuple[str, ...]:
        """Which nodes do not work, and why, as they were looked at last."""
        return self._notes

    async def start(self) -> None:
        """Look whether the cluster answers; raise EngineError in one line if it does not."""
        await self._client.open()
        await self._client.nodes()
        self._read_folders()

    async def close(self) -> None:
        """Close connections; jobs run on."""
        await self._client.close()

    async def resources(self) -> tuple[UnitType, ...]:
        """Return the unit types with what works of them now."""
        nodes, used, jobs = await self._client.nodes(), await self._client.used(), await self._own()
        self._notes = tuple(f"node {node.address} is {node.state.lower()}" for node in nodes if not node.works)
        own: dict[str, int] = {}
        for job in jobs.values():
            state = self._state(job.submission_id or "", job)
            if job.status == "RUNNING" and state.unit is not None:
                own[state.unit] = own.get(state.unit, 0) + state.units
        return unit_types(divided(self._settings, nodes), nodes, used, own)

    async def changes(self) -> AsyncIterator[None]:
        """Yield when nodes or jobs are not as they were, or the cluster stops or begins to answer."""
        last: object = None
        while True:
            now = await self._picture()
            if last is not None and now != last:
                yield
            last = now
            await asyncio.sleep(self._settings.poll_s)

    async def submit(self, order: JobOrder) -> str:
        """Queue a job; the same mark twice is one job, as its name comes from the mark."""
        name = order.mark.job_name
        if (found := await self._client.job(name)) is not None:
            return self._adopt(name, found)
        nodes = await self._client.nodes()
        unit = divided(self._settings, nodes).get(order.unit)
        if unit is None:
            raise OrderError(_ENGINE, f"task {order.mark.task}: there is no unit type {order.unit!r}")
        most = largest(unit, nodes)
        if not 1 <= order.units <= most:
            said = f"{order.units} units of {order.unit}: the largest node has {most}"
            raise OrderError(_ENGINE, f"task {order.mark.task}: {said}")
        folder = self._folders.prepare(order, passes="RAY_")
        await self._client.submit(self._request(order, unit))
        self._known[name] = folder.bound(name)
        return name

    async def states(self, ids: Collection[str]) -> Mapping[str, JobState]:
        """Return these jobs as they are."""
        if not set(ids) <= self._known.keys():
            self._read_folders()
        return {each: self._state(each, await self._client.job(each)) for each in ids}

    async def jobs(self) -> tuple[JobState, ...]:
        """Return all of this centre's, those that Ray knows and those that have left a folder."""
        self._read_folders()
        known = frozenset(self._known)  # One that is submitted while Ray is asked is not in its answer.
        own = await self._own()
        names = own.keys() | known
        return tuple(self._state(name, own.get(name)) for name in sorted(names))

    async def cancel(self, job: str, grace_s: float) -> None:
        """Ask, and wait until what watches over it has killed it after the grace."""
        folder = self._known.get(job)
        if folder is not None and folder.path.is_dir():
            folder.say_grace(grace_s)
        await self._client.stop(job)
        try:
            async with asyncio.timeout(grace_s + _MARGIN_S):
                while (await self.states((job,)))[job].phase not in JOB_ENDED:
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as error:
            raise EngineError(_ENGINE, f"job {job}: it does not end {_MARGIN_S:g} s after its grace") from error

    async def forget(self, job: str) -> None:
        """Drop its record, and Ray's, which comes to know of its end a little later than its folder."""
        try:
            async with asyncio.timeout(self._settings.deadline_s):
                while (found := await self._client.job(job)) is not None and found.status in ("PENDING", "RUNNING"):
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as error:
            raise EngineError(_ENGINE, f"job {job}: Ray does not notice its end") from error
        await self._client.delete(job)
        folder = self._known.pop(job, None)
        if folder is not None:
            folder.forget()

    async def usage(self, job: str) -> Usage | None:
        """Return what it has used, once it has ended: Ray does not count what jobs use."""
        folder = self._known.get(job)
        return None if folder is None else folder.usage

    def _read_folders(self) -> None:
        for folder in self._folders.all():
            if folder.id is not None and folder.mark.centre == self._centre:
                self._known[folder.id] = folder

    def _adopt(self, name: str, job: RayJob) -> str:
        """Take a job that is there; raise EngineError if it is somebody else's."""
        folder = _folder_of(name, job)
        if folder is None or folder.mark.centre != self._centre:
            raise EngineError(_ENGINE, f"job {name} is there, and is not of centre {self._centre}")
        self._known[name] = folder.bound(name)
        return name

    async def _own(self) -> dict[str, RayJob]:
        """Return this centre's jobs by name."""
        found = {}
        for job in await self._client.jobs():
            folder = _folder_of(job.submission_id or "", job)
            if folder is not None and folder.mark.centre == self._centre:
                found[job.submission_id or ""] = job
        return found

    def _state(self, name: str, job: RayJob | None) -> JobState:
        """Return a job as its folder and Ray say."""
        folder = self._known.get(name) or (None if job is None else _folder_of(name, job))
        if folder is None:
            return unknown_job(name, self._centre)
        if (ended := folder.ended_state) is not None:
            return ended
        if job is None:
            return folder.state(JobPhase.LOST, "Ray does not know it (any more), and it has left no record")
        phase = _PHASES.get(job.status, JobPhase.FAILED)
        code = job.driver_exit_code
        if phase is not JobPhase.FAILED:
            return folder.state(phase, "", code)
        if job.status == "STOPPED":
            return folder.state(phase, "cancelled", code)
        why = (job.message or "").split("\n")[0][:400]
        if code is None:  # its node, or what Ray has beside it, is gone
            return folder.state(JobPhase.LOST, why)
        return folder.state(phase, why, 128 - code if code < 0 else code)

    def _request(self, order: JobOrder, unit: RayUnit) -> dict[str, object]:
        """Return what Ray is asked for."""
        program = order.folder / OWN / "process.py"
        command = (str(self._settings.python), "-I", "-S", str(program), str(order.folder))
        extra = {_UNIT: order.unit, _UNITS: str(order.units), _FOLDER: str(order.folder)}
        return {
            "entrypoint": f"exec {shlex.join(command)}",
            "submission_id": order.mark.job_name,
            "metadata": order.mark.labels | extra,
            "runtime_env": {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": _RAYS_GRACE_S}},
            "entrypoint_num_cpus": unit.cpus * order.units,
            "entrypoint_num_gpus": unit.gpus * order.units,
            "entrypoint_memory": (unit.memory_mib << 20) * order.units,
            "entrypoint_resources": {name: amount * order.units for name, amount in unit.resources.items()},
        }

    async def _picture(self) -> object:
        """Return what `changes` compares."""
        try:
            return await self.resources(), {name: job.status for name, job in (await self._own()).items()}
        except EngineError as error:
            return error.problem


def _folder_of(name: str, job: RayJob) -> JobFolder | None:
    """Return the folder that a job's metadata tell of; None for somebody else's."""
    told = job.metadata or {}
    mark, folder, units = JobMark.of_labels(told), told.get(_FOLDER), told.get(_UNITS, "")
    if mark is None or folder is None or not units.isdigit():
        return None
    return JobFolder(Path(folder), mark, told.get(_UNIT, ""), int(units), name)
