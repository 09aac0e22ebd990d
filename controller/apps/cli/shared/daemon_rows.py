"""A daemon's load, and its role in a pair, as rows of its status; its overloads as separate lines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import typer

from controller.common.standby.values import StandbyStatus
from dataplane.clock import NS_PER_S
from dataplane.load.values import DaemonLoad

_BUSIEST = 3
"""Number of threads shown, the busiest first."""


def load_rows(load: DaemonLoad) -> Iterator[tuple[str, object]]:
    """Yield table rows: a name, and its value over the last second."""
    yield "cores used", f"{load.cores:.2f}"
    yield "waited for a core", f"{load.waiting:.0%}"
    yield "event loop late by s", f"{load.loop_lag_ns / NS_PER_S:.3f}"
    for thread in load.threads[:_BUSIEST]:
        yield f"thread {thread.name}", f"{thread.share:.2f}"
    for queue in load.queues:
        room = "" if queue.limit is None else f" of {queue.limit}"
        age = "" if queue.oldest_ns is None else f", the oldest {queue.oldest_ns / NS_PER_S:.3f} s"
        yield f"queue {queue.name}", f"{queue.length}{room}{age}"
    for drop in load.drops:
        yield f"dropped a second: {drop.reason}", f"{drop.per_s:.0f}"


def warn_overloads(load: DaemonLoad) -> None:
    """Write each overload to stderr, with its remedy."""
    for overload in load.overloads:
        typer.echo(str(overload), err=True)


def role_rows(standby: StandbyStatus | None) -> Iterator[tuple[str, object]]:
    """Yield table rows of a daemon's role; none for one that runs alone."""
    if standby is None:
        return
    yield "role", "active" if standby.is_active else "standby"
    yield "name", standby.holder
    if standby.is_active and standby.since_ns is not None:
        yield "active since", datetime.fromtimestamp(standby.since_ns // NS_PER_S, UTC).isoformat()
        yield "token", standby.token
    else:
        yield "active", standby.active_holder or "none"
        yield "active at", standby.active_address or "unknown"
    yield "times active", standby.changes
    if standby.problem:
        yield "lease", standby.problem
