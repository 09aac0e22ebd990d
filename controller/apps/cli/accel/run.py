"""`millrace accel run`: run a statement or an operator on workers, and compare its time with the model's."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.acceleration.running.errors import StatementError
from controller.apps.cli.accel.ground import FeedOption, HardwareOption, ServerOption, TopologyOption, rate_of
from controller.apps.cli.accel.on_spark import LOCAL, Spark
from controller.apps.cli.shared.amounts import in_seconds
from controller.apps.cli.shared.common import slow
from controller.apps.cli.shared.output import Cells, Format, FormatOption, show

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from controller.acceleration.network.hardware import Hardware
    from controller.acceleration.running.clusters import Cluster
    from controller.acceleration.running.comparing import Comparison, Processing
    from controller.acceleration.running.shares import Shares
    from controller.acceleration.running.values import Plan
    from controller.acceleration.values import Machines, Times
    from controller.cluster.cost_map import CostMap


@dataclass(frozen=True, slots=True)
class Between:
    """Paths from a cost map, else a rate for each worker's link; and notes, one line each."""

    hardware: Hardware
    costs: CostMap | None
    rate_bps: float
    notes: tuple[str, ...] = ()

    def machines(self, addresses: Sequence[str], fan_in: int) -> tuple[Machines, tuple[str, ...]]:
        """Return the workers as the model's machines, in the order of the reduction, and notes."""
        from controller.acceleration.running.comparing import members  # noqa: PLC0415
        from controller.acceleration.running.hosts import hosts_of, machines_between  # noqa: PLC0415

        efficiency = self.hardware.network_efficiency
        if self.costs is None:
            return members(len(addresses), fan_in, efficiency * self.rate_bps / 1e9), self.notes
        hosts, notes = hosts_of(addresses, self.hardware, self.costs)
        machines, more = machines_between(self.costs, hosts, fan_in, efficiency)
        return machines, (*self.notes, *notes, *more)


def between_of(
    *, rate: str | None, topology: str | None, hardware: Path | None, feed: str | None, server: str | None
) -> Between:
    """Resolve the options; without any of them the network takes no time.

    Raises typer.BadParameter for incompatible options, and the errors of files and servers.
    """
    from controller.acceleration.network.hardware import Hardware, load_hardware  # noqa: PLC0415
    from controller.acceleration.network.loading import BASE_ROUTES, costs_of  # noqa: PLC0415
    from dataplane.topology.file import load_topology  # noqa: PLC0415

    if rate is not None and topology is not None:
        raise typer.BadParameter("--rate and --topology exclude each other")
    if topology is None and feed is not None:
        raise typer.BadParameter("--feed requires --topology")
    if server is not None and feed is None:
        raise typer.BadParameter("--server requires --feed")
    asked = Hardware() if hardware is None else load_hardware(hardware)
    if topology is None:
        return Between(asked, None, math.inf if rate is None else rate_of(rate))
    notes = (BASE_ROUTES,) if feed is not None and server is None else ()
    return Between(asked, costs_of(load_topology(topology), feed, server), math.inf, notes)


_PARTS = ("compute", "aggregation", "transfer", "bus", "compression")


