"""Common base of engines that have another system run the jobs: known jobs and requests.

A job is known by its name at the system, from its submission, or from its record after a restart, until it is
forgotten. Its state is requested each time; other jobs there are ignored, whatever their names and labels.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import ClassVar, Final, Generic, TypeVar

from controller.apiserver.resources.centre import UnitType
from controller.workloads.centres.engines.base import JobOrder, JobPhase, JobState, Usage
from controller.workloads.centres.engines.jobs.folders import JobFolder, JobFolders
from controller.workloads.centres.errors import EngineError, OrderError
from dataplane.local.deadline import local_timeout

Report = TypeVar("Report")
Kind = TypeVar("Kind")

POLL_S: Final = 0.1


class ClusterEngine(ABC, Generic[Report]):
    """An Engine (controller.workloads.centres.engines.base) over another system, which reports a `Report` for each job.

    `records` is a private folder of the agent, which no job can enter; `poll_s` is the interval between polls for
    changes. With `trusts_folders` a job that the system has forgotten ended as its folder says.
    """

    name: ClassVar[str]
    """Name for CentreStatus.engine."""

    def __init__(self, *, centre: str, records: Path, poll_s: float, trusts_folders: bool = False) -> None:
        self.notes: tuple[str, ...] = ()
        """Nodes that did not work at the last poll, and why."""
        self._centre, self._poll_s, self._trusts_folders = centre, poll_s, trusts_folders
        self._folders = JobFolders(self.name, records)
        self._known: dict[str, JobFolder] = {}

    @abstractmethod
    async def resources(self) -> tuple[UnitType, ...]:
        """Return the unit types with their current working units."""

    @abstractmethod
    async def _reports(self) -> Mapping[str, Report]:
        """Return the system's view of the known jobs, by their names there."""

    async def _reports_of(self, ids: Collection[str]) -> Mapping[str, Report]:
        """Return the system's view of these jobs; it may include more."""
        return await self._reports() if ids else {}

    @abstractmethod
    async def _state(self, job: str, told: Report | None, /) -> JobState:
        """Return a job's state from its record and the system's view, None if the system does not know it."""

    @abstractmethod
    def _fingerprint(self, told: Report, /) -> object:
        """Return the part of a job whose change may mean news."""

    async def changes(self) -> AsyncIterator[None]:
        """Yield when nodes or jobs have changed, or the system stops or starts answering."""
        last: object = None
        while True:
            now = await self._picture()
            if last is not None and now != last:
                yield
            last = now
            await asyncio.sleep(self._poll_s)

    async def states(self, ids: Collection[str]) -> Mapping[str, JobState]:
        """Return the states of these jobs."""
        if not set(ids) <= self._known.keys():
            self._read_records()
        told = await self._reports_of(ids)
        return {job: await self._state(job, told.get(job)) for job in ids}

    async def jobs(self) -> tuple[JobState, ...]:
        """Return all submitted jobs that are not forgotten."""
        self._read_records()
        # A job submitted while the system is queried is not in its answer, and not lost; one forgotten meanwhile
        # no longer counts.
        before = frozenset(self._known)
        told = await self._reports()
        return tuple([await self._state(job, told.get(job)) for job in sorted(before) if job in self._known])

    async def usage(self, job: str) -> Usage | None:
        """Return the resources that a job has used, once it has ended; None if not counted."""
        folder = self._known.get(job)
        return None if folder is None else folder.usage

    def _read_records(self) -> None:
        """Load the records of this centre's jobs."""
        for folder in self._folders.all():
            if folder.id is not None and folder.mark.centre == self._centre:
                self._known[folder.id] = folder

    def _bind(self, folder: JobFolder, job: str, uid: str | None = None) -> str:
        """Record a job's name at the system, and its other key there, durably; return the name."""
        self._known[job] = folder.bound(job, uid)
        return job

    def _forget(self, job: str) -> None:
        folder = self._known.pop(job, None)
        if folder is not None:
            folder.forget()

    def _forgotten(self, folder: JobFolder, system: str) -> JobState:
        """Return the state of a job that the system does not know, or has forgotten."""
        told = folder.told
        if told is None:
            return folder.state(JobPhase.LOST, f"{system} does not know it, and it left no record of its end")
        if self._trusts_folders:
            return folder.settled(told)
        # Any job of the same user may have written there that this one has succeeded.
        why = f"{system} has forgotten it, and its folder is not trusted (unsafe_trust_folders)"
        return folder.state(JobPhase.LOST, why)

    def _unit(self, order: JobOrder, units: Mapping[str, Kind]) -> Kind:
        """Return the unit type of an order; raise OrderError if there is none."""
        unit = units.get(order.unit)
        if unit is None:
            raise OrderError(self.name, f"task {order.mark.task}: no unit type {order.unit!r}")
        return unit

    def _check_room(self, order: JobOrder, most: int, has: str = "the largest node has") -> None:
        """Raise OrderError for an order of no units, or of more than can ever be free at once."""
        if not 1 <= order.units <= most:
            raise OrderError(self.name, f"task {order.mark.task}: {order.units} units of {order.unit}: {has} {most}")

    async def _until(self, is_so: Callable[[], Awaitable[bool]], within_s: float, problem: str) -> None:
        """Poll until the condition holds; raise EngineError with the problem when that takes too long."""
        try:
            async with local_timeout(within_s, f"{self.name}: {problem}"):
                while not await is_so():
                    await asyncio.sleep(POLL_S)
        except TimeoutError as error:
            raise EngineError(self.name, problem) from error

    async def _picture(self) -> object:
        """Return the state that `changes` compares."""
        try:
            return await self.resources(), {
                job: self._fingerprint(told) for job, told in (await self._reports()).items()
            }
        except EngineError as error:
            return error.problem
