"""`millrace telemetry`: a collector's current state, and its history."""

from __future__ import annotations

import asyncio
import getpass
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from collectors.values import ChildState, Event, JobKey, JobState, PathState, ReporterState
from controller.apps.cli.network.feed import FEED, Feed, ask, snapshot_of
from controller.apps.cli.shared.amounts import in_milliseconds
from controller.apps.cli.shared.daemon_rows import load_rows, warn_overloads
from controller.apps.cli.shared.output import Cells, Format, FormatOption, flat, line_of, show, show_values, utc
from controller.apps.cli.shared.units import milliseconds, percent, seconds
from controller.apps.cli.telemetry.links import links, top, warn_of_silence
from controller.apps.cli.telemetry.replay import replay
from controller.common.errors import ControllerError
from dataplane.clock import NS_PER_MS, NS_PER_S
from dataplane.running import stop_on_signals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from collectors.events.rules import Rule
    from collectors.feed.client import FeedClient
    from collectors.history.query import Answer


_JOBS = ("job", "epoch", "at", "items/s", "cells", "p50 ms", "p99 ms", "max ms", "sent again", "waits for", "age s")
_CHILDREN = ("job", "at", "child", "last %", "mean ms", "max ms", "costs ms", "last")


def jobs(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="Show the workers of this job: number or name.")
    ] = None,
    feed: Feed = FEED,
    form: FormatOption = Format.TABLE,
) -> None:
    """List jobs of in-network aggregation, or the workers that one job's items wait for, and for how long."""
    states = list(ask(feed, snapshot_of).jobs.values())
    if job is None:
        _show_jobs(states, form)
    else:
        _show_children(_matching_jobs(states, job), form)


def _matching_jobs(states: list[JobState], wanted: str) -> list[JobState]:
    matching = [state for state in states if wanted in (str(state.key.job), state.name)]
    if not matching:
        names = ", ".join(dict.fromkeys(_name(state) for state in states)) or "none"
        raise ControllerError(f"job {wanted}: no switch has reported its items recently; known jobs: {names}")
    return matching


def _show_jobs(states: list[JobState], form: Format) -> None:
    if form is Format.TABLE:
        by_key = {state.key: state for state in states}
        show(_JOBS, (_job_cells(state, by_key) for state in states), form)
        return
    rows = [flat(replace(state, children=())) for state in states]
    columns = [name for name in (rows[0] if rows else ("job", "switch")) if name != "children"]
    show(columns, ([row[name] for name in columns] for row in rows), form)


def _show_children(states: list[JobState], form: Format) -> None:
    children = [(state, child) for state in states for child in state.children]
    if form is Format.TABLE:
        show(_CHILDREN, (_child_cells(state, child) for state, child in children), form)
        return
    # The job's name first, then the child's own column of the same name.
    rows = [{**flat(child), "child": child.key.name, "name": state.name} for state, child in children]
    show(list(rows[0]), (list(row.values()) for row in rows), form)


def _name(state: JobState) -> str:
    return str(state.key.job) if state.name is None else f"{state.key.job} {state.name}"


def _job_cells(state: JobState, jobs: Mapping[JobKey, JobState]) -> Cells:
    return (
        _name(state),
        state.epoch,
        state.key.switch,
        None if state.items_per_s is None else f"{state.items_per_s:.0f}",
        state.cells_used if state.cells is None else f"{state.cells_used} of {state.cells}",
        *(f"{wait_ns / 1e6:.3f}" for wait_ns in (state.wait_p50_ns, state.wait_p99_ns, state.wait_max_ns)),
        state.repeated,
        _awaited(state, jobs),
        f"{state.age_ns / NS_PER_S:.1f}",
    )


