"""Settings of the job service."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from controller.common.errors import ControllerError
from controller.network.aggregation.cells import cells_for
from controller.network.tables.aggregation import CELLS, MAX_JOBS
from dataplane.allreduce.formats import MOST_WORKERS
from dataplane.allreduce.jobs.messages import ADDRESS
from dataplane.config import Settings
from dataplane.rpc.limits import Limits

PositiveNs = Annotated[int, msgspec.Meta(ge=1)]
Workers = Annotated[int, msgspec.Meta(ge=1, le=MOST_WORKERS)]


_RETURN_NS: Final = 10_000_000_000


class JobSettings(Settings, frozen=True):
    """Settings of the job service: the rendezvous of workers, and how long they may be silent."""

    listen: str = ADDRESS
    """Address to listen on: unix:PATH or HOST:PORT."""
    lease_ns: Annotated[int, msgspec.Meta(ge=100_000_000)] = 5_000_000_000
    """A worker that is silent for this long is removed; workers renew their lease four times in it."""
    reconnect_ns: PositiveNs = 1_000_000_000
    """A worker whose connection has ended is removed when it has not returned for this long."""
    return_ns: PositiveNs | None = None
    """A worker that has not returned this long after a restart of the controller is removed; default: the lease and
    10 s."""
    database: str | None = None
    """SQLite file that keeps jobs across restarts of the controller; ":memory:" keeps none. Default: beside the UNIX
    socket, or jobs-PORT.db in $STATE_DIRECTORY or the user's own folder. A pair keeps them with its lease."""
    hold_ns: PositiveNs = 30_000_000_000
    """The longest time that a barrier holds workers so that another can join."""
    window: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 256
    """Most items in flight, for jobs that do not set it; a power of two. Each takes 2 cells of a switch."""
    capacity: Workers | None = None
    """Most workers, for jobs that do not set it; default: as many as it begins with. More is less exact."""
    most_jobs: Annotated[int, msgspec.Meta(ge=1, le=MAX_JOBS)] = MAX_JOBS
    """Jobs at a time; a worker that would begin one more is refused."""
    most_workers: Workers = MOST_WORKERS
    """Workers of a job, and its capacity, at most, whatever it asks for."""
    most_cells: Annotated[int, msgspec.Meta(ge=2, le=CELLS)] = CELLS // 4
    """Cells of a switch that one job may take, two for each item of its window; a quarter of all."""
    limits: Limits = Limits(request_bytes=64 << 10, calls=8192, streams=4096, connections=4096)
    """Limits for all workers and users together; each worker has its own connection and stream."""
    kept: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 100
    """Number of ended jobs remembered, with the reason."""

    @property
    def effective_return_ns(self) -> int:
        """Time in which workers must return after a restart of the controller."""
        return self.lease_ns + _RETURN_NS if self.return_ns is None else self.return_ns

    def check(self) -> None:
        """Raise ControllerError for a window that no job can have."""
        if self.window & (self.window - 1):
            raise ControllerError(f"jobs.window: {self.window} is not a power of two")
        if cells_for(self.window) > self.most_cells:
            cells = f"takes {cells_for(self.window)} cells, most_cells is {self.most_cells}"
            raise ControllerError(f"jobs.window: {self.window} {cells}")
