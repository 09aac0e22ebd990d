"""`millrace paths cost`: costs between two hosts, or any two, from the cost map."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.network.feed import FEED, Feed
from controller.apps.cli.shared.output import Format, FormatOption, show
from controller.apps.cli.shared.units import milliseconds, percent, seconds
from controller.network.paths.settings import ADDRESS

if TYPE_CHECKING:
    from controller.cluster.cost_map import CostMap, HostCost, Load
    from dataplane.topology.values import Topology

_A_TIME = "2026-01-31T12:00 (UTC) or 2026-01-31T12:00+01:00"
_COLUMNS = ("from", "to", "delay ms", "free Mbit/s", "loss %", "age s", "by telemetry", "paths")
_PAIR_COLUMNS = (
    *("src", "dst", "delay_ns", "available_bps", "loss_ppb", "age_ns"),
    *("delay_basis", "available_basis", "loss_basis", "explicit", "paths"),
    "access_measured",
)


class Figure(StrEnum):
    """Cost metric shown in a matrix or a picture."""

    DELAY = "delay"
    BANDWIDTH = "bandwidth"
    LOSS = "loss"


def cost(  # noqa: PLR0917 - a command line's options
    topology: Annotated[str, typer.Option("--topology", "-t", metavar="TOPOLOGY", help="A file, a name or a family.")],
    src: Annotated[str | None, typer.Argument(help="Name of a host; default: all.")] = None,
    dst: Annotated[str | None, typer.Argument(help="Name of another host; default: all.")] = None,
    feed: Feed = FEED,
    server: Annotated[str, typer.Option(metavar="ADDRESS", help="The path server: unix:PATH or HOST:PORT.")] = ADDRESS,
    base_routes: Annotated[
        bool, typer.Option("--base-routes", help="Assume base routes; query no path server.")
    ] = False,
    nominal: Annotated[bool, typer.Option("--nominal", help="Use only the topology's figures.")] = False,
    history: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Use a history instead of the feed.")] = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help=f"Time in the history, as {_A_TIME}.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="With --at: show means since then.")] = None,
    add: Annotated[
        list[str] | None, typer.Option(metavar="SRC:DST:RATE", help="Predict with this extra load, as h1:h2:40Mbit/s.")
    ] = None,
    matrix: Annotated[Figure | None, typer.Option(help="Print a matrix of one figure, a row per source.")] = None,
    picture: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a heat map (.png or .svg).")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show what packets between hosts meet now: delay, free bandwidth, loss, their sources, and paths."""
    from dataplane.topology.file import load_topology  # noqa: PLC0415

    loads = [_load(text) for text in add or ()]
    if (at is None) != (history is None):
        raise typer.BadParameter("--history and --at require each other")
    if since is not None and at is None:
        raise typer.BadParameter("--since requires --history and --at")
    network = load_topology(topology)
    if nominal or history is not None:
        costs = _costs_from_history(network, history, at, since)
    else:
        costs = _ask(network, feed, None if base_routes else server)
    costs = costs.with_loads(loads) if loads else costs
    if picture is not None:
        from controller.cluster.cost_map.picture import draw  # noqa: PLC0415

        draw(costs, matrix or Figure.DELAY, picture)
        typer.echo(f"wrote {picture}", err=True)
    elif matrix is not None:
        _show_matrix(costs, matrix, form)
    else:
        _show_pairs(costs, src, dst, form)


def _costs_from_history(topology: Topology, history: Path | None, at: str | None, since: str | None) -> CostMap:
    """Return the map at a moment of a history, or over the time up to it; without one, unmeasured."""
    from collectors.values import Snapshot  # noqa: PLC0415
    from controller.cluster.cost_map import CostMap  # noqa: PLC0415
    from controller.cluster.cost_map.cost_map import DEFAULT_STALE_AFTER_NS  # noqa: PLC0415

    if history is None or at is None:
        return CostMap.of(topology, Snapshot(0, {}, {}, {}))
    from controller.cluster.cost_map.past import snapshot_at, snapshot_over  # noqa: PLC0415

    typer.echo("paths are base routes: a history has links, not routes", err=True)
    end = _moment("--at", at)
    if since is None:
        return CostMap.of(topology, snapshot_at(history, end))
    start = _moment("--since", since)
    snapshot = snapshot_over(history, start, end)
    # Anything measured within that time counts.
    window_ns = (end - start) // timedelta(microseconds=1) * 1000
    return CostMap.of(topology, snapshot, stale_after_ns=window_ns + DEFAULT_STALE_AFTER_NS)


