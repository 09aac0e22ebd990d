"""`millrace job`: jobs of in-network aggregation, and their workers."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from controller.apps.cli.shared.output import AsJson, Cells, Format, FormatOption, OneFormat, show, table_of
from controller.common.console import plain_or_terminal
from controller.common.errors import JobError
from dataplane.allreduce.jobs.messages import ADDRESS
from dataplane.clock import NS_PER_S

if TYPE_CHECKING:
    from controller.network.aggregation.service.client import JobClient
    from controller.network.aggregation.service.messages import JobRow

job = typer.Typer(name="job", help="Manage jobs of in-network aggregation and their workers.", no_args_is_help=True)

Server = Annotated[str, typer.Option("--server", metavar="ADDRESS", help="unix:PATH or HOST:PORT.")]
SERVER: Final = ADDRESS
Name = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.")]
Reason = Annotated[str, typer.Option(help="Reason given to the workers.")]

T = TypeVar("T")

_ASKED: Final = "requested by an operator"


@job.command("list")
def list_jobs(
    server: Server = SERVER,
    every: Annotated[bool, typer.Option("--all", help="Include jobs that have ended, with the reason.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """List jobs: number, epoch, number of workers, and the switches that aggregate."""
    jobs = [job for job in _ask(server, lambda client: client.jobs()) if every or job.ended_ns is None]
    columns = ("job", "number", "state", "members", "workers", "epoch", "window", "capacity", "switches", "reason")
    show(columns if every else columns[:-1], (_cells(job)[: None if every else -1] for job in jobs), form)


@job.command("show")
def show_job(
    name: Name,
    server: Server = SERVER,
    as_json: AsJson = False,
    form: OneFormat = Format.TABLE,
) -> None:
    """Show a job and its workers, with the time since each was heard; of ended jobs the newest of that name."""
    shown = next((row for row in _ask(server, lambda client: client.jobs()) if row.name == name), None)
    if shown is None:
        raise JobError(f"job service at {server}: no job {name!r} is running or has ended recently")
    if as_json or form is Format.JSON:
        typer.echo(json.dumps(dataclasses.asdict(shown), ensure_ascii=False))
        return
    screen = plain_or_terminal()
    screen.print(_head(shown), highlight=False, soft_wrap=True)
    rows: Iterable[Cells] = (
        (member.host, member.state, f"{member.heard_ns / NS_PER_S:.1f}") for member in shown.members
    )
    if shown.members:
        screen.print(table_of(("worker", "state", "heard s ago"), rows))


@job.command()
def end(name: Name, server: Server = SERVER, reason: Reason = _ASKED) -> None:
    """End a job: remove it from the switches and notify its workers."""
    _ask(server, lambda client: client.end(name, reason))


@job.command()
def remove(
    name: Name,
    host: Annotated[str, typer.Argument(metavar="HOST", help="Host of the worker.")],
    server: Server = SERVER,
    reason: Reason = _ASKED,
) -> None:
    """Remove a worker from a job; a job with fewer than half of its workers ends."""
    _ask(server, lambda client: client.remove(name, host, reason))


def _ask(server: str, question: Callable[[JobClient], Awaitable[T]]) -> T:
    from controller.network.aggregation.service.client import JobClient, JobClientSettings  # noqa: PLC0415

    async def ask() -> T:
        async with JobClient(JobClientSettings(address=server)) as client:
            return await question(client)

    return asyncio.run(ask())


def _cells(row: JobRow) -> Cells:
    size = (len(row.members), row.workers, row.epoch, row.window, row.capacity)
    return (row.name, row.number, row.state, *size, row.switches, row.reason)


def _head(row: JobRow) -> str:
    """Return a job's row as a sentence."""
    if row.ended_ns is not None:
        return f"{row.name}: ended {row.ended_ns / NS_PER_S:.0f} s ago: {row.reason}"
    where = "" if row.number is None else f", number {row.number}, epoch {row.epoch}, at {' '.join(row.switches)}"
    return f"{row.name}: {row.state}{where}; window {row.window}, capacity {row.capacity}"
