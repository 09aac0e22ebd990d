"""`millrace install-shims`: the switch under bmv2's names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def install_shims(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder, usually on your PATH.")],
    force: Annotated[bool, typer.Option("--force", help="Replace other files of these names.")] = False,
) -> None:
    """Write simple_switch_grpc and simple_switch, which start Millrace's switch with bmv2's options."""
    from dataplane.switch.drop_in.shims import install  # noqa: PLC0415

    for line in install(folder, force=force):
        typer.echo(line)
