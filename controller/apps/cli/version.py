"""`millrace version`."""

from __future__ import annotations

import typer

from dataplane.version import VERSION


def version() -> None:
    """Print the version."""
    typer.echo(f"millrace {VERSION}")
