"""The state of a controller, as seen from outside."""

from __future__ import annotations

from dataclasses import dataclass

from controller.common.standby.values import StandbyStatus
from dataplane.load.values import NO_LOAD, DaemonLoad


@dataclass(frozen=True, slots=True)
class SwitchProblem:
    """Problem that keeps a switch from holding what it should."""

    switch: str
    problem: str


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """Reconciled switches, problems of the others, routes, writes, load and role; as in controller.proto."""

    switches: int
    live: tuple[str, ...]
    problems: tuple[SwitchProblem, ...]
    wanted_version: int | None
    pending_entries: int
    settled: bool
    rejected_route_sets: int
    source_problem: str | None
    writes: int
    load: DaemonLoad = NO_LOAD
    standby: StandbyStatus | None = None
