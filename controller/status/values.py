"""The state of a controller, as those outside see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SwitchProblem:
    """What keeps a switch from holding what it should."""

    switch: str
    problem: str


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """Which of so many switches are right, and what of routes and writes; as in controller.proto."""

    switches: int
    live: tuple[str, ...]
    problems: tuple[SwitchProblem, ...]
    wanted_version: int | None
    pending_entries: int
    settled: bool
    rejected_route_sets: int
    source_problem: str | None
    writes: int
