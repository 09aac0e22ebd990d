"""Requests about sessions, besides their frames."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from controller.apiserver.resources.base import Count, Line, Name, Text
from dataplane.config import Strict

_Cells = Annotated[int, Meta(ge=1, le=65_535)]

Number = Annotated[str, Meta(min_length=16, max_length=64)]
"""Unguessable number of a session."""
Tail = Annotated[int, Meta(ge=0, le=1_000_000)]


class SessionKind(StrEnum):
    """Purpose of a session."""

    LOGS = "logs"
    EXEC = "exec"


class TerminalSize(Strict, frozen=True):
    """Size of a user's terminal, in characters."""

    rows: _Cells
    columns: _Cells


class SessionRequest(Strict, frozen=True):
    """Request to a node: a container's log, or a command in it.

    It names one pod and one binding of it (`uid`, `epoch`): a node with another one answers with an error.
    """

    number: Number
    kind: SessionKind
    pod: Name
    uid: Line
    epoch: Count
    container: Name
    command: Annotated[tuple[Text, ...], Meta(max_length=256)] = ()
    terminal: TerminalSize | None = None
    """If set, the command has a terminal, and its standard error is part of the output."""
    stdin: bool = False
    """Send input to the command; otherwise its standard input is empty."""
    follow: bool = False
    """Follow the log as it is written."""
    tail: Tail | None = None
    """Start with this many of the last lines."""


class ExecRequest(Strict, frozen=True):
    """A command to run in a container; without a container's name, in the only one."""

    command: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=256)]
    container: Name | None = None
    terminal: TerminalSize | None = None
    stdin: bool = False


class ExecAnswer(Strict, frozen=True):
    """The number with which the requester reads a command's output and writes its input."""

    number: Number
