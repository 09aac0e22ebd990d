"""Conversion of jobs as users see them to messages and back; users' requests are checked here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.allreduce.jobs import jobs_pb2 as pb
from dataplane.rpc.messages import checked_name, checked_text
from dataplane.rpc.values import Mirror
from dataplane.topology.values import LinkKey


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A worker: waiting, working, leaving, joining or disconnected, and how long ago it was heard.

    `switch` is the one that it contributes to, once it has a place.
    """

    host: str
    state: str
    heard_ns: int
    switch: str | None = None


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job; for an ended one, the reason and how long ago. `workers` are the present or former members.

    `switches` begin with the tree's root; `links` are those by which contributions reach it.
    """

    name: str
    number: int | None
    state: str
    workers: int
    members: tuple[MemberRow, ...]
    epoch: int | None
    window: int
    capacity: int
    switches: tuple[str, ...]
    reason: str
    ended_ns: int | None
    links: tuple[LinkKey, ...] = ()


JOB: Final = Mirror(JobRow, pb.Job)


def check_end(request: pb.EndJobRequest) -> None:
    """Raise MessageError for an invalid request."""
    checked_name(request.job, "job")
    checked_text(request.reason, "reason")


def check_removal(request: pb.RemoveWorkerRequest) -> None:
    """Raise MessageError for an invalid request."""
    checked_name(request.job, "job")
    checked_name(request.host, "host")
    checked_text(request.reason, "reason")
