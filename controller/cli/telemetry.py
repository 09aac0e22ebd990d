"""`millrace telemetry`: what a collector knows now, and what it has written of the past."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.live import Live

from collectors.feed_client import FeedClient
from collectors.values import LinkState, PathState, ReporterState, Snapshot
from controller.cli.feed import FEED, Feed, ask, snapshot_of
from controller.cli.output import Format, FormatOption, show, show_values, table_of
from controller.cli.telemetry_events import events, rules
from controller.cli.telemetry_jobs import jobs
from controller.cli.telemetry_replay import replay
from controller.console import plain_or_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from collectors.history.query import Answer

telemetry = typer.Typer(name="telemetry", help="Ask a collector that runs, or its history.", no_args_is_help=True)


telemetry.command()(events)
telemetry.command()(rules)
telemetry.command()(jobs)
telemetry.command()(replay)

_LINK_COLUMNS = (
    *("link", "mean ms", "p50 ms", "p99 ms", "max ms", "queue", "used %", "free Mbit/s", "loss %", "age s"),
    *("samples", "source"),
)


class Order(StrEnum):
    """What comes first in `top`."""

    UTILISATION = "utilisation"
    DELAY = "delay"
    QUEUE = "queue"
    LOSS = "loss"
    AGE = "age"


_ORDERS: dict[Order, Callable[[LinkState], float]] = {
    Order.UTILISATION: lambda link: link.utilisation,
    Order.DELAY: lambda link: link.delay_p99_ns,
    Order.QUEUE: lambda link: link.queue_occupancy_frames,
    Order.LOSS: lambda link: -1 if link.loss is None else link.loss,
    Order.AGE: lambda link: float("inf") if link.age_ns is None else link.age_ns,
}


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
    states = list(ask(feed, snapshot_of).links.values())
    if form is not Format.TABLE:
        show_values(states, LinkState, form)
        return
    show(_LINK_COLUMNS, map(_link_cells, states), form)


@telemetry.command()
def paths(feed: Feed = FEED, form: FormatOption = Format.TABLE) -> None:
    """List the flows that were measured lately, with the way that they take."""
    states = list(ask(feed, snapshot_of).paths.values())
    if form is not Format.TABLE:
        show_values(states, PathState, form)
        return
    columns = ("flow", "path", "delay ms", "p99 ms", "free Mbit/s", "sends Mbit/s", "loss %", "age s")
    show(columns, map(_path_cells, states), form)


@telemetry.command()
def reporters(feed: Feed = FEED, form: FormatOption = Format.TABLE) -> None:
    """List who reports, with what came, what is missing, late or came twice."""
    show_values(list(ask(feed, snapshot_of).reporters.values()), ReporterState, form)


@telemetry.command()
def status(feed: Feed = FEED, form: FormatOption = Format.TABLE) -> None:
    """List what the collector has counted, and why it refused the last bad report."""
    found = ask(feed, FeedClient.status)
    show(("counter", "count"), sorted(found.counters.items()), form)
    if found.last_problem is not None:
        typer.echo(f"last problem: {found.last_problem}", err=True)


@telemetry.command()
def top(
    feed: Feed = FEED,
    by: Annotated[Order, typer.Option(help="Which links come first: those with the most of this.")] = Order.UTILISATION,
    rows: Annotated[int, typer.Option(min=1, max=1000, help="Links shown.")] = 20,
    interval: Annotated[float, typer.Option(min=0.05, max=3600.0, help="Seconds between two looks.")] = 1.0,
    count: Annotated[int | None, typer.Option(min=1, help="Looks; left out, until Ctrl-C.")] = None,
) -> None:
    """Watch the busiest links, or the slowest, or those with the most loss, until Ctrl-C."""

    async def watch(client: FeedClient) -> None:
        await client.status()
        looks = client.snapshots(round(interval * 1e9))
        await _show_live(looks, count, lambda seen: _top(seen, by, rows))

    with suppress(KeyboardInterrupt):
        ask(feed, watch, patience_s=None)


async def _show_live(
    looks: AsyncIterator[Snapshot], count: int | None, render: Callable[[Snapshot], RenderableType]
) -> None:
    """Show each look in the place of the one before; where there is no terminal, one after the other."""
    console, seen = plain_or_terminal(), 0
    with Live(console=console, auto_refresh=False, screen=console.is_terminal) as screen:
        async for look in looks:
            if console.is_terminal:
                screen.update(render(look), refresh=True)
            else:
                console.print(render(look))
            seen += 1
            if seen == count:
                return


def _top(seen: Snapshot, by: Order, rows: int) -> RenderableType:
    ordered = sorted(seen.links.values(), key=_ORDERS[by], reverse=True)
    return table_of(_LINK_COLUMNS, map(_link_cells, ordered[:rows]), title=f"{len(seen.paths)} flows; links by {by}")


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
