"""The state of everything under a supervisor, for `millrace status`."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec


class State(StrEnum):
    """Lifecycle state of a daemon."""

    STARTING = "starting"
    """Its process runs and has not printed its ready line."""
    READY = "ready"
    WAITING = "waiting"
    """It has exited and is waiting to be restarted."""
    STOPPED = "stopped"


class Health(msgspec.Struct, frozen=True):
    """Result of a daemon's health check."""

    ok: bool
    text: str


class Incident(msgspec.Struct, frozen=True):
    """An end of a daemon, and its return."""

    at: datetime
    """Time of its end, UTC."""
    how: str
    by_request: bool = False
    """By `millrace restart` or a reload, so not by itself."""
    ready_after_s: float | None = None
    """Time until it was ready again; None if it was not before it ended once more, or is not yet."""


_METRICS: Final = re.compile(r"metrics at (?P<url>http://[^\s,]+)")


def metrics_address(ready_line: str | None) -> str | None:
    """Return the metrics URL in a daemon's ready line, None if there is none."""
    match = _METRICS.search(ready_line or "")
    return None if match is None else match["url"]


class DaemonState(msgspec.Struct, frozen=True):
    """A daemon under a supervisor."""

    name: str
    state: State
    pid: int | None
    since_s: float
    """Time in this state."""
    restarts: int
    """Number of times that it ended and was started again in the last hour."""
    last_error: str | None
    """Last line before it exited by itself, in the last hour."""
    addresses: dict[str, str]
    health: Health
    incidents: tuple[Incident, ...] = ()
    """The newest of those restarts, the oldest first."""

    @property
    def is_green(self) -> bool:
        """Return whether it is healthy."""
        return self.state is State.READY and self.health.ok


class UpState(msgspec.Struct, frozen=True):
    """All daemons under a supervisor."""

    topology: str
    fabric: str
    """virtual, kernel, or joined."""
    folder: str
    pid: int
    daemons: tuple[DaemonState, ...]

    @property
    def is_green(self) -> bool:
        """Return whether every daemon is healthy."""
        return all(daemon.is_green for daemon in self.daemons)