@slow("running")
def run(  # noqa: PLR0917 - a command line's options
    what: Annotated[
        str, typer.Argument(metavar="STATEMENT|OPERATOR", help="A SELECT, or filter, aggregate, join, sort.")
    ],
    table: Annotated[list[str], typer.Option("--table", metavar="NAME=FILE", help="Parquet or CSV; repeatable.")],
    sharded: Annotated[
        str | None, typer.Option(metavar="NAME", help="Table split across workers; default: the largest.")
    ] = None,
    processes: Annotated[int | None, typer.Option(min=1, max=256, help="Start this many workers here.")] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="ADDRESS,...", help="Use these workers: HOST:PORT or unix:PATH each.")
    ] = None,
    secret_file: Annotated[
        Path | None, typer.Option("--secret-file", metavar="FILE", help="With --workers: their secret file.")
    ] = None,
    fan_in: Annotated[int, typer.Option("--fan-in", "-k", min=2, max=1000, help="Fan-in of the reduction tree.")] = 10,
    engine: Annotated[str, typer.Option(metavar="ENGINE", help="duckdb, numpy, torch or torch-cuda.")] = "duckdb",
    column: Annotated[str, typer.Option(metavar="NAME", help="Column to filter, group, join or sort by.")] = "",
    below: Annotated[float, typer.Option(help="filter: keep rows below this value.")] = 0.0,
    sums: Annotated[list[str] | None, typer.Option("--sum", metavar="NAME", help="aggregate: column to sum.")] = None,
    other: Annotated[str, typer.Option(metavar="NAME", help="join: table held whole by each worker.")] = "",
    limit: Annotated[int, typer.Option(min=0, max=1 << 40, help="sort: number of rows to keep; 0: all.")] = 0,
    compare: Annotated[bool, typer.Option("--compare", help="Compare predicted and measured times.")] = False,
    rate: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="--compare: rate of each worker's link, as '1 Gbit/s'; default: inf."),
    ] = None,
    topology: TopologyOption = None,
    hardware: HardwareOption = None,
    feed: FeedOption = None,
    server: ServerOption = None,
    share: Annotated[
        int | None, typer.Option(metavar="MILLI", min=10, max=1000, help="Thousandths of a core per process (root).")
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Run what cannot be split on a Spark cluster of --processes workers.")
    ] = False,
    spark_master: Annotated[
        str | None, typer.Option("--spark-master", metavar="URL", help="Run it there: spark://HOST:PORT or local[N].")
    ] = None,
    spark_settings: Annotated[
        Path | None,
        typer.Option("--spark-settings", metavar="FILE", help="--spark-master: its settings, as spark-defaults.conf."),
    ] = None,
    deadline: Annotated[float, typer.Option(parser=in_seconds(0.1, 86_400), help="Time limit of a run.")] = 60.0,
    form: FormatOption = Format.TABLE,
) -> None:
    """Run a statement or operator on workers that reduce over a tree; print its rows, with --compare its times."""
    network = {"rate": rate, "topology": topology, "hardware": hardware, "feed": feed, "server": server}
    if not compare and (option := next((name for name, value in network.items() if value is not None), None)):
        raise typer.BadParameter(f"--{option} requires --compare: a run uses the actual network")
    between = between_of(rate=rate, topology=topology, hardware=hardware, feed=feed, server=server)
    tables = _tables(table)
    from controller.acceleration.running.spark.choosing import hinted  # noqa: PLC0415

    elsewhere = Spark(spark_master or (LOCAL if spark else ""), spark_settings, processes)
    elsewhere.check()
    try:
        plan = _plan(what, engine, tables, sharded, _Words(column, below, tuple(sums or ()), other, limit))
    except StatementError as reason:
        if not elsewhere.master:
            raise hinted(what, tables, reason) from None
        if compare:
            raise typer.BadParameter(f"--compare is of statements that are split: {reason}") from None
        outcome = elsewhere.run(what, tables, reason, deadline)
        _show_rows(outcome.table, form)
        way = f"on Spark in {outcome.run_time_s:.3g} s, after {outcome.start_s:.3g} s for its start"
        typer.echo(f"{way}: {reason}", err=form is not Format.TABLE)
        return
    if form is Format.TABLE:
        _warn(processes, share)
    with _available_workers(processes, workers, secret_file, share) as hand:
        hand.plan, hand.deadline_s = plan, deadline
        if compare:
            machines, notes = between.machines(hand.addresses, fan_in)
            _compare(hand, plan, tables, machines, form)
            for note in notes:
                typer.echo(note, err=form is not Format.TABLE)
            return
        with hand.cluster(len(hand.addresses)) as cluster:
            cluster.load(tables)
            hand.hold()
            run_times = cluster.run(fan_in)
            result = cluster.result()
    _show_rows(result, form)
    if form is Format.TABLE or elsewhere.master:
        way = "split: " if elsewhere.master else ""
        taken = f"{run_times.run_time_s:.3g} s on {len(run_times.workers)} workers"
        typer.echo(f"{way}{taken}, until the first had merged everything", err=form is not Format.TABLE)