def _ask(topology: Topology, feed: str, path_server: str | None) -> CostMap:
    from controller.cluster.network_state.follower import ask  # noqa: PLC0415
    from controller.cluster.network_state.settings import NetworkStateSettings  # noqa: PLC0415

    return asyncio.run(ask(topology, NetworkStateSettings(feed=feed, path_server=path_server))).costs


def _show_pairs(costs: CostMap, src: str | None, dst: str | None, form: Format) -> None:
    sources = costs.hosts if src is None else (src,)
    targets = costs.hosts if dst is None else (dst,)
    pairs = (costs.cost(source, other) for source in sources for other in targets if source != other or (src and dst))
    if form is Format.TABLE:
        show(_COLUMNS, (_cells(pair) for pair in pairs), form)
    else:
        show(_PAIR_COLUMNS, (_row(pair) for pair in pairs), form)


def _cells(pair: HostCost) -> tuple[object, ...]:
    if not pair.is_reachable:
        return (pair.src, pair.dst, "unreachable", 0, 100, None, None, None)
    paths = "; ".join(
        " ".join(path.switches) + ("" if path.share == 1 else f" ({100 * path.share:.0f} %)") for path in pair.paths
    )
    figures = (milliseconds(pair.delay_ns), _megabits(pair.available_bps), percent(pair.loss_ppb / 1e9))
    return (pair.src, pair.dst, *figures, seconds(pair.age_ns), _measured_figures(pair), paths)


def _measured_figures(pair: HostCost) -> str:
    """Return the figures that telemetry covers, wholly or in part."""
    figures = (("delay", pair.delay_basis), ("bandwidth", pair.available_basis), ("loss", pair.loss_basis))
    measured = [name if basis == "measured" else f"{name} in part" for name, basis in figures if basis != "nominal"]
    return ", ".join(measured + ["the host's own link"] * pair.access_measured) or "nothing"


def _row(pair: HostCost) -> tuple[object, ...]:
    figures = (pair.delay_ns, pair.available_bps, pair.loss_ppb, pair.age_ns)
    basis = (str(pair.delay_basis), str(pair.available_basis), str(pair.loss_basis))
    paths = [{"switches": list(path.switches), "share": path.share} for path in pair.paths]
    return (pair.src, pair.dst, *figures, *basis, pair.explicit, paths, pair.access_measured)


def _show_matrix(costs: CostMap, figure: Figure, form: Format) -> None:
    columns = {
        Figure.DELAY: costs.pairs.delay_ns,
        Figure.BANDWIDTH: costs.pairs.available_bps,
        Figure.LOSS: costs.pairs.loss_ppb,
    }
    units = {Figure.DELAY: _delay, Figure.BANDWIDTH: _megabits, Figure.LOSS: lambda ppb: percent(ppb / 1e9)}
    cell = units[figure] if form is Format.TABLE else int
    rows = ([name, *map(cell, row)] for name, row in zip(costs.hosts, columns[figure].tolist(), strict=True))
    show(("from \\ to", *costs.hosts), rows, form)


def _delay(delay_ns: int) -> str | None:
    return None if delay_ns < 0 else milliseconds(delay_ns)


def _megabits(rate_bps: int) -> str | None:
    from controller.cluster.cost_map import UNLIMITED_BPS  # noqa: PLC0415

    return None if rate_bps == UNLIMITED_BPS else f"{rate_bps / 1e6:.1f}"


def _load(text: str) -> Load:
    from controller.cluster.cost_map import Load  # noqa: PLC0415
    from dataplane.topology.units import parse_rate_bps  # noqa: PLC0415

    try:
        src, dst, rate = text.split(":")
        return Load(src, dst, parse_rate_bps(rate))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not SRC:DST:RATE, such as h1:h2:40Mbit/s: {error}") from None


def _moment(option: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{option} {text!r} is not a time such as {_A_TIME}") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
