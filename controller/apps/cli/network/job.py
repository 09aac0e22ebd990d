"""`millrace job`: jobs of in-network aggregation, and their workers."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from controller.apps.cli.network.feed import FEED, Feed, ask
from controller.apps.cli.shared.amounts import in_seconds
from controller.apps.cli.shared.output import (
    AsJson,
    Cells,
    Format,
    FormatOption,
    LineFormat,
    OneFormat,
    line_of,
    show,
    table_of,
)
from controller.apps.cli.shared.units import percent
from controller.common.console import plain_or_terminal
from controller.common.errors import JobError
from dataplane.allreduce.jobs.messages import ADDRESS
from dataplane.clock import NS_PER_S

if TYPE_CHECKING:
    from rich.console import RenderableType

    from collectors.feed.client import FeedClient
    from collectors.values import Snapshot
    from controller.network.aggregation.service.client import JobClient
    from controller.network.aggregation.service.messages import JobRow
    from controller.network.aggregation.stragglers import Straggler

job = typer.Typer(name="job", help="Manage jobs of in-network aggregation and their workers.", no_args_is_help=True)

Server = Annotated[str, typer.Option("--server", metavar="ADDRESS", help="unix:PATH or HOST:PORT.")]
SERVER: Final = ADDRESS
Name = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.")]
Reason = Annotated[str, typer.Option(help="Reason given to the workers.")]

T = TypeVar("T")

_ASKED: Final = "requested by an operator"
_TOP: Final = ("job", "at", "worker", "last %", "costs ms", "cause", "link used %", "queue", "loss %", "sent again %")


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


@job.command()
def top(  # noqa: PLR0917 - a command line's options
    name: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Only this job: name or number.")] = None,
    feed: Feed = FEED,
    rows: Annotated[int, typer.Option(min=1, max=1000, help="Number of workers shown.")] = 20,
    interval: Annotated[float, typer.Option(parser=in_seconds(0.05, 3600.0), help="Time between updates.")] = 1.0,
    count: Annotated[int | None, typer.Option(min=1, help="Number of updates; default: until Ctrl-C.")] = None,
    form: LineFormat = Format.TABLE,
) -> None:
    """Watch the workers that jobs wait for, and why: cable, loss, queue or compute, until Ctrl-C."""
    from controller.apps.cli.shared.live import show_live  # noqa: PLC0415

    async def watch(client: FeedClient) -> None:
        await client.status()  # unlike a stream, it fails at once if nothing listens
        looks = client.snapshots(round(interval * NS_PER_S))
        if form is Format.TABLE:
            await show_live(looks, count, lambda seen: _top(seen, name, rows), patience_s=max(1.0, 3 * interval))
            return
        seen = 0
        while seen != count:
            lines = _stragglers(await anext(looks), name)[:rows]
            seen += 1
            for line in lines:
                row = {"look": seen, **dataclasses.asdict(line)}
                if form is Format.CSV and seen == 1 and line is lines[0]:
                    typer.echo(line_of([], list(row), form))
                typer.echo(line_of(list(row), list(row.values()), form))

    with suppress(KeyboardInterrupt):
        ask(feed, watch, patience_s=None)


def _stragglers(seen: Snapshot, name: str | None) -> list[Straggler]:
    from controller.network.aggregation.stragglers import stragglers  # noqa: PLC0415

    jobs = [state for state in seen.jobs.values() if name is None or name in {state.name, str(state.key.job)}]
    return stragglers(jobs, seen.links)


def _top(seen: Snapshot, name: str | None, rows: int) -> RenderableType:
    found = _stragglers(seen, name)
    who = "jobs" if name is None else f"job {name}"
    if not found:
        return f"{who}: no switch has reported items recently"
    return table_of(_TOP, map(_top_cells, found[:rows]), title=f"{who}: workers that items wait for")


def _top_cells(row: Straggler) -> Cells:
    return (
        row.job,
        row.at,
        row.worker,
        f"{100 * row.last_share:.1f}",
        f"{row.wait_caused_ns / 1e6:.3f}",
        row.cause,
        None if row.used is None else f"{100 * row.used:.1f}",
        None if row.queue_frames is None else f"{row.queue_frames:.1f}",
        percent(row.loss),
        f"{100 * row.repeated_per_item:.1f}",
    )


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
