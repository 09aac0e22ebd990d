"""`millrace topology`: check and show topology files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from controller.cli.common import working
from controller.console import plain_or_terminal

if TYPE_CHECKING:
    from dataplane.topology.values import Topology

topology = typer.Typer(name="topology", help="Check and show topologies.", no_args_is_help=True)

Spec = Annotated[str, typer.Argument(help="A file, a bundled name, or a family such as leaf-spine:spines=2,leaves=4.")]


@topology.command("list")
def list_bundled() -> None:
    """List the bundled topologies."""
    from dataplane.topology.file import bundled_topologies  # noqa: PLC0415

    for name in sorted(bundled_topologies()):
        typer.echo(name)


@topology.command()
def check(spec: Spec) -> None:
    """Check a topology; prints the first error with file, line and key."""
    found = _load(spec)
    typer.echo(f"{found.name}: {len(found.switches)} switches, {len(found.hosts)} hosts, {len(found.links)} links")


@topology.command()
def hosts(spec: Spec) -> None:
    """Show a topology's hosts with their addresses and what they are made of."""
    from dataplane.topology.units import format_size  # noqa: PLC0415

    found = _load(spec)
    table = Table("host", "switch", "ipv4", "cores", "memory", "devices")
    for host in found.hosts:
        table.add_row(
            host.name,
            found.attachment[host.name].node,
            str(host.ipv4),
            "" if host.cores is None else str(host.cores),
            ", ".join(f"{medium.kind} {format_size(medium.capacity_bytes)}" for medium in host.memory),
            ", ".join(escape(f"{device.count} {device.kind} {device.model}".strip()) for device in host.devices),
        )
    plain_or_terminal().print(table)


@topology.command()
def show(spec: Spec) -> None:
    """Show a topology's links with ports, rates and delays."""
    from dataplane.topology.units import format_delay, format_rate  # noqa: PLC0415

    found = _load(spec)
    table = Table("a", "port", "b", "port", "rate", "delay", "queue")
    for link in found.links:
        table.add_row(
            link.a.node,
            str(link.a.port),
            link.b.node,
            str(link.b.port),
            format_rate(link.rate_bps),
            format_delay(link.delay_ns),
            str(link.queue_frames),
        )
    plain_or_terminal().print(table)


def _load(spec: str) -> Topology:
    """Return a topology; the largest take minutes, and say so."""
    from dataplane.topology.file import load_topology  # noqa: PLC0415

    with working(f"reading {spec}"):
        return load_topology(spec)
