"""`millrace telemetry`: what a collector knows now, and what it has written of the past."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collectors.values import PathState, ReporterState
from controller.apps.cli.amounts import in_milliseconds
from controller.apps.cli.feed import FEED, Feed, ask, snapshot_of
from controller.apps.cli.load import load_rows, warn_overloads
from controller.apps.cli.output import Format, FormatOption, show, show_values
from controller.apps.cli.telemetry.events import events, rules
from controller.apps.cli.telemetry.jobs import jobs
from controller.apps.cli.telemetry.links import links, top
from controller.apps.cli.telemetry.replay import replay
from controller.apps.cli.units import milliseconds, percent, seconds
from controller.common.errors import ControllerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from collectors.history.query import Answer


MS = 1_000_000


def probe(
    topology_spec: Annotated[str, typer.Option("--topology", metavar="FILE", help="A file, a name, or a family.")],
    host: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="Send this host's probes from its machine; default: print the plan."),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="UDP destination port, as in the watch rule.")] = 9,
    interval_ms: Annotated[
        int,
        typer.Option("--interval", "--interval-ms", parser=in_milliseconds(1), help="Between probes to a host."),
    ] = 10,
) -> None:
    """Probe every link in both directions until Ctrl-C, so that links without traffic are measured."""
    from controller.network.telemetry_probing.plan import plan_probes  # noqa: PLC0415
    from controller.network.telemetry_probing.sender import ProbeSender, ProbeSettings  # noqa: PLC0415
    from dataplane.topology.file import load_topology  # noqa: PLC0415

    topology = load_topology(topology_spec)
    plan = plan_probes(topology)
    if host is None:
        for src, dst in plan.pairs:
            typer.echo(f"{src} {dst}")
        for link in plan.uncovered:
            typer.echo(f"no base path crosses {link}", err=True)
        return
    if host not in topology.host:
        raise ControllerError(f"topology {topology.name} has no host {host!r}")
    targets = [topology.host[dst].ipv4 for src, dst in plan.pairs if src == host]
    settings = ProbeSettings(udp_port=port, interval_ns=interval_ms * MS)
    hosts = "host" if len(targets) == 1 else "hosts"
    typer.echo(f"millrace telemetry probe: to {len(targets)} other {hosts}, every {interval_ms} ms", err=True)
    if targets:
        with suppress(KeyboardInterrupt):
            asyncio.run(ProbeSender(topology.host[host].ipv4, targets, settings).run())


telemetry = typer.Typer(name="telemetry", help="Query a running collector, or its history.", no_args_is_help=True)


telemetry.command()(events)
telemetry.command()(rules)
telemetry.command()(jobs)
telemetry.command()(links)
telemetry.command()(top)
telemetry.command()(probe)
telemetry.command()(replay)


@telemetry.command()
def query(
    statement: Annotated[str, typer.Argument(metavar="SQL", help='One SELECT: "select * from links limit 5".')],
    folder: Annotated[Path, typer.Option("--history", "-d", metavar="FOLDER", help="The collector's history.")],
    form: FormatOption = Format.TABLE,
) -> None:
    """Query a history in SQL (DuckDB): links, paths, events, drops, reporters, clocks, counters; read-only."""
    from collectors.history.query import query as ask_history  # noqa: PLC0415

    answer = ask_history(folder, statement, lambda problem: typer.echo(f"millrace telemetry: {problem}", err=True))
    show(answer.columns, _rows(answer), form)


@telemetry.command()
def paths(feed: Feed = FEED, form: FormatOption = Format.TABLE) -> None:
    """List recently measured flows and their paths."""
    states = list(ask(feed, snapshot_of).paths.values())
    if form is not Format.TABLE:
        show_values(states, PathState, form)
        return
    columns = ("flow", "path", "delay ms", "p99 ms", "free Mbit/s", "sends Mbit/s", "loss %", "age s")
    show(columns, map(_path_cells, states), form)


@telemetry.command()
def reporters(feed: Feed = FEED, form: FormatOption = Format.TABLE) -> None:
    """List reporters, with reports received, missing, late and duplicate."""
    show_values(list(ask(feed, snapshot_of).reporters.values()), ReporterState, form)


@telemetry.command()
def status(feed: Feed = FEED, form: FormatOption = Format.TABLE) -> None:
    """List the collector's load and counters, and why it rejected the last bad report."""
    found = ask(feed, lambda client: client.status())
    # Programs read the counters as numbers; they find the load in the metrics.
    load = list(load_rows(found.load)) if form is Format.TABLE else []
    show(("counter", "count"), [*load, *sorted(found.counters.items())], form)
    if found.last_problem is not None:
        typer.echo(f"last problem: {found.last_problem}", err=True)
    warn_overloads(found.load)


def _rows(answer: Answer) -> Iterator[tuple[object, ...]]:
    for batch in answer.batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _path_cells(path: PathState) -> tuple[object, ...]:
    return (
        str(path.flow),
        path.switches,
        milliseconds(path.delay_ns),
        milliseconds(path.delay_p99_ns),
        f"{path.bottleneck_bps / 1e6:.3f}",
        None if path.rate_bps is None else f"{path.rate_bps / 1e6:.3f}",
        percent(path.loss),
        seconds(path.age_ns),
    )
