"""`millrace pod top`: current load of nodes, their devices and pods."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.shared.amounts import in_seconds
from controller.apps.cli.shared.output import Cells, Format, OneFormat
from controller.apps.cli.shared.units import gibibytes, percent_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from controller.apiserver.client import SyncApiClient
    from controller.apiserver.resources import Node, Pod

NODE_COLUMNS = ("node", "ready", "busy %", "free GiB", "cores held", "pods", "reported s ago")
DEVICE_COLUMNS = ("node", "device", "kind", "model", "busy %", "free GiB", "held %", "watts")
POD_COLUMNS = ("pod", "phase", "node", "busy %", "free GiB", "restarts")


def top(
    once: Annotated[bool, typer.Option("--once", help="Print once.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    interval: Annotated[float, typer.Option(parser=in_seconds(0.2, 3600.0), help="Time between updates.")] = 2.0,
    address: Address = None,
    form: OneFormat = Format.TABLE,
) -> None:
    """Watch the load of nodes, devices and pods, as node managers report it, until Ctrl-C."""
    from rich.live import Live  # noqa: PLC0415

    from controller.common.console import plain_or_terminal  # noqa: PLC0415

    as_json = as_json or form is Format.JSON
    console = plain_or_terminal()
    with client_of(address) as client, suppress(KeyboardInterrupt):
        if once and not as_json:
            console.print(_tables(*_look(client)))
            return
        live = console.is_terminal and not as_json
        with Live(console=console, auto_refresh=False, screen=True) if live else nullcontext() as screen:
            while True:
                seen = _look(client)
                if as_json:
                    typer.echo(json.dumps(_json(*seen)))
                elif screen is not None:
                    screen.update(_tables(*seen), refresh=True)
                else:
                    console.print(_tables(*seen))
                if once:
                    return
                time.sleep(interval)


def _look(client: SyncApiClient) -> tuple[tuple[Node, ...], tuple[Pod, ...]]:
    from controller.apiserver.resources import Node, Pod  # noqa: PLC0415

    return client.of(Node).list().items, client.of(Pod).list().items


def _tables(nodes: Sequence[Node], pods: Sequence[Pod]) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415

    from controller.apps.cli.shared.output import table_of  # noqa: PLC0415

    now_ns = time.time_ns()
    devices = [cells for node in nodes for cells in device_cells(node)]
    parts = [table_of(NODE_COLUMNS, (node_cells(node, now_ns) for node in nodes))]
    if devices:
        parts.append(table_of(DEVICE_COLUMNS, devices))
    parts.append(table_of(POD_COLUMNS, (pod_cells(pod) for pod in pods if pod.status.node is not None)))
    return Group(*parts)


def _json(nodes: Sequence[Node], pods: Sequence[Pod]) -> dict[str, object]:
    now_ns = time.time_ns()

    def rows(columns: Sequence[str], cells: Sequence[Cells]) -> list[dict[str, object]]:
        return [dict(zip(columns, row, strict=True)) for row in cells]

    return {
        "nodes": rows(NODE_COLUMNS, [node_cells(node, now_ns) for node in nodes]),
        "devices": rows(DEVICE_COLUMNS, [cells for node in nodes for cells in device_cells(node)]),
        "pods": rows(POD_COLUMNS, [pod_cells(pod) for pod in pods if pod.status.node is not None]),
    }


def node_cells(node: Node, now_ns: int) -> Cells:
    """Return a node's row; unmeasured columns are empty."""
    status, load, hardware = node.status, node.status.load, node.hardware
    held = sum(share.cpu_milli for share in node.shares) / 1000
    cores = None if hardware is None else f"{held:g} of {hardware.cpu_milli / 1000:g}"
    heard_ns = status.heartbeat_ns
    return (
        node.metadata.name,
        "yes" if status.ready else status.reason or "no",
        None if load is None else percent_of(load.busy),
        None if load is None else gibibytes(load.memory_free_bytes),
        cores,
        len(node.shares),
        None if heard_ns is None else round(max(now_ns - heard_ns, 0) / 1e9, 1),
    )


def device_cells(node: Node) -> list[Cells]:
    """Return a row for each device of a node."""
    if node.hardware is None:
        return []
    loads = {device.number: device.load for device in node.status.devices}
    held: dict[int, int] = {}
    # Cores held by pools belong to no pod.
    for devices in (*(share.devices for share in node.shares), *(pool.devices for pool in node.pools)):
        for part in devices:
            held[part.number] = held.get(part.number, 0) + part.thousandths
    rows: list[Cells] = []
    for device in node.hardware.devices:
        load = loads.get(device.number)
        rows.append(
            (
                node.metadata.name,
                device.number,
                device.kind.value,
                device.model,
                None if load is None else percent_of(load.busy),
                None if load is None else gibibytes(load.memory_free_bytes),
                held.get(device.number, 0) / 10,
                None if load is None else load.power_w,
            )
        )
    return rows


def pod_cells(pod: Pod) -> Cells:
    """Return a pod's row."""
    load = pod.status.load
    return (
        pod.metadata.name,
        pod.status.phase.value,
        pod.status.node,
        None if load is None else percent_of(load.busy),
        None if load is None else gibibytes(load.memory_free_bytes),
        sum(container.restarts for container in pod.status.containers),
    )
