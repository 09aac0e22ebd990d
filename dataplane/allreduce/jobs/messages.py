"""What workers and the job service send each other over one stream a worker, as jobs.proto describes it.

The service sends what is (`View`), not what has changed: a stream that breaks and comes back loses nothing.
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
    """A worker comes, or comes back over a new stream: `token` is the worker's own and stays the same.

    `workers` of the same `job` make it; what is None is left to the service. `number` is the job's once the worker has
    been admitted. With `boundaries` counts are of the worker's rounds, not of all-reduces. `server`, a host and its UDP
    port, gets final sums.
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


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The worker lives."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """The worker waits at a barrier, and has begun `count` since the job began."""

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
    """The worker has done its work: it has all results before item `next_item`, and begins nothing more."""

    next_item: int


@dataclass(frozen=True, slots=True)
class Completed:
    """The worker has all results before item `next_item`, or has failed and needs none."""

    next_item: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """The job has not begun for this worker: who was there when it came, of how many."""

    present: tuple[str, ...]
    workers: int


@dataclass(frozen=True, slots=True)
class Admitted:
    """The worker is a member. It begins with item `first_item`, when others have finished `first_count`."""

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
    """How long it may take until others that have died are done without."""
    root: str
    """Where the main server asks."""
    newcomers: tuple[str, ...] = ()
    """Who has come in together with this worker, at a barrier."""
    nonce: int = field(default=0, repr=False)
    """The job's random number, which all its packets have."""
    contributors: int = 0
    """Of how many workers results of this epoch are."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """No worker begins more than `count`; while it is None, more than has been begun. Over by itself in `limit_ns`."""

    number: int
    count: int | None
    limit_ns: int


@dataclass(frozen=True, slots=True)
class View:
    """The job as it is now; under another number, or with another aggregator, it moved there at the last barrier.

    `members` may have gone, or come, when `contributors`, those whose values results of this epoch are of, have not.
    """

    number: int
    aggregator: str
    root: str
    epoch: int
    members: tuple[str, ...]
    barrier: Barrier | None = None
    newcomers: tuple[str, ...] = ()
    """Who came in at the last barrier."""
    leaving: int | None = None
    """A worker leaves as soon as all have completed what is before this item."""
    nonce: int = field(default=0, repr=False)
    contributors: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """The worker is not admitted, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """There is no job for this worker any more: it has ended, or continues without the worker (`removed`)."""

    reason: str
    removed: bool = False


Upward: TypeAlias = Hello | Heartbeat | Arrived | Finished | Leave | Completed
Downward: TypeAlias = Waiting | Admitted | View | Refused | Ended
