"""Messages between workers and the job service over one stream per worker, as described by jobs.proto.

The service sends state (`View`), not changes: a stream that breaks and comes back loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from dataplane.rpc.own_folder import default_address

SERVICE: Final = "millrace.jobs.v1.Jobs"
ATTEND: Final = f"/{SERVICE}/Attend"
ADDRESS: Final = default_address("jobs")
"""The default address of the job service, for the service and for its clients."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A worker joins, or rejoins over a new stream: `token` is the worker's own and stays the same.

    The first `workers` of the same `job` form it; fields that are None are left to the service. `number` is the job's
    once the worker has been admitted. With `boundaries`, counts are of the worker's rounds, not of all-reduces.
    `server`, a host and its UDP port, gets final sums; with port 0 it joins the job, too, and is awaited. The main
    server itself sends `is_main_server`.
    """

    job: str
    host: str
    token: str
    workers: int
    udp_port: int
    deadline_ns: int
    window: int | None = None
    capacity: int | None = None
    boundaries: bool = False
    number: int | None = None
    server: tuple[str, int] | None = None
    is_main_server: bool = False
    convergence: tuple[str, float, int] | None = None
    """Measure, bound and steps of the job's `Convergence`."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The worker is alive."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """The worker waits at a barrier, and has started `count` since the job began."""

    barrier: int
    count: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The worker has finished `count`; the next one begins with item `next_item`."""

    barrier: int
    count: int
    next_item: int


@dataclass(frozen=True, slots=True)
class Leave:
    """The worker has finished its work: it has all results before item `next_item`, and starts nothing more."""

    next_item: int


@dataclass(frozen=True, slots=True)
class Completed:
    """The worker has all results before item `next_item`, or has failed and needs none."""

    next_item: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """The job has not started for this worker: the workers present when it came, and the number expected."""

    present: tuple[str, ...]
    workers: int


@dataclass(frozen=True, slots=True)
class Admitted:
    """The worker is a member. It starts with item `first_item`, when others have finished `first_count`."""

    number: int
    aggregator: str
    window: int
    capacity: int
    epoch: int
    first_item: int
    first_count: int
    members: tuple[str, ...]
    heartbeat_ns: int
    patience_ns: int
    """Maximum time until the others continue without workers that have died."""
    root: str
    """Address that the main server queries."""
    newcomers: tuple[str, ...] = ()
    """Workers that joined together with this one, at a barrier."""
    nonce: int = field(default=0, repr=False)
    """The job's random number, carried by all its packets."""
    contributors: int = 0
    """Number of workers that results of this epoch cover."""
    main_server: str | None = None
    """Host of the main server, while it is a member of the job."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """No worker starts more than `count`, or, while it is None, anything more. It expires after `limit_ns`."""

    number: int
    count: int | None
    limit_ns: int


@dataclass(frozen=True, slots=True)
class View:
    """Current state of the job; a different number or aggregator means that it moved there at the last barrier.

    `members` may have left or joined while `contributors`, whose values the results of this epoch include, are
    unchanged.
    """

    number: int
    aggregator: str
    root: str
    epoch: int
    members: tuple[str, ...]
    barrier: Barrier | None = None
    newcomers: tuple[str, ...] = ()
    """Workers that joined at the last barrier."""
    leaving: int | None = None
    """A worker leaves as soon as all have completed everything before this item."""
    nonce: int = field(default=0, repr=False)
    contributors: int = 0
    main_server: str | None = None
    newcomers_at: int | None = None
    """Barrier at which the newcomers joined: a worker that was not held by it knows them already."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The worker is not admitted, with the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The worker has no job any more: the job has ended, or continues without it (`removed`)."""

    reason: str
    removed: bool = False


Upward: TypeAlias = Hello | Heartbeat | Arrived | Finished | Leave | Completed
Downward: TypeAlias = Waiting | Admitted | View | Refused | Ended
