"""`millrace balance status`: the holders of a pool, their units and reports, and the resulting decisions."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.shared.amounts import in_seconds
from controller.apps.cli.shared.output import Cells, Format, FormatOption, line_of, show, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from controller.apiserver.client import SyncApiClient
    from controller.apiserver.resources import UnitPool
    from controller.apiserver.resources.unit_pool import HolderControl, HolderStatus

COLUMNS = (
    "pool",
    "holder",
    "units",
    "asked back",
    "bus %",
    "load %",
    "error",
    "u",
    "wants",
    "levers",
    "price",
    "reported s ago",
    "why",
)
_BARS = "▁▂▃▄▅▆▇█"
_LOOKS = 24
_Past = defaultdict[tuple[str, str], "deque[float | None]"]


def status(
    pool: Annotated[str | None, typer.Argument(help="Name of a pool; default: all.")] = None,
    live: Annotated[bool, typer.Option("--live", help="Repeat until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(parser=in_seconds(0.2, 3600.0), help="Time between updates.")] = 1.0,
    address: Address = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show pools' holders: units, bus, load, error, output, requests and grants with reasons."""
    with client_of(address) as client, suppress(KeyboardInterrupt):
        if live:
            _watch(client, pool, interval, form)
            return
        pools = _look(client, pool)
        if form is Format.TABLE:
            for unit_pool in pools:
                typer.echo(_line(unit_pool))
        show(COLUMNS, _rows(pools), form)


def _watch(client: SyncApiClient, pool: str | None, interval: float, form: Format) -> None:
    """Redraw each look in place on a terminal; otherwise, and for programs, print line after line."""
    from rich.live import Live  # noqa: PLC0415

    from controller.common.console import plain_or_terminal  # noqa: PLC0415

    console, past = plain_or_terminal(), _Past(lambda: deque(maxlen=_LOOKS))
    screened = console.is_terminal and form is Format.TABLE
    with Live(console=console, auto_refresh=False, screen=True) if screened else nullcontext() as screen:
        while True:
            pools = _look(client, pool)
            if screen is not None:
                screen.update(_live(pools, past), refresh=True)
            elif form is Format.TABLE:
                console.print(_live(pools, past))
            else:
                for cells in _rows(pools):
                    typer.echo(line_of(COLUMNS, cells, form))
            time.sleep(interval)


def _look(client: SyncApiClient, pool: str | None) -> Sequence[UnitPool]:
    from controller.apiserver.resources import UnitPool  # noqa: PLC0415

    pools = client.of(UnitPool)
    return pools.list().items if pool is None else (pools.get(pool),)


def _line(pool: UnitPool) -> str:
    """Return a pool's summary line."""
    spec, status = pool.spec, pool.status
    where = "" if spec.node is None else f" of node {spec.node}"
    price = "" if status.shadow_price is None else f", one more unit would be worth {status.shadow_price:g}"
    paused, reason = ", paused" if spec.paused else "", f": {status.reason}" if status.reason else ""
    kind = "" if spec.node is None and not spec.model else f" {spec.device_kind.value}"
    return f"{pool.metadata.name}: {pool.held} of {spec.units}{kind} units{where} are held{price}{paused}{reason}"


def _rows(pools: Sequence[UnitPool]) -> Iterator[Cells]:
    from controller.apiserver.resources.unit_pool import HolderControl, HolderStatus  # noqa: PLC0415

    now_ns = time.time_ns()
    for pool in pools:
        shares = {share.holder: share for share in pool.shares}
        reports = {report.holder: report for report in pool.status.holders}
        control = {entry.holder: entry for entry in pool.status.control}
        for holder in sorted(pool.holders):
            share, report = shares.get(holder), reports.get(holder, HolderStatus(holder=holder))
            made = control.get(holder, HolderControl(holder=holder))
            age_s = None if report.reported_ns is None else max(now_ns - report.reported_ns, 0) / 1e9
            yield (
                pool.metadata.name,
                holder,
                0 if share is None else share.units,
                0 if share is None else share.leaving,
                _percent(report.bus),
                _percent(report.load),
                made.error,
                made.output,
                made.wants,
                _levers(report, made),
                made.price,
                None if age_s is None else round(age_s, 1),
                made.reason,
            )


def _levers(report: HolderStatus, made: HolderControl) -> str:
    """Return the positions of a holder's other levers, and the requested changes."""
    steps = f" {made.precision_steps:+d}" if made.precision_steps else ""
    clock = f" {made.frequency_mhz:+g}" if made.frequency_mhz else ""
    parts = [f"{report.precision}{steps}"] if report.precision else []
    if report.frequency_mhz is not None:
        parts.append(f"{report.frequency_mhz:g}{clock} MHz")
    return ", ".join(parts)


def _live(pools: Sequence[UnitPool], past: _Past) -> RenderableType:
    """Return a table for each pool, with each holder's last errors as bars around 0."""
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    parts: list[RenderableType] = []
    rows = list(_rows(pools))
    for pool in pools:
        for entry in pool.status.control:
            past[pool.metadata.name, entry.holder].append(entry.error)
        here = [row for row in rows if row[0] == pool.metadata.name]
        cells = [(*row[1:], _bars(past[str(row[0]), str(row[1])])) for row in here]
        parts += [Text(_line(pool)), table_of((*COLUMNS[1:], "error so far"), cells)]
    return Group(*parts) if parts else Text("no unit pools")


def _bars(errors: Sequence[float | None]) -> str:
    places = (None if error is None else round((error + 1) / 2 * (len(_BARS) - 1)) for error in errors)
    return "".join(" " if level is None else _BARS[level] for level in places)


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)