@dataclass(frozen=True, slots=True)
class _Words:
    """Operator options from the command line."""

    column: str
    below: float
    sums: tuple[str, ...]
    other: str
    limit: int


@dataclass(slots=True)
class _Hand:
    """Available workers, and a factory of sessions with the first of them."""

    addresses: tuple[str, ...]
    secret: bytes
    shares: Shares | None = None
    plan: Plan | None = None
    deadline_s: float = 60.0

    def cluster(self, count: int) -> Cluster:
        from controller.acceleration.running.clusters import Cluster  # noqa: PLC0415

        assert self.plan is not None
        return Cluster(self.addresses[:count], self.secret, self.plan, deadline_s=self.deadline_s)

    def hold(self) -> None:
        if self.shares is not None:
            self.shares.limited(is_limited=True)


@contextmanager
def _available_workers(
    processes: int | None, workers: str | None, secret_file: Path | None, share: int | None
) -> Iterator[_Hand]:
    """Yield workers that run elsewhere, or start some here and end them."""
    from controller.acceleration.running import secret_files  # noqa: PLC0415
    from controller.acceleration.running.shares import Shares  # noqa: PLC0415
    from controller.acceleration.running.starting import LocalWorkers  # noqa: PLC0415

    if (processes is None) == (workers is None):
        raise typer.BadParameter("give either --processes or --workers")
    if workers is not None:
        if secret_file is None:
            raise typer.BadParameter("--workers requires --secret-file")
        if share is not None:
            raise typer.BadParameter("--share requires --processes")
        yield _Hand(tuple(filter(None, workers.split(","))), secret_files.read(secret_file))
        return
    assert processes is not None
    with ExitStack() as stack:
        local = stack.enter_context(LocalWorkers(processes))
        hand = _Hand(local.addresses, local.secret)
        if share is not None:
            hand.shares = stack.enter_context(Shares([process.pid for process in local.processes], share))
        yield hand


def _warn(processes: int | None, share: int | None) -> None:
    """Warn if workers would compete for cores."""
    cores = len(os.sched_getaffinity(0))
    if processes is not None and processes * (share or 1000) > cores * 1000:
        typer.echo(f"{processes} workers compete for {cores} cores; --share limits each (root)", err=True)


def _tables(given: list[str]) -> dict[str, pa.Table]:
    """Return the tables in files; raise RunError naming one that cannot be read."""
    import duckdb  # noqa: PLC0415

    from controller.acceleration.running.errors import RunError  # noqa: PLC0415
    from controller.acceleration.running.statements.splitting import LOSSLESS  # noqa: PLC0415

    tables = {}
    for spec in given:
        name, equals, file = spec.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"--table {spec}: expected NAME=FILE")
        if not Path(file).is_file():
            raise RunError(f"table {name}: no such file: {file}")
        try:
            with duckdb.connect(":memory:") as connection:
                connection.execute(LOSSLESS)
                tables[name] = connection.from_query("SELECT * FROM query_table($1)", params=[file]).to_arrow_table()
        except duckdb.Error as error:
            raise RunError(f"table {name}: {file}: {str(error).splitlines()[0]}") from None
    return tables


