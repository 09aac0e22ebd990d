"""`millrace pod apply`: create or update a manifest's resources."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.pod.waiting import Timeout, Wait
from dataplane.errors import ConfigError
from dataplane.given import read_stdin

if TYPE_CHECKING:
    from controller.apiserver.client import SyncApiClient
    from controller.apiserver.manifests import Scripted
    from controller.apiserver.manifests.planning import Step

_DONE: Final = {"create": "created", "change": "changed", "leave": "unchanged", "refuse": "refused"}


def apply(
    file: Annotated[
        str,
        typer.Option("--file", "-f", metavar="FILE|-", help="The manifest, ours or Kubernetes'; - is standard input."),
    ],
    wait: Wait = False,
    timeout: Timeout = 300.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change; write nothing.")] = False,
    address: Address = None,
) -> None:
    """Create or update the resources of a manifest: all of them, or none if any is refused."""
    scripted = _read(file)
    with client_of(address) as client:
        steps = _plan(client, scripted)
        _refuse(steps)
        for step in steps:
            if not dry_run:
                _write(client, step)
            _print_step(step, would=dry_run)
    if wait and not dry_run:
        from controller.apps.cli.pod.waiting import until_running  # noqa: PLC0415

        asyncio.run(until_running(address, [step.resource for step in steps], timeout))


def _read(file: str) -> tuple[Scripted, ...]:
    from controller.apiserver.manifests import read_file, read_text  # noqa: PLC0415

    if file != "-":
        return read_file(Path(file))
    try:
        return read_text(read_stdin(), "<stdin>")
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})", file="<stdin>") from error


def _plan(client: SyncApiClient, scripted: Sequence[Scripted]) -> list[Step]:
    """Return a step for each resource, groups first, since their pods need them."""
    from controller.apiserver.manifests.planning import step_of  # noqa: PLC0415
    from controller.common.errors import NotFoundError  # noqa: PLC0415

    steps = []
    for entry in sorted(scripted, key=lambda entry: entry.resource.kind == "Pod"):
        existing: Any
        try:
            existing = client.of(type(entry.resource)).get(entry.resource.metadata.name)
        except NotFoundError:
            existing = None
        steps.append(step_of(entry, existing))
    return steps


def _refuse(steps: Sequence[Step]) -> None:
    """Raise ApiError listing everything that is impossible."""
    from controller.common.errors import StaleError  # noqa: PLC0415

    refused = [step for step in steps if step.action.value == "refuse"]
    lines = [f"{step.scripted.file}:{step.scripted.line}: {step.scripted.name}: {step.reason}" for step in refused]
    for line in lines[:-1]:
        typer.echo(f"millrace: {line}", err=True)
    if lines:
        raise StaleError(f"{lines[-1]}; nothing was written")


def _write(client: SyncApiClient, step: Step) -> None:
    resources: Any = client.of(type(step.resource))
    if step.action.value == "create":
        resources.create(step.resource)
    elif step.action.value == "change":
        resources.replace(step.resource)


def _print_step(step: Step, *, would: bool) -> None:
    verb = "would be" if would else "is"
    changes = f": {', '.join(step.changes)}" if step.action.value == "change" else ""
    typer.echo(f"{step.scripted.name} {verb} {_DONE[step.action.value]}{changes}")
