"""State of jobs and workers in the job service, and the actions it requests; the rules are in `rendezvous`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from controller.network.intents import Worker
from dataplane.allreduce.jobs.messages import Downward, Ended, Hello
from dataplane.clock import NS_PER_S

_MOST_REMOVED: Final = 256


@dataclass(frozen=True, slots=True)
class InstalledJob:
    """A job as the switches hold it.

    `aggregators` has the address that each member of the epoch sends to, `root` is the last one's.
    """

    number: int
    epoch: int
    window: int
    capacity: int
    aggregators: Mapping[str, str]
    root: str
    nonce: int = 0


@dataclass(frozen=True, slots=True)
class Notify:
    """Send a message to a worker; with `last` its stream ends."""

    token: str
    message: Downward
    last: bool = False


@dataclass(frozen=True, slots=True)
class Create:
    """Make switches add up for these workers; as in all these requests, `key` comes back with the outcome."""

    key: int
    workers: tuple[Worker, ...]
    window: int
    capacity: int
    server: Worker | None = None


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a worker from the switches."""

    key: int
    number: int
    host: str


@dataclass(frozen=True, slots=True)
class Join:
    """Add a worker to the switches; `token` is the worker's."""

    key: int
    number: int
    worker: Worker
    token: str


@dataclass(frozen=True, slots=True)
class Move:
    """Move a job to other switches."""

    key: int
    number: int


@dataclass(frozen=True, slots=True)
class End:
    """Remove a job from the switches."""

    key: int
    number: int


Change: TypeAlias = Create | Remove | Join | Move | End
"""Requests to the job reconciler; one at a time for each job."""
Action: TypeAlias = Notify | Change


class Phase(StrEnum):
    """Phase of a job."""

    GATHERING = "gathering"
    CREATING = "creating"
    RUNNING = "running"
    HELD = "held"
    ENDED = "ended"


@dataclass(slots=True)
class WorkerState:
    """A present or recently lost worker; `hello` is its introduction."""

    hello: Hello
    heard_ns: int
    admit_until_ns: int
    """Time at which a worker that has not been admitted is refused."""
    disconnected_ns: int | None = None
    """Time since when its connection has been gone."""
    away_until_ns: int | None = None
    """Time until which it may return after a restart of the controller; None if it has, or is of this one."""
    count: int | None = None
    """Number of items that it reports as begun, at the present barrier; afterwards, as finished."""
    next_item: int | None = None
    """Item at which it continues, once it has finished the items that all must finish."""
    start: tuple[int, int] | None = None
    """First item and count of a worker that came at a barrier."""
    newcomers: tuple[str, ...] = ()
    """Workers that joined at that barrier."""
    leaves_before: int | None = None
    """The item before which it leaves, once no other member needs it for earlier ones."""
    results_before: int | None = None
    """Item up to which, exclusively, it reports having all results."""

    @property
    def worker(self) -> Worker:
        """Destination of its results."""
        return Worker(self.hello.host, self.hello.udp_port)

    def silence_at(self, now_ns: int) -> str:
        """Return why it counts as dead."""
        silent_s = (now_ns - self.heard_ns) / NS_PER_S
        if self.away_until_ns is not None:
            return f"it has not returned within {silent_s:.1f} s of the controller's restart"
        gone = ", and its connection is closed" if self.disconnected_ns is not None else ""
        return f"it has been silent for {silent_s:.1f} s{gone}"

    def excuse(self, waited_ns: int, now_ns: int) -> None:
        """Extend its lease by a time in which it could not be heard."""
        self.heard_ns = min(self.heard_ns + waited_ns, now_ns)
        if self.disconnected_ns is not None:
            self.disconnected_ns = min(self.disconnected_ns + waited_ns, now_ns)
        if self.away_until_ns is not None:
            self.away_until_ns += waited_ns


@dataclass(slots=True)
class Barrier:
    """Workers begin no items beyond `count`; while it is unknown, none at all."""

    number: int
    deadline_ns: int
    count: int | None = None
    item: int = 0
    """Item at which all continue, once a worker has been admitted."""
    joined: list[str] = field(default_factory=list)
    """Workers that have joined meanwhile, to be admitted when the barrier ends."""


@dataclass(slots=True)
class JobState:
    """A job of the service's."""

    key: int
    hello: Hello
    """Request of its first worker."""
    window: int
    capacity: int
    size: int
    """Most members so far, less those that left on purpose; at least half of these must remain."""
    phase: Phase = Phase.GATHERING
    installed: InstalledJob | None = None
    members: dict[str, WorkerState] = field(default_factory=dict)
    joiners: dict[str, WorkerState] = field(default_factory=dict)
    main_server: WorkerState | None = None
    """The main server, while it is connected or may come back."""
    server: Worker | None = None
    """Address of the main server in the switches, once they hold the job."""
    removals: deque[str] = field(default_factory=deque)
    """Workers to be removed from the switches."""
    pending_change: Change | None = None
    barrier: Barrier | None = None
    newcomers: tuple[str, ...] = ()
    """Workers that joined at the last barrier."""
    newcomers_at: int | None = None
    """Number of that barrier."""
    move_reason: str | None = None
    """Reason to move it to other switches."""
    reason: str = ""
    """Reason for its end."""
    ended_ns: int = 0
    removed: dict[str, Ended] = field(default_factory=dict)
    """Last messages to removed workers, by token: one that was disconnected asks for it again."""

    def remember_removed(self, token: str, farewell: Ended) -> None:
        """Keep a removed worker's last message; of too many the oldest are forgotten."""
        self.removed[token] = farewell
        while len(self.removed) > _MOST_REMOVED:
            del self.removed[next(iter(self.removed))]

    @property
    def item_name(self) -> str:
        """Return the name of its items: rounds if workers state boundaries, else all-reduces."""
        return "round" if self.hello.boundaries else "all-reduce"

    @property
    def remaining(self) -> dict[str, WorkerState]:
        """Return the members that have not announced that they leave."""
        return {host: worker for host, worker in self.members.items() if worker.leaves_before is None}

    @property
    def leaving(self) -> dict[str, int]:
        """Return the members that have, and the items that they leave before."""
        return {host: worker.leaves_before for host, worker in self.members.items() if worker.leaves_before is not None}

    def is_joining(self, worker: WorkerState) -> bool:
        """Return whether the switches are being asked to take a worker in."""
        return isinstance(self.pending_change, Join) and self.pending_change.token == worker.hello.token

    @property
    def name(self) -> str:
        """The name that its workers meet by."""
        return self.hello.job
