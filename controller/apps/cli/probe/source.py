"""A probe task that a command line names: a file, or one of the API's store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.api import client_of

if TYPE_CHECKING:
    from controller.probing.values import ProbeTask

_ENDINGS: Final = (".yaml", ".yml", ".json")

Source = Annotated[
    str, typer.Argument(metavar="PROBE", help="A file (.json, .yaml), or one of the API's store by name.")
]


def probe_of(source: str, address: str | None) -> ProbeTask:
    """Return the probe task of a file, or of that name in the store."""
    from controller.probing import files  # noqa: PLC0415

    if Path(source).suffix in _ENDINGS:
        return files.load(Path(source))
    from controller.apiserver.resources import ProbeTask as Resource  # noqa: PLC0415

    with client_of(address) as client:
        found = client.of(Resource).get(source)
    return files.of_spec(source, found.spec)
