"""Engine that has Ray run the jobs.

A job is the entry point of a Ray job: one process on one node, for which Ray reserves the resources of all its units.
It may use Ray itself: it gets RAY_ADDRESS.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import structs

from controller.apiserver.resources.base import MAX_NAME
from controller.apiserver.resources.centre import UnitType
from controller.apiserver.resources.hardware import DeviceNeed, Request
from controller.workloads.centres.engines.base import JOB_ENDED, UNIT_LABEL, UNITS_LABEL, JobOrder, JobPhase, JobState
from controller.workloads.centres.engines.jobs.engine import ClusterEngine
from controller.workloads.centres.engines.jobs.folders import JobFolder, keeper_command, unknown_job
from controller.workloads.centres.engines.jobs.keeper import CANCELLED
from controller.workloads.centres.engines.jobs.keeping import Ended
from controller.workloads.centres.engines.ray.client import Node, RayClient, RayJob
from controller.workloads.centres.engines.ray.settings import RaySettings, RayUnit
from dataplane.topology.values import DeviceKind

_OWN: Final = re.compile(r"CPU|GPU|memory|object_store_memory|node:.*|accelerator_type:.*")
"""Resources that Ray counts by default."""
_TINY: Final = 1e-6
"""Ray's unit of account is a ten-thousandth."""


def divided(settings: RaySettings, nodes: Sequence[Node]) -> dict[str, RayUnit]:
    """Return the unit types by name: those of the settings, or CPUs and one for each custom resource."""
    if settings.units:
        return dict(settings.units)
    units = {"cpu": RayUnit()}
    if any(node.resources_total.get("GPU") for node in nodes):
        units["gpu"] = RayUnit(cpus=_cpus_per("GPU", nodes), gpus=1.0)
    for resource in sorted({name for node in nodes for name in node.resources_total if not _OWN.fullmatch(name)}):
        name = re.sub(r"[^a-z0-9]+", "-", resource.lower()).strip("-")[:MAX_NAME] or "unit"
        units.setdefault(name, RayUnit(cpus=_cpus_per(resource, nodes), resources={resource: 1.0}))
    return units


def unit_types(
    units: Mapping[str, RayUnit],
    nodes: Sequence[Node],
    used: Mapping[str, Mapping[str, float]],
    own: Mapping[str, int],
) -> tuple[UnitType, ...]:
    """Return the number of units of each type; `own` are those that our own jobs run on, by type."""
    types = []
    for name, unit in units.items():
        count = sum(room(unit, node) for node in nodes)
        free = sum(room(unit, node, used.get(node.node_id, {})) for node in nodes) + own.get(name, 0)
        types.append(UnitType(name=name, count=count, free=min(count, free), unit=_request(unit)))
    return tuple(types)


def room(unit: RayUnit, node: Node, used: Mapping[str, float] | None = None) -> int:
    """Return how many units of a type a node has, without those in use; 0 if it is not working."""
    if not node.works:
        return 0
    has = node.resources_total
    fits = [
        (has.get(name, 0.0) - (used or {}).get(_as_key(name), 0.0) + _TINY) / amount
        for name, amount in unit.needs.items()
    ]
    return max(0, math.floor(min(fits)))


def largest(unit: RayUnit, nodes: Iterable[Node]) -> int:
    """Return the most units of a type that one node has."""
    return max((room(unit, node) for node in nodes), default=0)


def _cpus_per(resource: str, nodes: Iterable[Node]) -> float:
    """Return the least whole number of CPUs per one of a resource, at least one hundredth of a CPU."""
    shares = [
        node.resources_total.get("CPU", 0.0) / node.resources_total[resource]
        for node in nodes
        if node.resources_total.get(resource)
    ]
    least = min(shares, default=1.0)
    return float(math.floor(least)) if least >= 1 else max(0.01, math.floor(least * 100) / 100)


def _as_key(name: str) -> str:
    """Return a name as the dashboard spells it in keys."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _request(unit: RayUnit) -> Request:
    gpus = math.ceil(unit.gpus)
    devices = (DeviceNeed(kind=DeviceKind.GPU, count=min(gpus, 256)),) if gpus else ()
    return Request(cpu_milli=round(unit.cpus * 1000), memory_bytes=unit.memory_mib << 20, devices=devices)


_PHASES: Final = {"PENDING": JobPhase.QUEUED, "RUNNING": JobPhase.RUNNING, "SUCCEEDED": JobPhase.SUCCEEDED}
"""All others have failed."""
_RAYS_GRACE_S: Final = "86400"
"""Ray would kill after three seconds; the job's keeper does so after its own grace."""
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
        nodes, used, jobs = await self._client.nodes(), await self._client.used(), await self._reports()
        self.notes = tuple(f"node {node.address} is {node.state.lower()}" for node in nodes if not node.works)
        own: dict[str, int] = {}
        for name, job in jobs.items():
            folder = self._known.get(name)
            if job.status == "RUNNING" and folder is not None:
                own[folder.unit] = own.get(folder.unit, 0) + folder.units
        return unit_types(divided(self._settings, nodes), nodes, used, own)

    async def submit(self, order: JobOrder) -> str:
        """Queue a job; the same mark twice is one job. Its name ends in a token, so nobody can have taken it before."""
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
            return  # the job of that name is not ours
        folder.say_grace(grace_s)
        await self._client.stop(job)

        async def has_ended() -> bool:
            return (await self.states((job,)))[job].phase in JOB_ENDED

        problem = f"job {job}: still running {_MARGIN_S:g} s after its grace"
        await self._until(has_ended, grace_s + _MARGIN_S, problem)

    async def forget(self, job: str) -> None:
        """Drop its record, and Ray's, which learns of its end a little later than its folder."""

        async def has_noticed() -> bool:
            return (reported := await self._client.job(job)) is None or reported.status not in ("PENDING", "RUNNING")

        await self._until(has_noticed, self._settings.deadline_s, f"job {job}: Ray has not noticed its end")
        await self._client.delete(job)
        self._forget(job)

    async def _reports(self) -> Mapping[str, RayJob]:
        jobs = {job.submission_id: job for job in await self._client.jobs()}
        return {name: job for name in self._known if (job := jobs.get(name)) is not None}

    async def _reports_of(self, ids: Collection[str]) -> Mapping[str, RayJob]:
        return {job: reported for job in ids if (reported := await self._client.job(job)) is not None}

    def _fingerprint(self, told: RayJob) -> object:
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
