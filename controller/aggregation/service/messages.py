"""What people ask the job service, and how it answers: MessagePack with a version in front."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

from controller.errors import JobError
from dataplane.rpc.envelope import disclose, enclose

VERSION: Final = 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EndQuery:
    """A job is to end; its workers are told the reason."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True)
class RemoveQuery:
    """A worker is to be taken out of a job; it is told the reason."""

    job: str
    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A worker: waiting, working, leaving, joining or disconnected, and how long ago it was heard."""

    host: str
    state: str
    heard_ns: int


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job; of one that has ended, the reason and how long ago. `workers` are those who are wanted or were."""

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


@dataclass(frozen=True, slots=True)
class JobList:
    """Jobs, those that have ended last."""

    jobs: tuple[JobRow, ...]


def pack(body: object) -> bytes:
    """Return a value as a message."""
    return enclose(VERSION, body)


def unpack(message: bytes, schema: type[T]) -> T:
    """Return the value of a message; raise JobError for another version or layout."""
    return disclose(message, VERSION, schema, JobError)
