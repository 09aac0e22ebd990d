"""`millrace install-shims`: the switch under the names of bmv2's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def install_shims(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder, of your PATH as a rule.")],
    force: Annotated[bool, typer.Option("--force", help="Replace files of these names that are not ours.")] = False,
) -> None:
    """Write simple_switch_grpc and simple_switch, which start Millrace's switch with bmv2's options, into a folder."""
    from dataplane.switch.drop_in.shims import install  # noqa: PLC0415

    for line in install(folder, force=force):
        typer.echo(line)
