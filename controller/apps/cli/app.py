"""The commands of `millrace`. Each imports what it needs when it runs, so that `millrace --help` stays quick."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from controller.apps.cli.accel.commands import accel
from controller.apps.cli.alto import alto
from controller.apps.cli.api import api
from controller.apps.cli.balance.commands import balance
from controller.apps.cli.centre import centre
from controller.apps.cli.certs import certs
from controller.apps.cli.common import SettingsFile, log_to_stderr, ready, say
from controller.apps.cli.config import config
from controller.apps.cli.demo import demo
from controller.apps.cli.devices import devices
from controller.apps.cli.fabric import fabric
from controller.apps.cli.install_shims import install_shims
from controller.apps.cli.job import job
from controller.apps.cli.log import OPTIONS, LogFormat, LogLevel, LogOptions
from controller.apps.cli.nic import nic
from controller.apps.cli.node import node
from controller.apps.cli.paths import paths
from controller.apps.cli.placement import placement
from controller.apps.cli.pod.commands import pod
from controller.apps.cli.ports import ports
from controller.apps.cli.probe.commands import probe
from controller.apps.cli.project import project
from controller.apps.cli.resources import delete, describe, get
from controller.apps.cli.scheduler import scheduler
from controller.apps.cli.state.arrays import counter, register
from controller.apps.cli.state.switch import switch_show
from controller.apps.cli.state.tables import table
from controller.apps.cli.stf import stf
from controller.apps.cli.store import store
from controller.apps.cli.task.commands import task
from controller.apps.cli.telemetry.commands import telemetry
from controller.apps.cli.topology import topology
from controller.apps.cli.trace import trace
from controller.apps.cli.up import down, logs, status, up

app = typer.Typer(
    name="millrace",
    help="In-network computing: P4 switches, in-band network telemetry, traffic engineering, in-network aggregation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(accel)
app.add_typer(api)
app.add_typer(balance)
app.add_typer(centre)
app.add_typer(certs)
app.add_typer(config)
app.add_typer(demo)
app.add_typer(fabric)
app.add_typer(alto)
app.add_typer(job)
app.add_typer(nic)
app.add_typer(node)
app.add_typer(paths)
app.add_typer(placement)
app.add_typer(project)
app.add_typer(pod)
app.add_typer(ports)
app.add_typer(probe)
app.add_typer(scheduler)
app.add_typer(counter)
app.add_typer(register)
app.add_typer(store)
app.add_typer(table)
app.add_typer(task)
app.add_typer(telemetry)
app.add_typer(topology)
app.command()(devices)
app.command()(up)
app.command()(status)
app.command()(down)
app.command()(logs)
app.command()(get)
app.command()(describe)
app.command()(delete)
app.command()(stf)
app.command()(install_shims)
app.command()(trace)


def _version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        typer.echo(f"millrace {version('millrace-net')}")
    except PackageNotFoundError:
        typer.echo("millrace, not installed: a checkout")
    raise typer.Exit


@app.callback()
def _millrace(
    version: Annotated[  # noqa: ARG001 - it acts by itself
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version this is.")
    ] = False,
    log_level: Annotated[
        LogLevel, typer.Option(envvar="MILLRACE_LOG_LEVEL", help="Of daemons: what is less is left out.")
    ] = LogLevel.INFO,
    log_format: Annotated[
        LogFormat, typer.Option(envvar="MILLRACE_LOG_FORMAT", help="Of daemons: for people, programs, or journals.")
    ] = LogFormat.TEXT,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No ready line, no progress; of logs warnings and errors.")
    ] = False,
) -> None:
    level = max(log_level, LogLevel.WARNING, key=list(LogLevel).index) if quiet else log_level
    OPTIONS.set(LogOptions(level, log_format, quiet))


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def switch(context: typer.Context) -> None:
    """Run a switch: a compiled P4 program between network devices, with P4Runtime; `show ADDRESS`: look into one."""
    if context.args[:1] == ["show"]:
        looking = typer.main.get_command(switch_show)
        with looking.make_context("show", context.args[1:], parent=context) as inner:
            looking.invoke(inner)
        return
    from dataplane.switch import process  # noqa: PLC0415

    raise typer.Exit(process.main(context.args))


@app.command()
def collector(settings: SettingsFile) -> None:
    """Run the collector: receive telemetry reports by UDP, serve the state of the network."""
    from collectors import process  # noqa: PLC0415

    log_to_stderr("collector")
    process.run(
        process.load_settings(settings),
        ready("collector"),
        reload=lambda: process.load_settings(settings),
        on_reload=say("collector"),
    )


@app.command()
def controller(settings: SettingsFile) -> None:
    """Run the controller daemon: reconcile the tables of all switches over P4Runtime."""
    from controller.network import process  # noqa: PLC0415

    log_to_stderr("controller")
    process.run(process.load_settings(settings), ready("controller"), reload=lambda: process.load_settings(settings))


@app.command()
def clean(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Say what would be removed, and remove nothing.")
    ] = False,
) -> None:
    """Remove namespaces and processes left behind by a killed kernel fabric or benchmark (root)."""
    from dataplane.fabric.kernel.manifest import find_leftovers, remove_leftovers  # noqa: PLC0415

    problems: list[str] = []
    if dry_run:
        found = find_leftovers(on_problem=problems.append)
        lines = [
            f"{one.fabric_id}: {_named('namespace', one.namespaces)}; {_named('process', one.pids)}" for one in found
        ]
    else:
        lines = remove_leftovers(on_problem=problems.append)
    if lines or not problems:
        typer.echo("\n".join(lines) if lines else "nothing was left behind")
    for problem in problems:
        typer.echo(problem, err=True)
    if problems:
        raise typer.Exit(1)


def _named(kind: str, found: Sequence[object]) -> str:
    """Return how many there are of a kind, and which."""
    many = kind if len(found) == 1 else f"{kind}es" if kind.endswith("s") else f"{kind}s"
    return f"{len(found)} {many}" + (f" ({' '.join(map(str, found))})" if found else "")
