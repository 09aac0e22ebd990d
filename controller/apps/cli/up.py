"""`millrace up`, `status`, `restart`, `down` and `logs`: all daemons together."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.shared.common import say, slow, working
from controller.apps.cli.shared.output import Format, show

if TYPE_CHECKING:
    from datetime import datetime

    from controller.apps.up.values import DaemonState, UpState

StateOption = Annotated[
    Path | None,
    typer.Option("--state", metavar="FOLDER", help="Settings, data and logs; default: ~/.local/state/millrace/up."),
]


_SHOWN_INCIDENTS: Final = 3
_COLUMNS: Final = ("daemon", "state", "pid", "for", "restarts", "health")


class TimeOption(StrEnum):
    """Clock of the fabric."""

    VIRTUAL = "virtual"
    KERNEL = "kernel"


def up(
    topology: Annotated[str | None, typer.Argument(metavar="[TOPOLOGY]", help="A file, a name, or a family.")] = None,
    time: Annotated[TimeOption | None, typer.Option(help="Virtual time in one process, or namespaces (root).")] = None,
    state: StateOption = None,
    settings: Annotated[
        Path | None,
        typer.Option("--settings", "-s", metavar="FILE", help="Settings; default: millrace.yaml in the state folder."),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return when everything is ready.")] = False,
) -> None:
    """Start a fabric and all daemons under one supervisor, which keeps them running."""
    from controller.apps.up import command  # noqa: PLC0415
    from dataplane.fabric.live.settings import Time  # noqa: PLC0415

    options = command.UpOptions(topology, None if time is None else Time(time), state, settings)
    if detach:
        command.detach(options, typer.echo, lambda line: typer.echo(line, err=True))
    else:
        command.run(options, typer.echo)


def status(
    state: StateOption = None,
    form: Annotated[
        Format, typer.Option("--format", "-f", "--output", "-o", help="A table, CSV, or JSON with all details.")
    ] = Format.TABLE,
) -> None:
    """Show the current state of every daemon; exit 1 unless all are healthy."""
    from controller.apps.up import command  # noqa: PLC0415

    current = command.status(state)
    if form is Format.JSON:
        import msgspec  # noqa: PLC0415

        typer.echo(
            msgspec.json.format(msgspec.json.encode({"green": current.is_green, "up": current}), indent=2).decode()
        )
    elif form is Format.CSV:
        show(_COLUMNS, map(_cells, current.daemons), form)
    else:
        _show(current)
    if not current.is_green:
        raise typer.Exit(1)


def restart(
    daemon: Annotated[str, typer.Argument(metavar="DAEMON", help="Its name in `millrace status`.")],
    state: StateOption = None,
) -> None:
    """Restart one daemon of the running `millrace up`, with its newest settings, and return when it is ready."""
    from controller.apps.up import command  # noqa: PLC0415

    with working(f"restart of {daemon}"):
        took_s = command.restart(state, daemon)
    say("restart")(f"{daemon}: ready again after {took_s:.1f} s")


@slow("stopping the daemons in order")
def down(state: StateOption = None) -> None:
    """Stop everything that `millrace up` started; data and settings stay."""
    from controller.apps.up import command  # noqa: PLC0415

    command.down(state, typer.echo)


def logs(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A daemon; default: all.")] = None,
    state: StateOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the logs.")] = False,
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="Number of lines.")] = 200,
) -> None:
    """Show the daemons' logs in order of time."""
    from controller.apps.up import command  # noqa: PLC0415

    files = command.log_files(state, name)
    for line in command.merged_lines(files, last):
        typer.echo(line)
    if follow:
        for line in command.follow_lines(files):
            typer.echo(line)


def _show(state: UpState) -> None:
    typer.echo(f"{state.topology}, {state.fabric}; {state.folder}, supervisor {state.pid}")
    show(_COLUMNS, map(_cells, state.daemons), Format.TABLE)
    for line in incident_lines(state):
        typer.echo(line)


def incident_lines(state: UpState) -> list[str]:
    """Return deaths and restarts of the last hour, the oldest first; of each daemon the newest ones."""
    lines: list[tuple[datetime, str]] = []
    for daemon in state.daemons:
        shown = daemon.incidents[-_SHOWN_INCIDENTS:]
        earlier = daemon.restarts - len(shown)
        for incident in shown:
            ready = "" if incident.ready_after_s is None else f"; ready again after {incident.ready_after_s:.1f} s"
            before = f" ({earlier} more before, in the last hour)" if earlier and incident is shown[0] else ""
            line = f"{incident.at.astimezone():%H:%M:%S} {daemon.name}: {incident.how}{ready}{before}"
            lines.append((incident.at, line))
    return [line for _, line in sorted(lines)]


def _cells(daemon: DaemonState) -> tuple[object, ...]:
    mark = "ok" if daemon.is_green else "NOT OK"
    return (
        daemon.name,
        daemon.state,
        daemon.pid,
        f"{daemon.since_s:.0f} s",
        daemon.restarts,
        (f"{mark}: {daemon.health.text}"),
    )
