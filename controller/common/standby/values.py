"""State of a daemon in a pair, as status and metrics show it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StandbyStatus:
    """A daemon's role: active since `since_ns` (UTC) under a fencing token, or standing by.

    `active_holder` and `active_address` are those of the active one as last read, '' while there is none; `changes`
    counts how often this process became active, `problem` is why the storage of the lease fails, '' if it does not.
    """

    holder: str
    is_active: bool
    token: int | None
    since_ns: int | None
    active_holder: str
    active_address: str
    changes: int
    problem: str
