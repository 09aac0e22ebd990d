"""`millrace pod logs`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of

if TYPE_CHECKING:
    from controller.apiserver.sessions.frames import Frame

Container = Annotated[str | None, typer.Option("--container", "-c", help="Container, if the pod has several.")]


def logs(
    name: Annotated[str, typer.Argument(metavar="POD")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, max=1_000_000, help="Number of last lines to start from.")
    ] = None,
    container: Container = None,
    address: Address = None,
) -> None:
    """Show the log of a container of a pod: its output on stdout, its errors on stderr."""
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
    raise UnavailableError("interrupted: the connection to the API server has ended")
