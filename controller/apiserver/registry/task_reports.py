"""Writes allowed to tasks and centres besides dispatches and completions; pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from controller.apiserver.resources import Centre, Task
from controller.apiserver.resources.task import HELD, TASK_ENDED, TaskPhase
from controller.common.errors import StaleError

_ACTIONS: Final = (
    "centre",
    "unit",
    "units",
    "epoch",
    "operator_devices",
    "could_run",
    "dispatched_ns",
    "started_ns",
    "finished_ns",
    "exit_code",
    "run_time_s",
    "result",
    "user",
)
"""Parts of a task's status that only the server writes."""
_SCHEDULERS: Final = ("decision", "cost", "expected_s")
"""Parts that centres may not write."""
_MAY_CHANGE: Final = frozenset({"priority"})


def reported(found: Task, made: Task, now_ns: int, *, by_centre: bool) -> Task:
    """Return a task's new status, keeping what actions write; raise StaleError for another epoch.

    Only dispatch and completion change whether a task holds units; its start gets the server's time.
    """
    before, name = found.status, found.metadata.name
    if made.status.epoch != before.epoch:
        raise StaleError(f"Task {name} is in epoch {before.epoch}, not {made.status.epoch} any more")
    _check_phase(name, before.phase, made.status.phase, by_centre=by_centre)
    parts = (*_ACTIONS, *_SCHEDULERS) if by_centre else _ACTIONS
    status = replace(made.status, **{part: getattr(before, part) for part in parts})
    if status.phase is TaskPhase.RUNNING and before.phase is not TaskPhase.RUNNING:
        status = replace(status, started_ns=now_ns)
    return replace(made, status=status)


def check_held(found: Task, wanted: Task) -> None:
    """Raise StaleError for a spec that contradicts what a task holds, or has been."""
    if found.status.phase not in (*HELD, *TASK_ENDED):
        return
    fields = (name for name in found.spec.__struct_fields__ if name not in _MAY_CHANGE)
    fixed = [name for name in fields if getattr(found.spec, name) != getattr(wanted.spec, name)]
    if fixed:
        what = " and ".join(fixed)
        raise StaleError(f"Task {found.metadata.name} is {found.status.phase.value}: its {what} cannot change")


def check_agent(found: Centre, made: Centre, is_over: Callable[[Centre], bool]) -> None:
    """Raise StaleError for a centre's report by another agent than the one whose lease still runs."""
    known = found.status
    if known.signed_off or known.heartbeat_ns is None or known.agent in ("", made.status.agent):
        return
    if not is_over(found):
        name = found.metadata.name
        raise StaleError(f"Centre {name} has an agent, of state folder {known.agent}, whose lease is not over")


def _check_phase(name: str, before: TaskPhase, after: TaskPhase, *, by_centre: bool) -> None:
    if before in TASK_ENDED and (by_centre or after is not before):
        raise StaleError(f"Task {name} has {before.value}: that stays")
    if before in HELD and after not in HELD:
        raise StaleError(f"Task {name} holds units: it ends by a completion")
    if before not in HELD and after in HELD:
        raise StaleError(f"Task {name} is {before.value}: it gets units by a dispatch")
    if before is TaskPhase.RUNNING and after is not before:
        raise StaleError(f"Task {name} runs: it is not {after.value} again in this epoch")
    if before not in TASK_ENDED and after is TaskPhase.SUCCEEDED:
        raise StaleError(f"Task {name} has not run: it cannot have succeeded")
