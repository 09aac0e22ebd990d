"""The commands of `millrace pod`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Iterable
from contextlib import nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.api import Address, client_of
from controller.apps.cli.output import Format, utc
from controller.apps.cli.output import show as show_rows
from controller.apps.cli.pod.apply import apply
from controller.apps.cli.pod.list import list_, phase_of
from controller.apps.cli.pod.top import top
from controller.apps.cli.pod.waiting import Timeout, Wait
from controller.apps.cli.pod.why import why

if TYPE_CHECKING:
    from controller.apiserver.client import SyncApiClient
    from controller.apiserver.resources import Pod
    from controller.apiserver.sessions.frames import Frame
    from controller.apps.cli.pod.terminal import Input


def schema() -> None:
    """Print the JSON Schema of a script's documents, for editors."""
    from controller.apiserver.manifests.schema import json_schema  # noqa: PLC0415

    typer.echo(json.dumps(json_schema(), indent=2))


Container = Annotated[str | None, typer.Option("--container", "-c", help="One of several containers.")]


def logs(
    name: Annotated[str, typer.Argument(metavar="POD")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with it as it is written.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, max=1_000_000, help="Begin with the last so many lines.")
    ] = None,
    container: Container = None,
    address: Address = None,
) -> None:
    """Show what a container of a pod has written: its output on stdout, its errors on stderr."""
    with client_of(address) as client:
        put_out(client.logs(name, container, follow=follow, tail=tail))


def put_out(frames: Iterable[Frame]) -> int:
    """Write frames to stdout and stderr as they come; return the exit status that ends them, raise ApiError."""
    from controller.apiserver.sessions.frames import Stream, error_of, exit_code_of  # noqa: PLC0415
    from controller.common.errors import ApiError, UnavailableError  # noqa: PLC0415

    for frame in frames:
        match frame.stream:
            case Stream.STDOUT:
                sys.stdout.buffer.write(frame.payload)
                sys.stdout.flush()
            case Stream.STDERR:
                sys.stderr.buffer.write(frame.payload)
                sys.stderr.flush()
            case Stream.EXIT:
                return exit_code_of(frame)
            case Stream.ERROR:
                raise ApiError(error_of(frame))
    raise UnavailableError("it broke off: the connection to the API server has ended")


_LAST_WORDS_S = 2.0
"""Time limit for the input-forwarding thread to end."""


def exec_(  # noqa: PLR0917 - a command line's options
    name: Annotated[str, typer.Argument(metavar="POD")],
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...")],
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Pass standard input on.")] = False,
    terminal: Annotated[bool, typer.Option("--terminal", "-t", help="Give the command a terminal.")] = False,
    container: Container = None,
    address: Address = None,
) -> None:
    """Run a command in a container of a pod; its exit status is ours. Options stand before the pod's name."""
    from controller.apiserver.sessions.values import ExecRequest  # noqa: PLC0415
    from controller.apps.cli.pod import terminal as own  # noqa: PLC0415
    from controller.common.errors import InvalidError  # noqa: PLC0415

    if terminal and not (sys.stdin.isatty() and stdin):
        raise InvalidError("-t needs -i and a terminal as standard input")
    asked = ExecRequest(
        command=tuple(command[1:] if command[0] == "--" else command),
        container=container,
        stdin=stdin,
        terminal=own.size() if terminal else None,
    )
    with client_of(address) as client:
        number = client.exec(name, asked)
        raw = own.raw(sys.stdin.fileno()) if terminal else nullcontext()
        with own.Input(sys.stdin.fileno(), resizes=terminal) if stdin else nullcontext() as given, raw:
            code = put_out(client.exec_output(number)) if given is None else _put_out_and_feed(client, number, given)
    raise typer.Exit(code if 0 <= code < 256 else 255)


def _put_out_and_feed(client: SyncApiClient, number: str, given: Input) -> int:
    feeding = threading.Thread(target=_feed, args=(client, number, given), daemon=True)
    feeding.start()
    try:
        return put_out(client.exec_output(number))
    finally:
        given.close()
        feeding.join(_LAST_WORDS_S)


