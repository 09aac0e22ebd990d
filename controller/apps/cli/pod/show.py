"""`millrace pod show`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.pod.list import phase_of
from controller.apps.cli.shared.output import Format, utc
from controller.apps.cli.shared.output import show as show_rows

if TYPE_CHECKING:
    from controller.apiserver.resources import Pod


class Form(StrEnum):
    """Output format of a pod."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    SCRIPT = "script"


def show(
    name: Annotated[str, typer.Argument(metavar="POD")],
    form: Annotated[
        Form, typer.Option("--output", "-o", "--format", "-f", help="Text; the whole resource; or its manifest.")
    ] = (Form.TABLE),
    address: Address = None,
) -> None:
    """Show a pod: its requests, node and the state of its containers."""
    from controller.apiserver.manifests import script_of  # noqa: PLC0415
    from controller.apiserver.resources import Pod  # noqa: PLC0415
    from controller.apps.cli.cluster.resources import Output, text_of  # noqa: PLC0415

    with client_of(address) as client:
        pod = client.of(Pod).get(name)
    if form is Form.SCRIPT:
        typer.echo(script_of(pod), nl=False)
    elif form is Form.TABLE:
        typer.echo(script_of(pod))
        _show_status(pod)
    else:
        typer.echo(text_of(pod, Output(form.value)), nl=False)


def _show_status(pod: Pod) -> None:
    from controller.apiserver.resources.operator_devices import text_of as devices_text  # noqa: PLC0415

    status = pod.status
    devices = (f"{device.number}: {device.thousandths / 1000:g}" for device in status.devices)
    times = (("created", pod.metadata.created_ns), ("bound", status.bound_ns), ("started", status.started_ns))
    load = status.load
    rows = [
        ("phase", phase_of(pod)),
        ("node", status.node),
        ("devices", ", ".join(devices) or None),
        ("shares", "; ".join(f"{limit.number}: {limit}" for limit in status.device_limits) or None),
        ("its device", pod.spec.brought or None),
        ("operators run on", devices_text(status.operator_devices) if status.operator_devices else None),
        *((name, None if at is None else utc(at)) for name, at in (*times, ("finished", status.finished_ns))),
        ("bindings", status.epoch or None),
        ("decision", status.decision),
        ("load", None if load is None or load.busy is None else f"{100 * load.busy:.1f} %"),
        ("reasons", "; ".join(status.reasons) or None),
    ]
    show_rows(("what", "value"), (row for row in rows if row[1] is not None), Format.TABLE)
    if status.containers:
        columns = ("container", "state", "restarts", "exit", "started", "image", "reason")
        cells = (
            (
                container.name,
                container.state,
                container.restarts,
                container.exit_code,
                None if container.started_ns is None else utc(container.started_ns),
                container.image_digest[:19] or None,
                container.reason,
            )
            for container in status.containers
        )
        show_rows(columns, cells, Format.TABLE)
