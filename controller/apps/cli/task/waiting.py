"""Wait until tasks have ended; changes are printed on stderr."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.shared.amounts import in_seconds
from controller.apps.cli.shared.common import working

if TYPE_CHECKING:
    from controller.apiserver.client import SyncApiClient
    from controller.apiserver.resources import Task

Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait until they have ended; fail if one fails.")]
Timeout = Annotated[float, typer.Option(parser=in_seconds(0.1, 604_800), help="Maximum time to wait.")]


async def until_ended(address: str | None, names: Sequence[str], timeout_s: float) -> None:
    """Return once all these tasks have succeeded or are gone; raise ApiError for the first that failed."""
    from controller.apiserver.client import ApiClient, Listing, find_place  # noqa: PLC0415
    from controller.apiserver.resources import Task  # noqa: PLC0415
    from controller.common.errors import StaleError, UnavailableError  # noqa: PLC0415

    tasks: dict[str, Task] = {}
    printed: dict[str, str] = {}
    progress = working(lambda: _progress(printed)) if sys.stderr.isatty() else nullcontext()
    try:
        with progress:
            async with (
                asyncio.timeout(timeout_s),
                ApiClient(find_place(address)) as client,
                aclosing(client.of(Task).follow()) as told,
            ):
                async for event in told:
                    if isinstance(event, Listing):
                        tasks = {task.metadata.name: task for task in event.items if task.metadata.name in names}
                    elif event.type.value == "DELETE":
                        tasks.pop(event.name, None)
                    elif event.resource is not None and event.name in names:
                        tasks[event.name] = event.resource
                    _print_changes(tasks, printed)
                    failed = next((task for task in tasks.values() if task.status.phase.value == "failed"), None)
                    if failed is not None:
                        why = "; ".join(failed.status.reasons)
                        raise StaleError(f"task {failed.metadata.name} has failed{f': {why}' if why else ''}")
                    if all(task.status.phase.value == "succeeded" for task in tasks.values()):
                        return
    except TimeoutError:
        raise UnavailableError(f"not ended after {timeout_s:g} s: {_progress(printed)}") from None


def _progress(printed: Mapping[str, str]) -> str:
    return ", ".join(sorted(f"{name} is {text}" for name, text in list(printed.items())))


def line_of(task: Task) -> str:
    """Return a line with a task's phase, centre, units and reasons."""
    status = task.status
    where = "" if status.centre is None else f" at {status.centre}"
    units = "" if not status.units else f", {status.units} of {status.unit or 'the units it chooses'}"
    if status.members:
        parts = (f"{part.centre} ({part.units} of {part.unit})" for part in status.members)
        where, units = f" at {', '.join(parts)}", ""
    why = status.stopping or "; ".join(status.reasons[:3])
    return f"{phase_of(task)}{where}{units}{f': {why}' if why else ''}"


def predecessor_line(client: SyncApiClient, name: str) -> str:
    """Return the state of a task that another one runs after."""
    from controller.apiserver.resources import Task  # noqa: PLC0415
    from controller.common.errors import NotFoundError  # noqa: PLC0415

    try:
        return line_of(client.of(Task).get(name))
    except NotFoundError:
        return "deleted"


def phase_of(task: Task) -> str:
    """Return a task's phase, "deleting" while it is being deleted."""
    return "deleting" if task.metadata.deleting_ns is not None else task.status.phase.value


def _print_changes(tasks: dict[str, Task], printed: dict[str, str]) -> None:
    for name, task in tasks.items():
        text = line_of(task)
        if printed.get(name) != text:
            printed[name] = text
            typer.echo(f"task {name}: {text}", err=True)
