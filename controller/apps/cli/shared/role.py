"""The role of a daemon in a pair, as rows of its status."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from controller.common.standby.values import StandbyStatus
from dataplane.clock import NS_PER_S


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
