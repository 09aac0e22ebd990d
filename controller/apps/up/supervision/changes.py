"""Difference between the plan in force and one from changed settings: what a reload starts, stops and cannot change."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from controller.apps.up.daemon_plans import DaemonPlan
from controller.apps.up.plan import UpPlan, make_plan
from controller.apps.up.settings import UpSettings
from dataplane.config import Strict
from dataplane.config.changes import changed_keys

FIXED: Final = ("topology", "run", "time", "switches", "tls", "fabric", "restart", "logs")
"""Keys that only a new supervisor can apply: every daemon depends on them, or the supervisor itself."""
FIXED_IN: Final[Mapping[str, tuple[str, ...]]] = {
    "collector": ("address", "listen", "udp_port"),
    "paths": ("address",),
    "controller": ("address",),
    "api": ("address",),
}
"""The same in sections: addresses that other daemons call."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Effects of a reload."""

    plan: UpPlan
    """The plan to run from now on."""
    added: tuple[str, ...]
    removed: tuple[str, ...]
    restarted: tuple[str, ...]
    """Daemons to restart, since something was added or removed."""
    waiting: Mapping[str, tuple[str, ...]]
    """Keys by daemon that take effect when it is restarted."""
    fixed: tuple[str, ...]
    """Keys that take effect when the supervisor is restarted."""

    def lines(self) -> list[str]:
        """Return all of it for the log."""
        return [
            *(f"{name}: added to the settings; starts" for name in self.added),
            *(f"{name}: removed from the settings; stops" for name in self.removed),
            *(f"{name}: restarts, as compute centres came or went" for name in self.restarted),
            *(
                f"{name}: `millrace restart {name}` required for: {', '.join(keys)}"
                for name, keys in self.waiting.items()
            ),
            *([f"restart of `millrace up` required for: {', '.join(self.fixed)}"] if self.fixed else []),
            "settings reloaded",
        ]


def changes(old: UpPlan, new: UpPlan, in_force: Mapping[str, Strict]) -> Changes:
    """Return the changes from the running plan to a new one; raise MillraceError if what may change does not fit.

    `in_force`: the settings with which each daemon's process started.
    """
    fixed = tuple(key for key in changed_keys(old.settings, new.settings) if _is_fixed(key))
    if fixed:
        plan = make_plan(_with_fixed(old.settings, new.settings), new.state)
        new = dataclasses.replace(plan, notes=new.notes)
    before, after = ({daemon.name: daemon for daemon in plan.daemons} for plan in (old, new))
    restarted = tuple(name for name in ("scheduler",) if _has_tasks(old) is not _has_tasks(new))
    waiting = {
        name: keys
        for name, daemon in after.items()
        if name in before and name not in restarted and (keys := _waiting(daemon, in_force.get(name)))
    }
    added = tuple(name for name in after if name not in before)
    return Changes(new, added, tuple(name for name in before if name not in after), restarted, waiting, fixed)


def _waiting(daemon: DaemonPlan, running: Strict | None) -> tuple[str, ...]:
    """Return the changed keys that SIGHUP does not apply."""
    if running is None:
        return ()
    reloads = daemon.reloads or ()
    return tuple(key for key in changed_keys(running, daemon.settings) if not _is_below(key, reloads))


def _has_tasks(plan: UpPlan) -> bool:
    """Return whether the scheduler dispatches tasks; unless the settings say so, it does if there are centres."""
    return plan.settings.scheduler.tasks is not None or bool(plan.settings.centres)


def _is_fixed(key: str) -> bool:
    section, _, rest = key.partition(".")
    return section in FIXED or _is_below(rest, FIXED_IN.get(section, ()))


def _is_below(key: str, parents: tuple[str, ...]) -> bool:
    return any(key == parent or key.startswith(f"{parent}.") for parent in parents)


def _with_fixed(old: UpSettings, new: UpSettings) -> UpSettings:
    """Return new settings with the old values of what cannot change."""
    kept: dict[str, Any] = {name: getattr(old, name) for name in FIXED}
    for section, keys in FIXED_IN.items():
        values = {key: getattr(getattr(old, section), key) for key in keys}
        kept[section] = replace(getattr(new, section), **values)
    return replace(new, **kept)
