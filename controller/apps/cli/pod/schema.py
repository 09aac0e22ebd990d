"""`millrace pod schema`."""

from __future__ import annotations

import json

import typer


def schema() -> None:
    """Print the JSON Schema of manifests, for editors."""
    from controller.apiserver.manifests.schema import json_schema  # noqa: PLC0415

    typer.echo(json.dumps(json_schema(), indent=2))