def _plan(what: str, engine: str, tables: dict[str, pa.Table], sharded: str | None, words: _Words) -> Plan:
    """Return the plan to run."""
    from controller.acceleration.running.operators import plan_of_operator, plan_of_statement  # noqa: PLC0415
    from controller.acceleration.running.values import Engine, Operator, OperatorKind  # noqa: PLC0415

    if engine not in set(Engine):
        raise typer.BadParameter(f"--engine {engine}: expected one of {', '.join(Engine)}")
    if sharded is not None and sharded.lower() not in {name.lower() for name in tables}:
        raise typer.BadParameter(f"--sharded {sharded}: no --table has that name")
    if what not in set(OperatorKind):
        if engine != Engine.DUCKDB:
            raise typer.BadParameter(f"--engine {engine} runs {', '.join(OperatorKind)}; statements require duckdb")
        return plan_of_statement(what, tables, sharded)
    kind = OperatorKind(what)
    if (kind is OperatorKind.JOIN) != bool(words.other):
        raise typer.BadParameter("--other requires join, and join requires --other")
    names = [name for name in tables if name != words.other]
    name = sharded or max(names, key=lambda label: int(tables[label].nbytes), default="")
    operator = Operator(
        kind=kind,
        table=name,
        column=words.column,
        below=words.below,
        sums=words.sums,
        other=words.other,
        limit=words.limit,
    )
    return plan_of_operator(operator, tables, Engine(engine))


def _compare(hand: _Hand, plan: Plan, tables: dict[str, pa.Table], machines: Machines, form: Format) -> None:
    """Print predicted and measured times of one worker with all the data, and of all workers."""
    from controller.acceleration.running.measuring import compared  # noqa: PLC0415

    hand.hold()
    comparison = compared(hand.cluster, plan, tables, machines)
    columns = ("machines", *(f"{part} s" for part in _PARTS), "predicted s", "measured s")
    rows = [
        _cells(1, comparison.one, comparison.one_measured_s),
        _cells(machines.count, comparison.all, comparison.all_measured_s),
    ]
    if form is not Format.JSON:
        rows = [(count, *(f"{seconds:.4f}" for seconds in others)) for count, *others in rows]
    show(columns, rows, form)
    if form is Format.TABLE:
        typer.echo(_verdict(comparison))
        if comparison.processing is not None:
            typer.echo(_processing(comparison.processing))


def _cells(count: int, times: Times, measured_s: float) -> Cells:
    return (count, *(getattr(times, f"{part}_s") for part in _PARTS), times.total_s, measured_s)


def _verdict(comparison: Comparison) -> str:
    ratios = f"{comparison.ratio:.3g} predicted, {comparison.measured_ratio:.3g} measured"
    return f"speed-up over one machine: {ratios}: {comparison.error:.1%} off"


def _processing(processing: Processing) -> str:
    """Print the network's share of a worker's processor, and how to declare it in a hardware file."""
    received, sent = (
        f"{8 / s_per_gb:.2g} Gbit/s" if s_per_gb > 0 else "any rate"
        for s_per_gb in (processing.receive_s_per_gb, processing.send_s_per_gb)
    )
    return f"a worker's processor can receive {received} and send {sent}; set a hardware file's host_rate to the lower"


def _all_digits(values: list[object], kind: str) -> list[object]:
    """Return a column's numbers with all digits that their type holds: results, unlike figures, are not rounded."""
    digits = {"float": 7, "double": 15}.get(kind)
    if digits is None:
        return values
    return [value if value is None else f"{value:.{digits}g}" for value in values]


def _show_rows(result: pa.Table, form: Format) -> None:
    columns = [column.to_pylist() for column in result.columns]
    if form is Format.TABLE:
        columns = [_all_digits(values, str(kind)) for values, kind in zip(columns, result.schema.types, strict=True)]
    rows: Iterator[tuple[object, ...]] = zip(*columns, strict=True)
    if form is not Format.TABLE:
        rows = (tuple(_in_json(value) for value in row) for row in rows)
    show(_distinct(result.column_names) if form is Format.JSON else result.column_names, rows, form)


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names of an object's members: a second column of a name gets `_1`, and so on."""
    distinct: list[str] = []
    for name in names:
        number = 1
        unique = name
        while unique in distinct:
            unique = f"{name}_{number}"
            number += 1
        distinct.append(unique)
    return distinct


def _in_json(value: object) -> object:
    """Return a value with texts for the numbers that JSON lacks: Infinity, -Infinity and NaN."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case list():
            return [_in_json(each) for each in value]
        case dict():
            return {name: _in_json(each) for name, each in value.items()}
        case _:
            return value
