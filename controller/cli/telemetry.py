"""`millrace telemetry`: what a collector knows now, and what it has written of the past."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from collectors.errors import FeedError
from collectors.feed_client import FeedClient, FeedClientSettings
from collectors.values import CollectorStatus, LinkState, PathState, ReporterState, Snapshot
from controller.cli.output import Format, FormatOption, show, show_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from collectors.history.query import Answer

telemetry = typer.Typer(name="telemetry", help="Ask a collector that runs, or its history.", no_args_is_help=True)

Feed = Annotated[str, typer.Option("--feed", metavar="ADDRESS", help="The collector's feed: unix:PATH or HOST:PORT.")]
FEED: Final = FeedClientSettings().address
PATIENCE_S: Final = 10.0
"""How long a collector that can be reached may take to answer."""

T = TypeVar("T")


@telemetry.command()
def query(
    statement: Annotated[str, typer.Argument(metavar="SQL", help='One SELECT: "select * from links limit 5".')],
    folder: Annotated[Path, typer.Option("--history", "-d", metavar="FOLDER", help="The collector's history.")],
    form: FormatOption = Format.TABLE,
) -> None:
    """Ask a history in SQL (DuckDB's): links, paths, events, drops, reporters, clocks, counters. It is only read."""
    from collectors.history.query import query as ask_history  # noqa: PLC0415

    answer = ask_history(folder, statement, lambda problem: typer.echo(f"millrace telemetry: {problem}", err=True))
    show(answer.columns, _rows(answer), form)


@telemetry.command()
def links(feed: Feed = FEED, form: FormatOption = Format.TABLE) -> None:
    """List every directed link as the collector sees it now."""
    states = list(_ask(feed, _snapshot).links.values())
    if form is not Format.TABLE:
        show_values(states, LinkState, form)
        return
    columns = ("link", "mean ms", "p50 ms", "p99 ms", "max ms", "queue", "used %", "free Mbit/s", "loss %", "age s")
    show((*columns, "samples", "source"), map(_link_cells, states), form)


@telemetry.command()
def paths(feed: Feed = FEED, form: FormatOption = Format.TABLE) -> None:
    """List the flows that were measured lately, with the way that they take."""
    states = list(_ask(feed, _snapshot).paths.values())
    if form is not Format.TABLE:
        show_values(states, PathState, form)
        return
    columns = ("flow", "path", "delay ms", "p99 ms", "free Mbit/s", "sends Mbit/s", "loss %", "age s")
    show(columns, map(_path_cells, states), form)


@telemetry.command()
def reporters(feed: Feed = FEED, form: FormatOption = Format.TABLE) -> None:
    """List who reports, with what came, what is missing, late or came twice."""
    show_values(list(_ask(feed, _snapshot).reporters.values()), ReporterState, form)


@telemetry.command()
def status(feed: Feed = FEED, form: FormatOption = Format.TABLE) -> None:
    """List what the collector has counted, and why it refused the last bad report."""
    found = _ask(feed, _status)
    show(("counter", "count"), sorted(found.counters.items()), form)
    if found.last_problem is not None:
        typer.echo(f"last problem: {found.last_problem}", err=True)


def _rows(answer: Answer) -> Iterator[tuple[object, ...]]:
    for batch in answer.batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _link_cells(link: LinkState) -> tuple[object, ...]:
    delays = (link.delay_mean_ns, link.delay_p50_ns, link.delay_p99_ns, link.delay_max_ns)
    return (
        str(link.link),
        *(_ms(delay) for delay in delays),
        f"{link.queue_occupancy_frames:.1f}",
        f"{100 * link.utilisation:.1f}",
        f"{link.available_bps / 1e6:.3f}",
        _percent(link.loss),
        _s(link.age_ns),
        link.samples,
        link.source,
    )


def _path_cells(path: PathState) -> tuple[object, ...]:
    return (
        str(path.flow),
        path.switches,
        _ms(path.delay_ns),
        _ms(path.delay_p99_ns),
        f"{path.bottleneck_bps / 1e6:.3f}",
        None if path.rate_bps is None else f"{path.rate_bps / 1e6:.3f}",
        _percent(path.loss),
        _s(path.age_ns),
    )


def _ms(time_ns: int | None) -> str | None:
    return None if time_ns is None else f"{time_ns / 1e6:.3f}"


def _s(time_ns: int | None) -> str | None:
    return None if time_ns is None else f"{time_ns / 1e9:.1f}"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.3f}"


async def _snapshot(client: FeedClient) -> Snapshot:
    await client.status()  # which, unlike a stream, fails at once when nobody is there
    return await anext(client.snapshots(1_000_000_000))


async def _status(client: FeedClient) -> CollectorStatus:
    return await client.status()


def _ask(feed: str, question: Callable[[FeedClient], Awaitable[T]]) -> T:
    async def ask() -> T:
        async with FeedClient(FeedClientSettings(address=feed)) as client:
            return await asyncio.wait_for(question(client), PATIENCE_S)

    try:
        return asyncio.run(ask())
    except TimeoutError as error:
        raise FeedError(f"collector at {feed}: no answer within {PATIENCE_S:.0f} s") from error
