"""JSON answers of Slurm's commands: the fields in use.

Source: `squeue --json` and `sinfo --json` of Slurm 22.05 (the data parser v0.0.38), slurm.h for the states.
"""

from __future__ import annotations

import json
from typing import Final, TypeVar

import msgspec

from controller.workloads.centres.engines.base import JobPhase
from controller.workloads.centres.errors import EngineError
from dataplane.malformed import MALFORMED

_WORKING: Final = frozenset({"idle", "mixed", "allocated"})
_CLOSED: Final = frozenset(
    {
        "DRAIN",
        "FAIL",
        "INVALID_REG",
        "MAINTENANCE",
        "NOT_RESPONDING",
        "PLANNED",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "REBOOT_ISSUED",
        "RESERVED",
    }
)
"""Flags of nodes that take no work now."""

_PHASES: Final = {
    "PENDING": JobPhase.QUEUED,
    "CONFIGURING": JobPhase.QUEUED,
    "RUNNING": JobPhase.RUNNING,
    "COMPLETING": JobPhase.RUNNING,
    "STAGE_OUT": JobPhase.RUNNING,
    "SUSPENDED": JobPhase.RUNNING,
    "COMPLETED": JobPhase.SUCCEEDED,
    "NODE_FAIL": JobPhase.LOST,
    "BOOT_FAIL": JobPhase.LOST,
}
"""All others have failed."""


class Node(msgspec.Struct, frozen=True):
    """A node; memory in MiB, as Slurm counts it."""

    name: str
    state: str
    cpus: int
    idle_cpus: int
    real_memory: int
    alloc_memory: int
    partitions: tuple[str, ...] = ()
    state_flags: tuple[str, ...] = ()
    reason: str = ""
    features: str = ""
    gres: str = ""
    gres_used: str = ""

    @property
    def works(self) -> bool:
        """True if it takes work now, or would if it had room."""
        return self.state in _WORKING and not _CLOSED.intersection(self.state_flags)

    @property
    def why_not(self) -> str:
        """Reason why it does not work, in the words of Slurm and its administrator."""
        words = " ".join((self.state, *(flag.lower() for flag in self.state_flags)))
        return f"is {words}: {' '.join(self.reason.split())}" if self.reason else f"is {words}"


class QueuedJob(msgspec.Struct, frozen=True):
    """A job that Slurm knows, including for a while after its end (MinJobAge)."""

    job_id: int
    job_state: str
    name: str = ""
    comment: str = ""
    exit_code: int = 0
    """As in wait(2)."""
    state_reason: str = ""
    state_description: str = ""

    @property
    def phase(self) -> JobPhase:
        """Phase of its life."""
        return _PHASES.get(self.job_state, JobPhase.FAILED)

    @property
    def code(self) -> int:
        """Its exit code, 128 + N for one that signal N killed."""
        number = self.exit_code & 0x7F
        return 128 + number if number else self.exit_code >> 8 & 0xFF

    @property
    def why(self) -> str:
        """Reason why it waits or has failed, in Slurm's words."""
        words = (self.job_state.lower(), self.state_description or self.state_reason)
        return ": ".join(" ".join(word.split()) for word in words if word and word != "None")

    @property
    def token(self) -> str | None:
        """The token in its comment; None without one."""
        try:
            return msgspec.json.decode(self.comment, type=Label).token or None
        except MALFORMED:
            return None


class Label(msgspec.Struct, frozen=True):
    """A job's comment: for people, its owner and resources; for the agent, the token that it was given.

    Anybody may queue a job with any comment: only the token, secret until the job was queued, identifies ours.
    """

    labels: dict[str, str]
    unit: str
    units: int
    token: str = ""

    @property
    def text(self) -> str:
        """The comment's text, in characters that every part of Slurm accepts."""
        return json.dumps({"labels": self.labels, "unit": self.unit, "units": self.units, "token": self.token})


class _Error(msgspec.Struct, frozen=True):
    error: str = ""
    errno: int = 0


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    errors: tuple[_Error, ...] = ()


class _Nodes(_Answer, frozen=True):
    nodes: tuple[Node, ...]


class _Jobs(_Answer, frozen=True):
    jobs: tuple[QueuedJob, ...]


def nodes_in(answer: bytes) -> tuple[Node, ...]:
    """Return the nodes in the answer of `sinfo --json`."""
    return _decoded(answer, _Nodes, "sinfo").nodes


def jobs_in(answer: bytes) -> tuple[QueuedJob, ...]:
    """Return the jobs in the answer of `squeue --json`."""
    return _decoded(answer, _Jobs, "squeue").jobs


A = TypeVar("A", bound=_Answer)


def _decoded(answer: bytes, kind: type[A], command: str) -> A:
    """Return an answer as a value; names of others' jobs may be in any encoding."""
    try:
        decoded = msgspec.json.decode(answer.decode("utf-8", "replace"), type=kind)
    except MALFORMED as error:
        raise EngineError("slurm", f"{command} --json: invalid answer: {error}") from error
    if decoded.errors:
        # With --json the commands exit with 0 and an empty list if slurmctld does not answer them.
        problems = "; ".join(" ".join(each.error.split()) or f"error {each.errno}" for each in decoded.errors)
        raise EngineError("slurm", f"{command} --json: {problems}")
    return decoded
