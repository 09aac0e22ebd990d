"""Jobs of in-network aggregation in the page: what the job service knows of them, and what switches report of items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from collectors.values import ChildState, JobKey, JobState
from controller.network.aggregation.service.messages import JobRow, MemberRow

_FIGURES: Final = (
    "items",
    "items_per_s",
    "reported",
    "repeated",
    "repeated_per_item",
    "wait_mean_ns",
    "wait_p50_ns",
    "wait_p99_ns",
    "wait_max_ns",
    "cells_used",
    "cells",
    "age_ns",
)
_WAITS: Final = ("last", "last_share", "wait_mean_ns", "wait_max_ns", "wait_caused_ns")


def jobs_value(
    rows: Sequence[JobRow], states: Mapping[JobKey, JobState], hosts: Iterable[str], heard_ns: int
) -> list[dict[str, Any]]:
    """Return jobs as the page shows them: those of the job service, then others that switches report.

    `rows` are of `heard_ns`, ns since 1970. Figures of a job are those of its root. A job without `rows` has neither
    state nor tree; one that no switch reports has no figures.
    """
    by_number: dict[int, list[JobState]] = {}
    for state in states.values():
        by_number.setdefault(state.key.job, []).append(state)
    names, values = frozenset(hosts), list[dict[str, Any]]()
    for row in rows:
        reported = by_number.get(-1 if row.number is None else row.number, [])
        # Numbers are used again: an ended job's may be another job's by now.
        if row.ended_ns is not None and any(state.name != row.name for state in reported):
            reported = []
        if reported:
            by_number.pop(reported[0].key.job)
        values.append(_job(row, reported, names, heard_ns))
    return [*values, *(_job(None, reported, names, heard_ns) for reported in by_number.values())]


def _job(row: JobRow | None, states: Sequence[JobState], hosts: frozenset[str], heard_ns: int) -> dict[str, Any]:
    at = {state.key.switch: state for state in states}
    root = _root(row, states)
    top = None if root is None else at.get(root)
    number = states[0].key.job if row is None else row.number
    name = row.name if row is not None else next((state.name for state in states if state.name), f"job {number}")
    epoch = row.epoch if row is not None else next((state.epoch for state in states if state.epoch is not None), None)
    return {
        "id": f"{number} {name}",
        "name": name,
        "number": number,
        "state": None if row is None else row.state,
        "epoch": epoch,
        "workers": None if row is None else row.workers,
        "window": None if row is None else row.window,
        "capacity": None if row is None else row.capacity,
        "reason": "" if row is None else row.reason,
        "ended_ns": None if row is None or row.ended_ns is None else heard_ns - row.ended_ns,
        "root": root,
        "switches": [state.key.switch for state in states] if row is None else list(row.switches),
        "links": [] if row is None else [[key.src, key.dst] for key in row.links],
        **{name: None if top is None else getattr(top, name) for name in _FIGURES},
        "slowest": _slowest(top, at),
        "at": [_switch(state) for state in states],
        "members": _members(row, states, hosts, heard_ns),
    }


def _root(row: JobRow | None, states: Sequence[JobState]) -> str | None:
    if row is not None and row.switches:
        return row.switches[0]
    # A leaf adds up for a root, which may not have reported yet.
    return next((state.key.switch for state in states if not state.is_leaf), None)


def _slowest(top: JobState | None, at: Mapping[str, JobState]) -> dict[str, Any] | None:
    """Return the child that causes most of the waiting; of a rack, the one that it waits for itself."""
    state, child, seen = top, None, set[str]()
    while state is not None and state.children and state.key.switch not in seen:
        seen.add(state.key.switch)
        child = state.children[0]
        state = at.get(child.key.name)
    return None if child is None else {"name": child.key.name, "switch": child.key.switch, **_waits(child)}


def _switch(state: JobState) -> dict[str, Any]:
    figures = {name: getattr(state, name) for name in _FIGURES}
    return {"switch": state.key.switch, "is_leaf": state.is_leaf, **figures}


def _members(
    row: JobRow | None, states: Sequence[JobState], hosts: frozenset[str], heard_ns: int
) -> list[dict[str, Any]]:
    """Return the workers; without the job service those that were last at some item."""
    children = {child.key.name: child for state in states for child in state.children if child.key.name in hosts}
    known: dict[str, MemberRow | None] = dict.fromkeys(children)
    if row is not None:
        known = {member.host: member for member in row.members}
    return [_member(host, member, children.get(host), heard_ns) for host, member in known.items()]


def _member(host: str, member: MemberRow | None, child: ChildState | None, heard_ns: int) -> dict[str, Any]:
    switch = None if child is None else child.key.switch
    return {
        "host": host,
        "state": None if member is None else member.state,
        "heard_ns": None if member is None else heard_ns - member.heard_ns,
        "switch": switch if member is None or member.switch is None else member.switch,
        **(dict.fromkeys(_WAITS) if child is None else _waits(child)),
    }


def _waits(child: ChildState) -> dict[str, Any]:
    return {name: getattr(child, name) for name in _WAITS}
