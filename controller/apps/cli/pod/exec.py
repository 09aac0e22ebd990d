"""`millrace pod exec`."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.pod.logs import Container, put_out

if TYPE_CHECKING:
    from controller.apiserver.client import SyncApiClient
    from controller.apps.cli.pod.terminal import Input

_LAST_WORDS_S = 2.0
"""Time limit for the input-forwarding thread to end."""


def exec_(  # noqa: PLR0917 - a command line's options
    name: Annotated[str, typer.Argument(metavar="POD")],
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...")],
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Forward standard input.")] = False,
    terminal: Annotated[bool, typer.Option("--terminal", "-t", help="Allocate a terminal.")] = False,
    container: Container = None,
    address: Address = None,
) -> None:
    """Run a command in a container of a pod and return its exit status. Put options before the pod's name."""
    from controller.apiserver.sessions.values import ExecRequest  # noqa: PLC0415
    from controller.apps.cli.pod import terminal as own  # noqa: PLC0415
    from controller.common.errors import InvalidError  # noqa: PLC0415

    if terminal and not (sys.stdin.isatty() and stdin):
        raise InvalidError("-t requires -i and a terminal as standard input")
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
    """Forward input until it ends, or the command does."""
    from controller.common.errors import ApiError  # noqa: PLC0415

    try:
        client.write_input(number, given.frames())
    except ApiError as error:
        if not given.is_closed:
            # A raw terminal needs the carriage return to begin a new line.
            os.write(sys.stderr.fileno(), f"millrace: input: {error}\r\n".encode())
