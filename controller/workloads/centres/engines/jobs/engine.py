"""What all engines have in common that have another system run the jobs: what is known of them, and what is asked.

A job is known by its name at the system, from its submission, or from its record after a restart, until it is
forgotten. What the system says of it is asked anew each time; what it says of others, whatever they are called and
whichever labels they bear, is nothing to us.
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

Told = TypeVar("Told")
Kind = TypeVar("Kind")

POLL_S: Final = 0.1


class ClusterEngine(ABC, Generic[Told]):
    """An Engine (controller.workloads.centres.engines.base) over another system, which tells a `Told` of each job.

    `records` is a folder of the agent's own, which no job can enter; `poll_s` is between two looks for changes.
    With `trusts_folders` a job that the system has forgotten ended as its folder says.
    """

    name: ClassVar[str]
    """As CentreStatus.engine says it."""

    def __init__(self, *, centre: str, records: Path, poll_s: float, trusts_folders: bool = False) -> None:
        self.notes: tuple[str, ...] = ()
        """Which nodes do not work, and why, as they were looked at last."""
        self._centre, self._poll_s, self._trusts_folders = centre, poll_s, trusts_folders
        self._folders = JobFolders(self.name, records)
        self._known: dict[str, JobFolder] = {}

    @abstractmethod
    async def resources(self) -> tuple[UnitType, ...]:
        """Return the unit types with what works of them now."""

    @abstractmethod
    async def _told(self) -> Mapping[str, Told]:
        """Return what the system tells of the jobs that are known, by their names there."""

    async def _told_of(self, ids: Collection[str]) -> Mapping[str, Told]:
        """Return what it tells of these jobs; more of them are fine."""
        return await self._told() if ids else {}

    @abstractmethod
    async def _state(self, job: str, told: Told | None, /) -> JobState:
        """Return a job as its record says and the system, which does not know it where it has told nothing."""

    @abstractmethod
    def _sign(self, told: Told, /) -> object:
        """Return what of a job changes when there may be something new of it."""

    async def changes(self) -> AsyncIterator[None]:
        """Yield when nodes or jobs are not as they were, or the system stops or begins to answer."""
        last: object = None
        while True:
            now = await self._picture()
            if last is not None and now != last:
                yield
            last = now
            await asyncio.sleep(self._poll_s)

    async def states(self, ids: Collection[str]) -> Mapping[str, JobState]:
        """Return these jobs as they are."""
        if not set(ids) <= self._known.keys():
            self._read_records()
        told = await self._told_of(ids)
        return {job: await self._state(job, told.get(job)) for job in ids}

    async def jobs(self) -> tuple[JobState, ...]:
        """Return all that were submitted, and not forgotten."""
        self._read_records()
        # One that is submitted while the system is asked is not in its answer, and not lost; one that is forgotten
        # meanwhile is nobody's any more.
        before = frozenset(self._known)
        told = await self._told()
        return tuple([await self._state(job, told.get(job)) for job in sorted(before) if job in self._known])

    async def usage(self, job: str) -> Usage | None:
        """Return what it has used, once it has ended; None where nobody counts."""
        folder = self._known.get(job)
        return None if folder is None else folder.usage

    def _read_records(self) -> None:
        """Learn what the records tell of this centre's jobs."""
        for folder in self._folders.all():
            if folder.id is not None and folder.mark.centre == self._centre:
                self._known[folder.id] = folder

    def _bind(self, folder: JobFolder, job: str, uid: str | None = None) -> str:
        """Take note, for good, of a job's name at the system, and what else it is known by there; return the name."""
        self._known[job] = folder.bound(job, uid)
        return job

    def _forget(self, job: str) -> None:
        """Know a job no more."""
        folder = self._known.pop(job, None)
        if folder is not None:
            folder.forget()

    def _forgotten(self, folder: JobFolder, system: str) -> JobState:
        """Return a job that the system does not know, or has forgotten."""
        told = folder.told
        if told is None:
            return folder.state(JobPhase.LOST, f"{system} does not know it (any more), and it has left no record")
        if self._trusts_folders:
            return folder.settled(told)
        # Any job of the same user may have written there that this one has succeeded.
        why = f"{system} has forgotten it, and its folder is not believed (unsafe_trust_folders)"
        return folder.state(JobPhase.LOST, why)

    def _unit(self, order: JobOrder, units: Mapping[str, Kind]) -> Kind:
        """Return the unit type of an order; raise OrderError where there is none."""
        unit = units.get(order.unit)
        if unit is None:
            raise OrderError(self.name, f"task {order.mark.task}: there is no unit type {order.unit!r}")
        return unit

    def _check_room(self, order: JobOrder, most: int, has: str = "the largest node has") -> None:
        """Raise OrderError for an order of none, or of more units than there ever are at once."""
        if not 1 <= order.units <= most:
            raise OrderError(self.name, f"task {order.mark.task}: {order.units} units of {order.unit}: {has} {most}")

    async def _until(self, is_so: Callable[[], Awaitable[bool]], within_s: float, problem: str) -> None:
        """Ask again and again until it is so; raise EngineError of the problem where that takes too long."""
        try:
            async with local_timeout(within_s, f"{self.name}: {problem}"):
                while not await is_so():
                    await asyncio.sleep(POLL_S)
        except TimeoutError as error:
            raise EngineError(self.name, problem) from error

    async def _picture(self) -> object:
        """Return what `changes` compares."""
        try:
            return await self.resources(), {job: self._sign(told) for job, told in (await self._told()).items()}
        except EngineError as error:
            return error.problem
