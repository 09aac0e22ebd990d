"""`millrace paths drain`, `undrain` and `drained`: take links and switches out of use, and put them back."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from controller.apps.cli.network.path_server import SERVER, Server, ask_at, flow_name
from controller.apps.cli.shared.output import Cells, Format, FormatOption, OneFormat, show, utc
from controller.apps.cli.shared.units import percent_of, seconds

if TYPE_CHECKING:
    from controller.network.paths.records.values import DrainChange, DrainEffect
    from dataplane.topology.values import LinkKey

Element = Annotated[
    str, typer.Argument(metavar="ELEMENT", help="A->B (one direction of a cable), A<->B (both), or a switch.")
]
Note = Annotated[str, typer.Option("--note", help="Why; kept with the drain, and in the logs.")]
WhatIf = Annotated[bool, typer.Option("--what-if", help="Change nothing; show what would move and stay.")]


def drain(
    element: Element,
    note: Note = "",
    what_if: WhatIf = False,
    server: Server = SERVER,
    form: OneFormat = Format.TABLE,
) -> None:
    """Take a link or a switch out of use until `undrain`: its traffic leaves without loss, nothing new is placed on it.

    Traffic that has no other path stays, and is shown.
    """
    _change(server, element, note, form, drained=True, what_if=what_if)


def undrain(
    element: Element,
    note: Note = "",
    what_if: WhatIf = False,
    server: Server = SERVER,
    form: OneFormat = Format.TABLE,
) -> None:
    """Put a drained link or switch back: flows that left it return."""
    _change(server, element, note, form, drained=False, what_if=what_if)


def drained(server: Server = SERVER, form: FormatOption = Format.TABLE) -> None:
    """List what is drained, since when, by whom and why, and the flows that had to stay."""
    answer, now = ask_at(server, lambda client: client.drains())
    rows: list[Cells]
    if form is Format.TABLE:
        rows = [
            (each.element, utc(each.since_ns), each.by, each.note, seconds(now.now_ns - each.since_ns))
            for each in answer.drains
        ]
        show(("element", "since", "by", "note", "age s"), rows, form)
        for stay in answer.stays:
            typer.echo(f"{flow_name(stay.flow)} stays on {'-'.join(stay.path)}: {stay.reason}")
        return
    show(
        ("element", "since_ns", "by", "note"),
        ((each.element, each.since_ns, each.by, each.note) for each in answer.drains),
        form,
    )


def _change(server: str, element: str, note: str, form: Format, *, drained: bool, what_if: bool) -> None:
    from controller.network.paths.records.values import DrainChange  # noqa: PLC0415

    change = DrainChange(element, drained, "" if what_if else _user(), note)
    effect, _ = ask_at(server, lambda client: client.foresee_drain(change) if what_if else client.drain(change))
    if form is Format.JSON:
        typer.echo(msgspec.json.encode(effect).decode())
        return
    for line in _lines(change, effect, what_if=what_if):
        typer.echo(line)
    rows: list[Cells] = [
        (flow_name(move.flow), move.old_path, move.new_path, move.reason)
        for move in effect.moves
        if move.old_path != move.new_path
    ]
    rows += [(flow_name(stay.flow), stay.path, None, f"stays: {stay.reason}") for stay in effect.stays]
    if rows:
        show(("flow", "from", "to", "why"), rows, form)


def _lines(change: DrainChange, effect: DrainEffect, *, what_if: bool) -> Iterator[str]:
    if not effect.is_change:
        since = "" if effect.drain is None else f", by {effect.drain.by} at {utc(effect.drain.since_ns).isoformat()}"
        yield f"{change.element} was drained before{since}"
    else:
        verb = "would be" if what_if else "is"
        yield f"{change.element} {verb} {'drained' if change.drained else 'put back'}"
    if effect.hosts:
        yield f"traffic of {', '.join(effect.hosts)} stays: they have no other switch"
    if effect.others:
        verb = "follows" if change.drained else "may return by"
        yield f"measured traffic that is not managed {verb} base routes: {effect.others} of its 5-tuples are there"
    before = _link(effect.fullest_before, effect.utilisation_before)
    yield f"fullest link: before {before}, after {_link(effect.fullest_after, effect.utilisation_after)}"


def _link(link: LinkKey | None, share: float) -> str:
    return f"{percent_of(share)} %" if link is None else f"{link} at {percent_of(share)} %"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        return ""