def _feed(client: SyncApiClient, number: str, given: Input) -> None:
    """Pass input on until there is none, or the command has ended."""
    from controller.common.errors import ApiError  # noqa: PLC0415

    try:
        client.write_input(number, given.frames())
    except ApiError as error:
        if not given.is_closed:
            os.write(sys.stderr.fileno(), f"millrace: input: {error}\r\n".encode())


class Form(StrEnum):
    """Output format of a pod."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    SCRIPT = "script"


def show(
    name: Annotated[str, typer.Argument(metavar="POD")],
    form: Annotated[
        Form, typer.Option("--output", "-o", "--format", "-f", help="For people; all of it; or the script it is of.")
    ] = (Form.TABLE),
    address: Address = None,
) -> None:
    """Show a pod: what it asks for, where it is, how its containers fare."""
    from controller.apiserver.manifests import script_of  # noqa: PLC0415
    from controller.apiserver.resources import Pod  # noqa: PLC0415
    from controller.apps.cli.resources import Output, text_of  # noqa: PLC0415

    with client_of(address) as client:
        found = client.of(Pod).get(name)
    if form is Form.SCRIPT:
        typer.echo(script_of(found), nl=False)
    elif form is Form.TABLE:
        typer.echo(script_of(found))
        _show_status(found)
    else:
        typer.echo(text_of(found, Output(form.value)), nl=False)


def _show_status(pod: Pod) -> None:
    from controller.apiserver.resources.operator_devices import text_of as devices_text  # noqa: PLC0415

    status = pod.status
    devices = (f"{one.number}: {one.thousandths / 1000:g}" for one in status.devices)
    times = (("created", pod.metadata.created_ns), ("bound", status.bound_ns), ("started", status.started_ns))
    load = status.load
    rows = [
        ("phase", phase_of(pod)),
        ("node", status.node),
        ("devices", ", ".join(devices) or None),
        ("operators run on", devices_text(status.operator_devices) if status.operator_devices else None),
        *((name, None if at is None else utc(at)) for name, at in (*times, ("finished", status.finished_ns))),
        ("bindings", status.epoch or None),
        ("decision", status.decision),
        ("load", None if load is None or load.busy is None else f"{100 * load.busy:.1f} %"),
        ("reasons", "; ".join(status.reasons) or None),
    ]
    show_rows(("what", "value"), (row for row in rows if row[1] is not None), Format.TABLE)
    if status.containers:
        columns = ("container", "state", "restarts", "exit", "started", "image", "reason")
        cells = (
            (
                one.name,
                one.state,
                one.restarts,
                one.exit_code,
                None if one.started_ns is None else utc(one.started_ns),
                one.image_digest[:19] or None,
                one.reason,
            )
            for one in status.containers
        )
        show_rows(columns, cells, Format.TABLE)


def delete(
    names: Annotated[list[str], typer.Argument(metavar="POD...")],
    wait: Wait = False,
    timeout: Timeout = 300.0,
    address: Address = None,
) -> None:
    """Delete pods; one that runs is stopped first, and goes when its node has released it."""
    from controller.apiserver.resources import Pod  # noqa: PLC0415

    going = []
    with client_of(address) as client:
        for name in names:
            found = client.of(Pod).delete(name)
            if found.metadata.deleting_ns is not None:
                going.append(name)
                typer.echo(f"pod {name} is being deleted")
            else:
                typer.echo(f"pod {name} is deleted")
    if wait and going:
        from controller.apps.cli.pod.waiting import until_gone  # noqa: PLC0415

        asyncio.run(until_gone(address, going, timeout))
        for name in going:
            typer.echo(f"pod {name} is gone")


pod = typer.Typer(name="pod", help="Run containers: scripts, places and why, logs, commands.", no_args_is_help=True)

pod.command()(apply)
pod.command("list")(list_)
pod.command()(show)
pod.command()(why)
pod.command()(logs)
pod.command("exec", context_settings={"allow_interspersed_args": False})(exec_)
pod.command()(delete)
pod.command()(top)
pod.command()(schema)
