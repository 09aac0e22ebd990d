"""`millrace project`: quotas of projects, and their weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controller.apps.cli.cluster.api import Address, client_of

if TYPE_CHECKING:
    from controller.apiserver.resources.project import Quota

project = typer.Typer(name="project", help="Manage projects: quotas and weights.", no_args_is_help=True)

_ANY = "any"


@project.callback()
def _projects() -> None:
    """Projects: quotas and weights; `millrace get projects` lists them."""


@project.command("set")
def set_project(
    name: Annotated[str, typer.Argument(metavar="PROJECT")],
    weight: Annotated[
        float | None, typer.Option(min=1e-6, max=1e6, help="Share of scarce resources; initially 1.")
    ] = None,
    quota: Annotated[
        list[str] | None, typer.Option("--quota", metavar="WHAT=NUMBER", help="Maximum of pods, tasks, ...; or `any`.")
    ] = None,
    address: Address = None,
) -> None:
    """Create a project, or change the given settings of an existing one."""
    from msgspec.structs import replace  # noqa: PLC0415

    from controller.apiserver.resources import Metadata, Project  # noqa: PLC0415
    from controller.common.errors import NotFoundError  # noqa: PLC0415

    with client_of(address) as client:
        projects = client.of(Project)
        try:
            existing = projects.get(name)
        except NotFoundError:
            existing = None
        before = existing or Project(metadata=Metadata(name=name))
        spec = replace(
            before.spec,
            weight=before.spec.weight if weight is None else weight,
            quota=_changed(before.spec.quota, quota or ()),
        )
        wanted = replace(before, spec=spec)
        made = projects.create(wanted) if existing is None else projects.replace(wanted)
    typer.echo(f"project {made.metadata.name} is {'created' if existing is None else 'changed'}")


def _changed(quota: Quota, words: Sequence[str]) -> Quota:
    import msgspec  # noqa: PLC0415

    from controller.apiserver.resources.project import Quota  # noqa: PLC0415

    told: dict[str, Any] = msgspec.to_builtins(quota)
    for word in words:
        what, separator, number = word.partition("=")
        if not separator or what not in told:
            raise typer.BadParameter(f"--quota {word}: expected {', '.join(sorted(told))} = NUMBER or {_ANY}")
        told[what] = None if number == _ANY else number
    try:
        return msgspec.convert(told, Quota, strict=False)
    except msgspec.ValidationError as error:
        raise typer.BadParameter(f"--quota: {error}") from None
