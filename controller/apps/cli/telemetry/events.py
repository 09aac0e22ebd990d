"""`millrace telemetry events` and `rules`: what a collector's rules have raised, and the rules."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from collectors.values import Event
from controller.apps.cli.feed import FEED, Feed, ask
from controller.apps.cli.output import Cells, Format, FormatOption, line_of, show, utc
from dataplane.clock import NS_PER_S

if TYPE_CHECKING:
    from collectors.events.rules import Rule
    from collectors.feed.client import FeedClient

_COLUMNS = ("time", "phase", "rule", "subject", "figure", "value", "threshold")


def events(
    feed: Feed = FEED,
    form: FormatOption = Format.TABLE,
    follow: Annotated[
        bool, typer.Option("--follow", "-F", help="Continue with new events, a line each, until Ctrl-C.")
    ] = False,
) -> None:
    """List the events that the collector keeps, raised and cleared by rules, oldest first; times are UTC."""
    if not follow:
        began_ns, found = ask(feed, _kept)
        show(_columns(form), (_cells(event, began_ns, form) for event in found), form)
        return
    with suppress(KeyboardInterrupt):
        ask(feed, lambda client: _follow(client, form), patience_s=None)


def rules(
    feed: Feed = FEED,
    form: FormatOption = Format.TABLE,
    replacement: Annotated[
        Path | None,
        typer.Option("--set", metavar="FILE", help="Replace all rules by the `rules` of a YAML or TOML file."),
    ] = None,
) -> None:
    """List the rules in force, or replace all of them while the collector runs."""
    if replacement is not None:
        _replace(feed, replacement)
    found = ask(feed, lambda client: client.rules())
    if form is Format.TABLE:
        columns = ("rule", "scope", "figure", "raised", "cleared", "hold s", "of")
        show(columns, map(_rule_cells, found), form)
    else:
        rows = [msgspec.to_builtins(msgspec.structs.asdict(rule)) for rule in found]
        show(list(rows[0]) if rows else ["name"], [list(row.values()) for row in rows], form)


def _replace(feed: str, file: Path) -> None:
    from collectors.events.rules import RuleSettings  # noqa: PLC0415
    from dataplane.config import load  # noqa: PLC0415

    wanted = load(file, RuleSettings).rules
    ask(feed, lambda client: client.set_rules(wanted))


async def _epoch_ns(client: FeedClient) -> int:
    """Return the UNIX time at which the collector's clock was zero."""
    return time.time_ns() - (await client.status()).taken_ns


async def _kept(client: FeedClient) -> tuple[int, tuple[Event, ...]]:
    return await _epoch_ns(client), await anext(client.events(0))


async def _follow(client: FeedClient, form: Format) -> None:
    began_ns = await _epoch_ns(client)
    if form is Format.CSV:
        typer.echo(line_of((), _columns(form), form))
    async for batch in client.events(0):
        for event in batch:
            typer.echo(line_of(_columns(form), _cells(event, began_ns, form), form))


def _columns(form: Format) -> tuple[str, ...]:
    return _COLUMNS if form is Format.TABLE else (*_COLUMNS, "evidence")


def _cells(event: Event, began_ns: int, form: Format) -> Cells:
    about = (event.phase, event.rule, event.subject, event.figure, event.value, event.threshold)
    cells = (utc(event.time_ns + began_ns), *about)
    if form is Format.TABLE:
        return cells
    evidence = [
        {"time": utc(row.time_ns + began_ns), "figure": row.figure, "value": row.value} for row in event.evidence
    ]
    return (*cells, evidence)


def _rule_cells(rule: Rule) -> Cells:
    return (
        rule.name,
        rule.scope,
        rule.figure + (" per second" if rule.per_second else ""),
        _condition(rule),
        rule.clear,
        f"{rule.hold_ns / NS_PER_S:g}",
        rule.match or "all",
    )


def _condition(rule: Rule) -> str:
    if rule.above is not None:
        return f"above {rule.above:g}"
    if rule.below is not None:
        return f"below {rule.below:g}"
    return "level changes"
