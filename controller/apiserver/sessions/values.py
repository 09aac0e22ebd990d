"""Requests about sessions, besides their frames."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, TypeAlias

from msgspec import Meta

from controller.apiserver.resources.base import Count, Line, Name, Text
from controller.apiserver.resources.nic import NicModeRequest
from dataplane.config import Strict
from dataplane.rpc.access import Role

_Cells = Annotated[int, Meta(ge=1, le=65_535)]

Number = Annotated[str, Meta(min_length=16, max_length=64)]
"""Unguessable number of a session."""
Tail = Annotated[int, Meta(ge=0, le=1_000_000)]


class AnswererKind(StrEnum):
    """Kind of the agent that answers sessions."""

    NODE = "node"
    CENTRE = "centre"


@dataclass(frozen=True, slots=True)
class Answerer:
    """The node or centre that answers a session."""

    kind: AnswererKind
    name: str

    @property
    def role(self) -> Role:
        """Role of its token."""
        return Role(self.kind.value)

    def __str__(self) -> str:
        """Return its name in messages."""
        return f"{self.kind.value} {self.name}"


class SessionKind(StrEnum):
    """Purpose of a session with a pod."""

    LOGS = "logs"
    EXEC = "exec"


class TerminalSize(Strict, frozen=True):
    """Size of a user's terminal, in characters."""

    rows: _Cells
    columns: _Cells


class SessionRequest(Strict, frozen=True, kw_only=True):
    """Request to an answerer, for one pod or task and one binding or dispatch of it (`uid`, `epoch`)."""

    number: Number
    uid: Line
    epoch: Count
    follow: bool = False
    """Follow the log as it is written."""
    tail: Tail | None = None
    """Start with this many of the last lines."""

    @property
    def subject(self) -> str:
        """Pod or task, for messages."""
        raise NotImplementedError


class PodSessionRequest(SessionRequest, frozen=True, kw_only=True):
    """Request to a node: a container's log, or a command in it; a node with another binding answers with an error."""

    kind: SessionKind
    pod: Name
    container: Name
    command: Annotated[tuple[Text, ...], Meta(max_length=256)] = ()
    terminal: TerminalSize | None = None
    """If set, the command has a terminal, and its standard error is part of the output."""
    stdin: bool = False
    """Send input to the command; otherwise its standard input is empty."""

    @property
    def subject(self) -> str:
        """Return the pod, for messages."""
        return f"pod {self.pod}"


class NicSessionRequest(SessionRequest, frozen=True, kw_only=True):
    """Request to a node, by its own `uid`: another mode of a polled queue."""

    nic: NicModeRequest

    @property
    def subject(self) -> str:
        """Return the queue, for messages."""
        return f"polled queue {self.nic.where}"


NodeSessionRequest: TypeAlias = PodSessionRequest | NicSessionRequest


class TaskSessionRequest(SessionRequest, frozen=True, kw_only=True):
    """Request to a centre: the output of a task's current attempt; `tail` counts lines of output and errors each."""

    task: Name
    is_probe: bool = False
    errors_only: bool = False
    """Leave out the standard output."""

    @property
    def subject(self) -> str:
        """Return the task, for messages."""
        return f"task {self.task}"


class ExecRequest(Strict, frozen=True):
    """A command to run in a container; without a container's name, in the only one."""

    command: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=256)]
    container: Name | None = None
    terminal: TerminalSize | None = None
    stdin: bool = False


class ExecAnswer(Strict, frozen=True):
    """The number with which the requester reads a command's output and writes its input."""

    number: Number
