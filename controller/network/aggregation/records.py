"""Jobs as switches are to hold them, kept in the job storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from controller.common.errors import JobError
from controller.network.aggregation.jobs import RunningJob
from controller.network.aggregation.storage import JobStorage, freeze, thaw

_PLACED: Final = "placed/"
_NEWEST: Final = "newest"


@dataclass(frozen=True, slots=True)
class StoredPlaces:
    """Jobs by number, and the newest number given out; None if there never was one."""

    jobs: Mapping[int, RunningJob]
    newest: int | None


class PlaceRecords:
    """Writes each change of a job before any switch gets it."""

    def __init__(self, storage: JobStorage) -> None:
        self._storage = storage

    def read(self, entries: Mapping[str, bytes]) -> StoredPlaces:
        """Return what the storage's entries say; raise JobError naming the invalid one."""
        name, jobs = self._storage.name, dict[int, RunningJob]()
        for key, value in entries.items():
            if key.startswith(_PLACED):
                job = thaw(name, key, value, RunningJob)
                if key != f"{_PLACED}{job.number}":
                    raise JobError(f"{name}: {key} is job {job.number}: move it away")
                jobs[job.number] = job
        newest = None if _NEWEST not in entries else thaw(name, _NEWEST, entries[_NEWEST], int)
        return StoredPlaces(jobs, newest)

    @staticmethod
    def keys(number: int) -> tuple[str, ...]:
        """Return the storage's keys of a job."""
        return (f"{_PLACED}{number}",)

    def keep(self, job: RunningJob, newest: int) -> None:
        """Keep a job as it is now to be, and the newest number given out; raise LostLeaseError."""
        self._storage.save({f"{_PLACED}{job.number}": freeze(job), _NEWEST: freeze(newest)})

    def drop(self, number: int) -> None:
        """Forget a job; raise LostLeaseError."""
        self._storage.save({f"{_PLACED}{number}": None})
