"""Engine that has Ray run the jobs.

A job is the entry point of a Ray job: one process on one node, for which Ray reserves the resources of all its units.
It may use Ray itself: it gets RAY_ADDRESS.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from msgspec import structs

from controller.apiserver.resources.centre import UnitType
from controller.workloads.centres.engines.base import JOB_ENDED, UNIT_LABEL, UNITS_LABEL, JobOrder, JobPhase, JobState
from controller.workloads.centres.engines.jobs.engine import ClusterEngine
from controller.workloads.centres.engines.jobs.folders import JobFolder, keeper_command, unknown_job
from controller.workloads.centres.engines.jobs.keeper import CANCELLED
from controller.workloads.centres.engines.jobs.keeping import Ended
from controller.workloads.centres.engines.ray.client import RayClient, RayJob
from controller.workloads.centres.engines.ray.settings import RaySettings, RayUnit
from controller.workloads.centres.engines.ray.units import divided, largest, unit_types

_PHASES: Final = {"PENDING": JobPhase.QUEUED, "RUNNING": JobPhase.RUNNING, "SUCCEEDED": JobPhase.SUCCEEDED}
"""All others have failed."""
_RAYS_GRACE_S: Final = "86400"
"""Ray would kill after three seconds: the job's keeper does, after its own grace."""
_MARGIN_S: Final = 5.0


class RayEngine(ClusterEngine[RayJob]):
    """Jobs of a centre on a cluster; `records` is a private folder of the agent."""

    name = "ray"

    def __init__(self, settings: RaySettings, *, centre: str, records: Path) -> None:
        trusts = settings.unsafe_trust_folders
        super().__init__(centre=centre, records=records, poll_s=settings.poll_s, trusts_folders=trusts)
        self._settings, self._client = settings, RayClient(settings)

    async def start(self) -> None:
        """Check that the cluster answers; raise EngineError in one line if it does not."""
        await self._client.open()
        await self._client.nodes()
        self._read_records()

    async def close(self) -> None:
        """Close connections; jobs run on."""
        await self._client.close()

    async def resources(self) -> tuple[UnitType, ...]:
        """Return the unit types with their current working units."""
        nodes, used, jobs = await self._client.nodes(), await self._client.used(), await self._told()
        self.notes = tuple(f"node {node.address} is {node.state.lower()}" for node in nodes if not node.works)
        own: dict[str, int] = {}
        for name, job in jobs.items():
            folder = self._known.get(name)
            if job.status == "RUNNING" and folder is not None:
                own[folder.unit] = own.get(folder.unit, 0) + folder.units
        return unit_types(divided(self._settings, nodes), nodes, used, own)

    async def submit(self, order: JobOrder) -> str:
        """Queue a job; the same mark twice is one job. Nobody can have taken its name before: it ends in a token."""
        before = self._folders.find(order.mark)
        if before is not None:
            name = before.id or _name_of(before)  # the answer to the request that queued it may have been lost
            if before.id is not None or await self._client.job(name) is not None:
                return self._bind(before, name)
        nodes = await self._client.nodes()
        unit = self._unit(order, divided(self._settings, nodes))
        self._check_room(order, largest(unit, nodes))
        folder = self._folders.prepare(order, passes="RAY_")
        name = _name_of(folder)
        await self._client.submit(self._request(order, unit, name))
        return self._bind(folder, name)

    async def cancel(self, job: str, grace_s: float) -> None:
        """End the job, and wait until its keeper has killed it after the grace."""
        folder = self._known.get(job)
        if folder is None:
            return  # not ours, whatever has that name
        folder.say_grace(grace_s)
        await self._client.stop(job)

        async def has_ended() -> bool:
            return (await self.states((job,)))[job].phase in JOB_ENDED

        problem = f"job {job}: it does not end {_MARGIN_S:g} s after its grace"
        await self._until(has_ended, grace_s + _MARGIN_S, problem)

    async def forget(self, job: str) -> None:
        """Drop its record, and Ray's, which learns of its end a little later than its folder."""

        async def has_noticed() -> bool:
            return (found := await self._client.job(job)) is None or found.status not in ("PENDING", "RUNNING")

        await self._until(has_noticed, self._settings.deadline_s, f"job {job}: Ray does not notice its end")
        await self._client.delete(job)
        self._forget(job)

    async def _told(self) -> Mapping[str, RayJob]:
        jobs = {job.submission_id: job for job in await self._client.jobs()}
        return {name: job for name in self._known if (job := jobs.get(name)) is not None}

    async def _told_of(self, ids: Collection[str]) -> Mapping[str, RayJob]:
        return {job: found for job in ids if (found := await self._client.job(job)) is not None}

    def _sign(self, told: RayJob) -> object:
        return told.status

    async def _state(self, name: str, job: RayJob | None) -> JobState:
        """Return a job's state from its record and Ray's answer."""
        folder = self._known.get(name)
        if folder is None:
            return unknown_job(name, self._centre)
        if (ended := folder.ended_state) is not None:
            return ended
        if job is None:
            return self._forgotten(folder, "Ray")
        phase = _PHASES.get(job.status, JobPhase.FAILED)
        if phase not in JOB_ENDED:
            return folder.state(phase)
        why = (job.message or "").split("\n")[0][:400]
        if job.status == "FAILED" and job.driver_exit_code is None:  # its node, or its Ray supervisor, is gone
            return folder.state(JobPhase.LOST, why)
        return folder.settled(_ended(job, folder.told, why))

    def _request(self, order: JobOrder, unit: RayUnit, name: str) -> dict[str, object]:
        """Return the request to Ray."""
        command = keeper_command(str(self._settings.python), order.folder)
        extra = {UNIT_LABEL: order.unit, UNITS_LABEL: str(order.units)}
        return {
            "entrypoint": f"exec {shlex.join(command)}",
            "submission_id": name,
            "metadata": order.mark.labels | extra,  # for people
            "runtime_env": {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": _RAYS_GRACE_S}},
            "entrypoint_num_cpus": unit.cpus * order.units,
            "entrypoint_num_gpus": unit.gpus * order.units,
            "entrypoint_memory": (unit.memory_mib << 20) * order.units,
            "entrypoint_resources": {name: amount * order.units for name, amount in unit.resources.items()},
        }


def _name_of(folder: JobFolder) -> str:
    return f"{folder.mark.job_name}-{folder.token}"


def _ended(job: RayJob, told: Ended | None, why: str) -> Ended:
    """Return how a job has ended: by Ray's answer, and by its folder unless that contradicts Ray."""
    code = job.driver_exit_code
    if code is not None:
        code = 128 - code if code < 0 else code
    elif job.status == "SUCCEEDED":
        code = 0
    if told is None or (code is not None and told.exit_code != code):
        reason = "" if job.status == "SUCCEEDED" else CANCELLED if job.status == "STOPPED" else why
        return Ended(code, reason)
    return told if job.status != "STOPPED" or told.reason else structs.replace(told, reason=CANCELLED)
