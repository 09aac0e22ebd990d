"""`millrace telemetry links` and `top`: the state of every link, liveness first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType

from collectors.values import CollectorStatus, LinkCondition, LinkState, LinkStatus, Snapshot
from controller.apps.cli.network.feed import FEED, Feed, ask
from controller.apps.cli.shared.amounts import in_seconds
from controller.apps.cli.shared.live import show_live
from controller.apps.cli.shared.output import (
    Format,
    FormatOption,
    LineFormat,
    flat,
    line_of,
    show,
    show_values,
    table_of,
)
from controller.apps.cli.shared.units import milliseconds, percent, seconds

if TYPE_CHECKING:
    from collectors.feed.client import FeedClient

_COLUMNS = (
    *("link", "state", "for s", "mean ms", "p50 ms", "p99 ms", "max ms", "queue", "used %", "free Mbit/s", "loss %"),
    *("age s", "samples", "source"),
)


class Order(StrEnum):
    """Sort order of `top`."""

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


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A link's figures, and its status at the controller; None if its ports are not watched."""

    state: LinkState
    condition: LinkCondition | None
    condition_age_ns: int | None
    cause: str


def links(feed: Feed = FEED, form: FormatOption = Format.TABLE) -> None:
    """List all directed links as the collector sees them now, and whether the controller reports them alive."""
    current, seen = ask(feed, _status_and_snapshot)
    warn_of_silence(current)
    if form is Format.TABLE:
        show(_COLUMNS, (_cells(link, seen.statuses.get(key)) for key, link in seen.links.items()), form)
        for key, status in seen.statuses.items():
            if status.condition is LinkCondition.DOWN:
                typer.echo(f"{key} is down for {seconds(status.age_ns)} s: {status.cause}")
    else:
        show_values([_row(link, seen.statuses.get(key)) for key, link in seen.links.items()], LinkRow, form)


def top(  # noqa: PLR0917 - a command line's options
    feed: Feed = FEED,
    by: Annotated[Order, typer.Option(help="Sort links by this, descending.")] = Order.UTILISATION,
    rows: Annotated[int, typer.Option(min=1, max=1000, help="Number of links shown.")] = 20,
    interval: Annotated[float, typer.Option(parser=in_seconds(0.05, 3600.0), help="Time between updates.")] = 1.0,
    count: Annotated[int | None, typer.Option(min=1, help="Number of updates; default: until Ctrl-C.")] = None,
    form: LineFormat = Format.TABLE,
) -> None:
    """Watch the busiest or slowest links, or those with the most loss, until Ctrl-C."""

    async def watch(client: FeedClient) -> None:
        await client.status()
        looks = client.snapshots(round(interval * 1e9))
        if form is not Format.TABLE:
            await _write_lines(looks, count, lambda seen: _ordered(seen, by)[:rows], form)
            return
        await show_live(looks, count, lambda seen: _top(seen, by, rows), patience_s=max(1.0, 3 * interval))

    with suppress(KeyboardInterrupt):
        ask(feed, watch, patience_s=None)


def warn_of_silence(status: CollectorStatus) -> None:
    """Print on stderr that no report has arrived yet; figures are the topology's then."""
    if not status.counters.get("reports"):
        from collectors.ingest.silence import reasons_of_silence  # noqa: PLC0415

        typer.echo(f"no report has arrived at this collector: {reasons_of_silence('HOST')}", err=True)


async def _status_and_snapshot(client: FeedClient) -> tuple[CollectorStatus, Snapshot]:
    # Unlike a stream, the status fails at once if nothing listens.
    return await client.status(), await anext(client.snapshots(1_000_000_000))


async def _write_lines(
    looks: AsyncIterator[Snapshot], count: int | None, choose: Callable[[Snapshot], list[LinkState]], form: Format
) -> None:
    """Write a line per link and look, prefixed with the look's number."""
    seen = 0
    while seen != count:
        look = await anext(looks)
        seen += 1
        for link in choose(look):
            row = {"look": seen, **flat(_row(link, look.statuses.get(link.link)))}
            if form is Format.CSV and seen == 1 and link is choose(look)[0]:
                typer.echo(line_of([], list(row), form))
            typer.echo(line_of(list(row), list(row.values()), form))


def _ordered(seen: Snapshot, by: Order) -> list[LinkState]:
    return sorted(seen.links.values(), key=_ORDERS[by], reverse=True)


def _top(seen: Snapshot, by: Order, rows: int) -> RenderableType:
    cells = (_cells(link, seen.statuses.get(link.link)) for link in _ordered(seen, by)[:rows])
    return table_of(_COLUMNS, cells, title=f"{len(seen.paths)} flows; links by {by}")


def _row(link: LinkState, status: LinkStatus | None) -> LinkRow:
    if status is None:
        return LinkRow(link, None, None, "")
    return LinkRow(link, status.condition, status.age_ns, status.cause)


def _cells(link: LinkState, status: LinkStatus | None) -> tuple[object, ...]:
    """Return a link's row for people; a dead link has no figures, which would be outdated or nominal."""
    is_dead = status is not None and status.condition is LinkCondition.DOWN
    # A link that works has no cause, unless it is drained.
    state = None if status is None else (status.condition if is_dead else status.cause or status.condition)
    reported = (state, None if status is None else seconds(status.age_ns))
    if is_dead:
        figures: tuple[object, ...] = (None,) * 8
    else:
        delays = (link.delay_mean_ns, link.delay_p50_ns, link.delay_p99_ns, link.delay_max_ns)
        figures = (
            *(milliseconds(delay) for delay in delays),
            f"{link.queue_occupancy_frames:.1f}",
            f"{100 * link.utilisation:.1f}",
            f"{link.available_bps / 1e6:.3f}",
            percent(link.loss),
        )
    source = None if is_dead else link.source
    return (str(link.link), *reported, *figures, seconds(link.age_ns), link.samples, source)