def _awaited(state: JobState, jobs: Mapping[JobKey, JobState]) -> str | None:
    """Return the child that a job waits for most, with its share of items; for a rack, also the rack's child."""
    slowest = next(iter(state.children), None)
    if slowest is None:
        return None
    rack = jobs.get(JobKey(state.key.job, slowest.key.name))
    inside = "" if rack is None or not rack.children else f" ({rack.children[0].key.name})"
    return f"{slowest.key.name}{inside} {100 * slowest.last_share:.0f} %"


def _child_cells(state: JobState, child: ChildState) -> Cells:
    waits = (child.wait_mean_ns, child.wait_max_ns, child.wait_caused_ns)
    return (
        _name(state),
        child.key.switch,
        child.key.name,
        f"{100 * child.last_share:.1f}",
        *(None if wait_ns is None else f"{wait_ns / 1e6:.3f}" for wait_ns in waits),
        child.last,
    )


_COLUMNS = ("time", "phase", "rule", "subject", "figure", "value", "threshold", "note")


def events(
    feed: Feed = FEED,
    form: FormatOption = Format.TABLE,
    follow: Annotated[
        bool, typer.Option("--follow", "-F", help="Follow new events, one line each, until Ctrl-C.")
    ] = False,
) -> None:
    """List the events that the collector keeps, raised and cleared by rules, oldest first; times are UTC."""
    if not follow:
        began_ns, kept = ask(feed, _kept)
        show(_columns(form), (_cells(event, began_ns, form) for event in kept), form)
        return
    with suppress(KeyboardInterrupt):
        ask(feed, lambda client: _follow(client, form), patience_s=None)


def acknowledge(
    rule: Annotated[str, typer.Argument(help="Name of the event's rule.")],
    subject: Annotated[str, typer.Argument(help="Its subject, as `millrace telemetry events` lists it.")],
    note: Annotated[str, typer.Option(metavar="TEXT", help="Note that is shown with the event.")] = "",
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Withdraw an acknowledgement.")] = False,
    feed: Feed = FEED,
) -> None:
    """Acknowledge an open event: it stays listed, with your name and note, and no longer counts as an alarm."""
    by = getpass.getuser()
    ask(feed, lambda client: client.acknowledge(rule, subject, note, by=by, withdraw=withdraw))


def rules(
    feed: Feed = FEED,
    form: FormatOption = Format.TABLE,
    replacement: Annotated[
        Path | None,
        typer.Option("--set", metavar="FILE", help="Replace all rules by the `rules` of a YAML or TOML file."),
    ] = None,
) -> None:
    """List the active rules, or replace all of them while the collector runs."""
    if replacement is not None:
        _replace(feed, replacement)
    state = ask(feed, lambda client: client.rule_state())
    active = state.rules
    if form is Format.TABLE:
        columns = ("rule", "scope", "figure", "raised", "cleared", "hold s", "of", "changed by")
        changed = {change.name: change.by for change in state.changes}
        show(columns, ((*_rule_cells(rule), changed.get(rule.name)) for rule in active), form)
        for change in state.changes:
            if change.rule is None:
                typer.echo(f"rule {change.name} of the settings was removed by {change.by}", err=True)
    else:
        rows = [msgspec.to_builtins(msgspec.structs.asdict(rule)) for rule in active]
        show(list(rows[0]) if rows else ["name"], [list(row.values()) for row in rows], form)


def _replace(feed: str, file: Path) -> None:
    from collectors.events.rules import RuleSettings  # noqa: PLC0415
    from dataplane.config import load  # noqa: PLC0415

    wanted = load(file, RuleSettings).rules
    by = getpass.getuser()
    ask(feed, lambda client: client.set_rules(wanted, by=by))


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
    return _COLUMNS if form is Format.TABLE else (*_COLUMNS, "severity", "evidence")


def _cells(event: Event, began_ns: int, form: Format) -> Cells:
    about = (event.phase, event.rule, event.subject, event.figure, event.value, event.threshold)
    note = None if event.note is None else f"{event.note.by}: {event.note.text}".removesuffix(": ")
    cells = (utc(event.time_ns + began_ns), *about, note)
    if form is Format.TABLE:
        return cells
    evidence = [
        {"time": utc(row.time_ns + began_ns), "figure": row.figure, "value": row.value} for row in event.evidence
    ]
    return (*cells, event.severity, evidence)


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


