"""`millrace get|describe|delete`: the API server's resources."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.shared.output import Cells, Format, OneFormat, show
from dataplane.clock import NS_PER_S

if TYPE_CHECKING:
    from controller.apiserver.client.synchronous import SyncResources
    from controller.apiserver.resources import Kind


class Output(StrEnum):
    """Output format of resources."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    YAML = "yaml"


_KindName = Annotated[str, typer.Argument(metavar="KIND", help="node, pod, podgroup, centre, task, ...")]
_Output = Annotated[Output, typer.Option("--output", "-o", "--format", "-f", help="Output format.")]
_Labels = Annotated[str, typer.Option("--labels", "-l", metavar="a=b,!c", help="Only with these labels.")]
_Fields = Annotated[str, typer.Option("--fields", metavar="node=h1", help="Only with these fields.")]


def get(  # noqa: PLR0917 - a command line's options
    kind: _KindName,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Name of one resource; default: all."),
    ] = None,
    output: _Output = Output.TABLE,
    labels: _Labels = "",
    fields: _Fields = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Then print a line per change.")] = False,
    address: Address = None,
) -> None:
    """Show one resource, or all that are selected; with --watch also their changes, until interrupted."""
    with client_of(address) as client:
        resources = client.of(_kind(kind).type)
        if watch:
            _watch(resources, labels, f"name={name}" if name is not None else fields, output)
        elif name is not None:
            _show_one(resources.kind, resources.get(name), output)
        else:
            listed = resources.list(labels=labels, fields=fields)
            _show_all(resources.kind, listed.items, output)
            if listed.age_s is not None:
                typer.echo(f"the storage is unavailable: this is {listed.age_s} s old", err=True)


def describe(
    kind: _KindName,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    address: Address = None,
    form: OneFormat = Format.TABLE,
) -> None:
    """Show one resource in full as text, without fields at their defaults."""
    with client_of(address) as client:
        resource = client.of(_kind(kind).type).get(name)
    shown = _without_defaults(resource)
    typer.echo(text_of(shown, Output.JSON) if form is Format.JSON else _yaml(shown), nl=False)


def delete(
    kind: _KindName,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    revision: Annotated[int | None, typer.Option(help="Only if it still has this revision.")] = None,
    address: Address = None,
) -> None:
    """Delete a resource; a running pod is removed once it has stopped."""
    with client_of(address) as client:
        resource = client.of(_kind(kind).type).delete(name, expected=revision)
    going = getattr(resource.metadata, "deleting_ns", None) is not None
    typer.echo(f"{resource.kind} {name} {'is being deleted' if going else 'is deleted'}")


def _kind(word: str) -> Kind[Any]:
    from controller.apiserver.resources import KINDS  # noqa: PLC0415
    from controller.common.errors import InvalidError  # noqa: PLC0415
    from dataplane.config.suggestions import did_you_mean  # noqa: PLC0415

    if (found := KINDS.typed(word)) is None:
        raise InvalidError(f"there is no kind {word}{did_you_mean(word.lower(), (kind.plural for kind in KINDS))}")
    return found


def _show_one(kind: Kind[Any], resource: Any, output: Output) -> None:  # noqa: ANN401 - of any kind
    if output in (Output.TABLE, Output.CSV):
        _show_all(kind, (resource,), output)
    else:
        typer.echo(text_of(resource, output), nl=False)


def _show_all(kind: Kind[Any], resources: Sequence[Any], output: Output) -> None:
    if output in (Output.TABLE, Output.CSV):
        reads, now_ns = kind.columns.values(), time.time_ns()
        rows = (
            [resource.metadata.name, *(read(resource) for read in reads), age_of(resource, now_ns)]
            for resource in resources
        )
        show(("name", *kind.columns, "age"), rows, Format(output.value))
    else:
        typer.echo(text_of({"items": resources}, output), nl=False)


def _watch(resources: SyncResources[Any], labels: str, fields: str, output: Output) -> None:
    listed = resources.list(labels=labels, fields=fields)
    _show_all(resources.kind, listed.items, output)
    for event in resources.watch(listed.revision, labels=labels, fields=fields):
        if event.type.value == "BOOKMARK":
            continue
        if output in (Output.TABLE, Output.CSV):
            cells: Cells = [event.type.value.lower(), event.name]
            if event.resource is not None:
                cells = [*cells, *(read(event.resource) for read in resources.kind.columns.values())]
            typer.echo("  ".join(str(cell) for cell in cells if cell not in {None, ""}))
        else:
            record = {
                "type": event.type.value,
                "name": event.name,
                "revision": event.revision,
                "object": event.resource,
            }
            typer.echo(text_of(record, output), nl=False)


def text_of(content: object, output: Output) -> str:
    """Format a value as JSON or YAML."""
    import msgspec  # noqa: PLC0415

    if output is Output.JSON:
        return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"
    return _yaml(msgspec.to_builtins(content))


def _yaml(content: object) -> str:
    import yaml  # noqa: PLC0415

    text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    return text


def _without_defaults(value: Any) -> Any:  # noqa: ANN401 - any part of a resource
    """Return a value as plain data, without fields that have their defaults."""
    import msgspec  # noqa: PLC0415

    if isinstance(value, msgspec.Struct):
        parts = ((field, getattr(value, field.name)) for field in msgspec.structs.fields(value))
        told = {
            field.name: _without_defaults(part)
            for field, part in parts
            if field.name == "kind" or part != field.default
        }
        return {name: part for name, part in told.items() if part not in ({}, [])}
    if isinstance(value, list | tuple):
        return [_without_defaults(part) for part in value]
    if isinstance(value, dict):
        return {str(name): _without_defaults(part) for name, part in value.items()}
    return msgspec.to_builtins(value)


def age_of(resource: Any, now_ns: int) -> str:  # noqa: ANN401 - of any kind
    """Return a resource's age for people."""
    seconds = max(now_ns - resource.metadata.created_ns, 0) // NS_PER_S
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        # Below two of a unit, the smaller unit is more precise: 30 h, not 1 d.
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
