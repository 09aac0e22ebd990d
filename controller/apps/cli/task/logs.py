"""`millrace task logs`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.pod.logs import put_out

if TYPE_CHECKING:
    from controller.apiserver.sessions.frames import Frame


def logs(
    name: Annotated[str, typer.Argument(metavar="TASK")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the output until the task ends.")] = False,
    tail: Annotated[
        int | None,
        typer.Option("--tail", "-n", min=0, max=1_000_000, help="Number of last lines of each to start from."),
    ] = None,
    errors: Annotated[bool, typer.Option("--errors", help="Only its errors, on stdout.")] = False,
    address: Address = None,
) -> None:
    """Show what a task writes, from the centre that runs or ran it: its output on stdout, its errors on stderr."""
    with client_of(address) as client:
        frames = client.task_logs(name, follow=follow, tail=tail, errors_only=errors)
        put_out(_on_stdout(frames) if errors else frames)


def _on_stdout(frames: Iterable[Frame]) -> Iterator[Frame]:
    from controller.apiserver.sessions.frames import Stream  # noqa: PLC0415

    for frame in frames:
        yield replace(frame, stream=Stream.STDOUT) if frame.stream is Stream.STDERR else frame