def probe(
    topology_spec: Annotated[str, typer.Option("--topology", metavar="FILE", help="A file, a name, or a family.")],
    host: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="Send this host's probes from its machine; default: print the plan."),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="UDP destination port, as in the watch rule.")] = 9,
    interval_ms: Annotated[
        int,
        typer.Option("--interval", "--interval-ms", parser=in_milliseconds(1), help="Time between probes to a host."),
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
    settings = ProbeSettings(udp_port=port, interval_ns=interval_ms * NS_PER_MS)
    hosts = "host" if len(targets) == 1 else "hosts"
    typer.echo(f"millrace telemetry probe: to {len(targets)} other {hosts}, every {interval_ms} ms", err=True)
    if targets:
        with suppress(KeyboardInterrupt):
            asyncio.run(ProbeSender(topology.host[host].ipv4, targets, settings).run())


telemetry = typer.Typer(name="telemetry", help="Query a running collector, or its history.", no_args_is_help=True)


telemetry.command()(events)
telemetry.command()(acknowledge)
telemetry.command()(rules)
telemetry.command()(jobs)
telemetry.command()(links)
telemetry.command()(top)
telemetry.command()(probe)
telemetry.command()(replay)


@telemetry.command()
def query(
    statement: Annotated[str, typer.Argument(metavar="SQL", help='One SELECT: "select * from links limit 5".')],
    history: Annotated[
        str, typer.Option("--history", "-d", metavar="FOLDER", help="The collector's history, or s3://BUCKET/PREFIX.")
    ],
    form: FormatOption = Format.TABLE,
) -> None:
    """Query a history in SQL (DuckDB): links, paths, events, moves, drops, reporters, clocks, counters; read-only."""
    if history.startswith("s3:"):
        from collectors.history.objects.query import bucket_at, query_objects  # noqa: PLC0415

        answer = query_objects(bucket_at(history), statement)
    else:
        from collectors.history.query import query as ask_history  # noqa: PLC0415

        def warn(problem: str) -> None:
            typer.echo(f"millrace telemetry: {problem}", err=True)

        answer = ask_history(Path(history), statement, warn)
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
    current = ask(feed, lambda client: client.status())
    warn_of_silence(current)
    # Programs read the counters as numbers; they find the load in the metrics.
    load = list(load_rows(current.load)) if form is Format.TABLE else []
    rows = [*load, *sorted(current.counters.items())]
    if rows or form is not Format.TABLE:
        show(("counter", "count"), rows, form)
    if current.last_problem is not None:
        typer.echo(f"last problem: {current.last_problem}", err=True)
    warn_overloads(current.load)


@telemetry.command()
def reflect(
    address: Annotated[str, typer.Option(metavar="HOST[:PORT]", help="Where to answer; STAMP's port is 862.")] = (
        "127.0.0.1"
    ),
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Answer only to packets signed with the key in this file.")
    ] = None,
) -> None:
    """Answer STAMP probes (RFC 8762) until interrupted, for collectors that measure the delay to this host."""
    from collectors.stamp.reflector import Reflector  # noqa: PLC0415
    from collectors.stamp.sender import host_and_port, read_key  # noqa: PLC0415

    host, port = host_and_port(address, "--address")
    secret = read_key(None if key is None else str(key))

    async def answer() -> None:
        reflector, stop = Reflector(host, port, secret), stop_on_signals()
        typer.echo(f"reflecting at {host} port {reflector.port}")
        answering = asyncio.create_task(reflector.run())
        await stop.wait()
        answering.cancel()
        await asyncio.wait([answering])
        typer.echo(f"{reflector.answered} answered, {reflector.refused} refused")

    asyncio.run(answer())


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
