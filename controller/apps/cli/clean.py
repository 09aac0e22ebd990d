"""`millrace clean`: remains of killed kernel fabrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from dataplane.fabric.kernel.manifest import find_leftovers, remove_leftovers


def clean(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Print what would be removed; remove nothing.")
    ] = False,
) -> None:
    """Remove namespaces and processes left behind by a killed kernel fabric or benchmark (root)."""
    problems: list[str] = []
    if dry_run:
        leftovers = find_leftovers(on_problem=problems.append)
        lines = [
            f"{leftover.fabric_id}: {_named('namespace', leftover.namespaces)}; {_named('process', leftover.pids)}"
            for leftover in leftovers
        ]
    else:
        lines = remove_leftovers(on_problem=problems.append)
    if lines or not problems:
        typer.echo("\n".join(lines) if lines else "nothing to remove")
    for problem in problems:
        typer.echo(problem, err=True)
    if problems:
        raise typer.Exit(1)


def _named(kind: str, items: Sequence[object]) -> str:
    """Return the number of items of a kind, and their names."""
    many = kind if len(items) == 1 else f"{kind}es" if kind.endswith("s") else f"{kind}s"
    return f"{len(items)} {many}" + (f" ({' '.join(map(str, items))})" if items else "")
