"""`millrace probe policy`: the policies by which schedulers score probe results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.cluster.resources import Output, text_of
from controller.apps.cli.shared.output import Format
from controller.apps.cli.shared.output import show as show_rows

policy = typer.Typer(name="policy", help="Manage the policies that score probe results.", no_args_is_help=True)

_COLUMNS: Final = ("figure", "weight", "from", "below", "points")
_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a stored policy.")]


@policy.command()
def show(
    name: _Name = "default",
    output: Annotated[
        Output, typer.Option("--output", "-o", "--format", "-f", help="Rows of intervals, or yaml or json: its file.")
    ] = Output.TABLE,
    address: Address = None,
) -> None:
    """Show a scoring policy of the API server: each figure's weight and intervals; its version is on stderr."""
    import msgspec  # noqa: PLC0415

    from controller.apiserver.resources import ScoringPolicy  # noqa: PLC0415
    from controller.common.errors import NotFoundError  # noqa: PLC0415
    from controller.probing.evaluation import policy_of  # noqa: PLC0415

    with client_of(address) as client:
        try:
            stored = client.of(ScoringPolicy).get(name)
        except NotFoundError as error:
            raise NotFoundError(f"{error}: task schedulers use that of their settings") from None
    found = policy_of(stored)
    if output in (Output.JSON, Output.YAML):
        told = {key: value for key, value in msgspec.to_builtins(found).items() if value not in (None, {})}
        typer.echo(text_of({"name": found.name} | told, output), nl=False)
        return
    rows = (
        (figure, scale.weight, interval.start, interval.below, interval.points)
        for figure, scale in found.scales.items()
        for interval in scale.intervals
    )
    show_rows(_COLUMNS, rows, Format(output.value))
    typer.echo(f"{found.version}, by {stored.metadata.owner or 'unknown'}", err=True)


@policy.command()
def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML, JSON or TOML, as from `show -o yaml`.")],
    address: Address = None,
) -> None:
    """Create or replace a scoring policy; schedulers score all results by it at once. An invalid file changes nothing.

    The name is the file's, `default` if it has none: that of the schedulers' own policies.
    """
    from msgspec.structs import replace  # noqa: PLC0415

    from controller.apiserver.resources import ScoringPolicy  # noqa: PLC0415
    from controller.common.errors import NotFoundError  # noqa: PLC0415
    from controller.probing.evaluation import load_policy, resource_of  # noqa: PLC0415

    loaded = load_policy(file)
    wanted = resource_of(loaded)
    with client_of(address) as client:
        policies = client.of(ScoringPolicy)
        try:
            before = policies.get(loaded.name)
        except NotFoundError:
            policies.create(wanted)
            typer.echo(f"scoring policy {loaded.version} is created")
            return
        if before.spec == wanted.spec:
            typer.echo(f"scoring policy {loaded.version} is unchanged")
            return
        policies.replace(replace(before, spec=wanted.spec))
    typer.echo(f"scoring policy {loaded.version} replaces {before.metadata.name}@{before.spec.digest}")


@policy.command()
def delete(name: _Name, address: Address = None) -> None:
    """Delete a scoring policy; schedulers return to that of their settings."""
    from controller.apiserver.resources import ScoringPolicy  # noqa: PLC0415

    with client_of(address) as client:
        client.of(ScoringPolicy).delete(name)
    typer.echo(f"scoring policy {name} is deleted")
