"""What is said of a session, beside its frames."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from controller.apiserver.resources.base import Count, Line, Name, Text
from dataplane.config import Strict

_Cells = Annotated[int, Meta(ge=1, le=65_535)]

Number = Annotated[str, Meta(min_length=16, max_length=64)]
"""Of a session: nobody can guess it."""
Tail = Annotated[int, Meta(ge=0, le=1_000_000)]


class SessionKind(StrEnum):
    """What a session is for."""

    LOGS = "logs"
    EXEC = "exec"


class TerminalSize(Strict, frozen=True):
    """Of a user's terminal, in characters."""

    rows: _Cells
    columns: _Cells


class SessionRequest(Strict, frozen=True):
    """What a node is asked for: the log of a container, or a command in it.

    It is of one pod and one binding of it (`uid`, `epoch`): a node that runs another one answers with an error.
    """

    number: Number
    kind: SessionKind
    pod: Name
    uid: Line
    epoch: Count
    container: Name
    command: Annotated[tuple[Text, ...], Meta(max_length=256)] = ()
    terminal: TerminalSize | None = None
    """With one the command has a terminal, and its standard error is in its output."""
    stdin: bool = False
    """Whether there will be input; without, the command's standard input is empty."""
    follow: bool = False
    """Go on with the log as it is written."""
    tail: Tail | None = None
    """Begin with the last so many lines."""


class ExecRequest(Strict, frozen=True):
    """A command that is to run in a container; without a container's name, in the only one."""

    command: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=256)]
    container: Name | None = None
    terminal: TerminalSize | None = None
    stdin: bool = False


class ExecAnswer(Strict, frozen=True):
    """Under which number a command's output is read, and its input written, by whoever asked for it."""

    number: Number
