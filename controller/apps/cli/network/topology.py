"""`millrace topology`: check and show topology files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.shared.common import check_outputs, working
from controller.apps.cli.shared.output import Cells, Format, FormatOption
from controller.apps.cli.shared.output import show as show_rows

if TYPE_CHECKING:
    from dataplane.topology.values import Endpoint, HostNode, Link, SwitchNode, Topology

topology = typer.Typer(name="topology", help="Check and show topologies.", no_args_is_help=True)

Spec = Annotated[str, typer.Argument(help="A file, a bundled name, or a family such as leaf-spine:spines=2,leaves=4.")]


@topology.command("list")
def list_bundled(form: FormatOption = Format.TABLE) -> None:
    """List the bundled topologies."""
    from dataplane.topology.file import bundled_topologies  # noqa: PLC0415

    topologies = sorted(bundled_topologies().items())
    if form is Format.TABLE:
        for name, _ in topologies:
            typer.echo(name)
    else:
        show_rows(("name", "file"), ((name, str(file)) for name, file in topologies), form)


@topology.command()
def check(spec: Spec, form: FormatOption = Format.TABLE) -> None:
    """Check a topology; prints the first error with file, line and key."""
    loaded = _load(spec)
    counts = (len(loaded.switches), len(loaded.hosts), len(loaded.links))
    if form is Format.TABLE:
        typer.echo("{}: {} switches, {} hosts, {} links".format(loaded.name, *counts))
    else:
        show_rows(("name", "switches", "hosts", "links"), [(loaded.name, *counts)], form)


@topology.command("import")
def import_file(
    file: Annotated[
        Path, typer.Argument(help="GraphML, DOT, node-link JSON, .clab.yml of containerlab, or Mininet's .py[:NAME].")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write; default: standard output.")
    ] = None,
    rate: Annotated[str, typer.Option(help="Rate of links that state none.")] = "10 Gbit/s",
    delay: Annotated[str, typer.Option(help="Delay of links that state none and lack places.")] = "1 ms",
) -> None:
    """Convert another program's topology to ours, and list each assumption."""
    from dataplane.topology.file import dumps  # noqa: PLC0415
    from dataplane.topology.importing import Defaults, import_topology  # noqa: PLC0415

    check_outputs(None, output)
    imported = import_topology(file, Defaults(rate, delay))
    for line in imported.assumptions:
        typer.echo(f"assumed {line}", err=True)
    text = dumps(imported.topology)
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
        typer.echo(f"wrote {output}", err=True)


@topology.command()
def switches(spec: Spec, form: FormatOption = Format.TABLE) -> None:
    """Show a topology's switches: the numbers by which reports know them, their ports, their places."""
    loaded = _load(spec)
    rows = [_switch_cells(loaded, node) for node in loaded.switches]
    show_rows(("switch", "id", "ports", "city", "latitude", "longitude"), rows, form)


@topology.command()
def hosts(spec: Spec, form: FormatOption = Format.TABLE) -> None:
    """Show a topology's hosts with their addresses and what they are made of."""
    loaded = _load(spec)
    _show(
        (
            ("host", "switch", "ipv4", "cores", "memory", "devices"),
            [_for_people(loaded, host) for host in loaded.hosts],
        ),
        (
            ("host", "switch", "port", "ipv4", "ipv6", "mac", "cores", "memory", "devices"),
            [_host_cells(loaded, host) for host in loaded.hosts],
        ),
        form,
    )


@topology.command()
def show(spec: Spec, form: FormatOption = Format.TABLE) -> None:
    """Show a topology's nodes with ids and addresses, then its links; CSV and JSON have a row a link with all that."""
    from dataplane.topology.units import PPB, format_delay, format_rate, format_share  # noqa: PLC0415

    loaded = _load(spec)
    if form is Format.TABLE:
        show_rows(("node", "id", "at", "ipv4", "ipv6", "mac"), _node_rows(loaded), form)
    _show(
        (
            ("a", "port", "b", "port", "rate", "delay", "queue", "loss", "jitter"),
            [
                (
                    *(*_ends(link), format_rate(link.rate_bps), format_delay(link.delay_ns), link.queue_frames),
                    *(format_share(link.loss_ppb), format_delay(link.jitter_ns)),
                )
                for link in loaded.links
            ],
        ),
        (
            (
                *("a", "a_port", "b", "b_port", "rate_bps", "delay_ns", "queue_frames", "loss", "jitter_ns"),
                *(f"{side}_{name}" for side in "ab" for name in ("id", "ipv4", "ipv6", "mac")),
            ),
            [
                (
                    *(*_ends(link), link.rate_bps, link.delay_ns, link.queue_frames),
                    *(link.loss_ppb / PPB, link.jitter_ns),
                    *(*_addresses(loaded, link.a), *_addresses(loaded, link.b)),
                )
                for link in loaded.links
            ],
        ),
        form,
    )


_Rows = tuple[Sequence[str], Sequence[Cells]]


def _show(people: _Rows, programs: _Rows, form: Format) -> None:
    """Print rows for people or for programs, whose column names include units."""
    columns, rows = people if form is Format.TABLE else programs
    show_rows(columns, rows, form)


def _ends(link: Link) -> tuple[str, int, str, int]:
    return link.a.node, link.a.port, link.b.node, link.b.port


def _addresses(topology: Topology, end: Endpoint) -> tuple[int | None, str | None, str | None, str]:
    """Return an end's node id, the addresses of its node, and its own MAC address."""
    from dataplane.topology.addressing import format_mac, mac_at, report_source  # noqa: PLC0415

    mac = format_mac(mac_at(topology, end.node, end.port))
    host = topology.host.get(end.node)
    if host is None:
        switch = topology.switch[end.node]
        return switch.node_id, str(report_source(switch)), None, mac
    return None, str(host.ipv4), None if host.ipv6 is None else str(host.ipv6), mac


def _node_rows(topology: Topology) -> list[Cells]:
    """Return all nodes for people: switches with their report source, hosts with their attachment."""
    from dataplane.topology.addressing import format_mac, report_source  # noqa: PLC0415

    hosts = ((host, topology.attachment[host.name]) for host in topology.hosts)
    return [
        *((node.name, node.node_id, None, str(report_source(node)), None, None) for node in topology.switches),
        *(
            (host.name, None, f"{end.node} port {end.port}", str(host.ipv4), host.ipv6, format_mac(host.mac))
            for host, end in hosts
        ),
    ]


def _switch_cells(topology: Topology, node: SwitchNode) -> Cells:
    location = node.place
    where = (None, None, None) if location is None else (location.city or None, location.latitude, location.longitude)
    return node.name, node.node_id, len(topology.neighbours[node.name]), *where


def _for_people(topology: Topology, host: HostNode) -> Cells:
    from dataplane.topology.units import format_size  # noqa: PLC0415

    end = topology.attachment[host.name]
    memory = ", ".join(f"{medium.kind} {format_size(medium.capacity_bytes)}" for medium in host.memory)
    devices = ", ".join(f"{device.count} {device.kind} {device.model}".strip() for device in host.devices)
    return host.name, end.node, str(host.ipv4), host.cores, memory, devices


def _host_cells(topology: Topology, host: HostNode) -> Cells:
    from dataplane.topology.addressing import format_mac  # noqa: PLC0415

    end = topology.attachment[host.name]
    memory = [{"kind": str(medium.kind), "capacity_bytes": medium.capacity_bytes} for medium in host.memory]
    devices = [{"kind": str(device.kind), "model": device.model, "count": device.count} for device in host.devices]
    ipv6 = None if host.ipv6 is None else str(host.ipv6)
    return host.name, end.node, end.port, str(host.ipv4), ipv6, format_mac(host.mac), host.cores, memory, devices


def _load(spec: str) -> Topology:
    """Return a topology; print progress, since the largest take minutes."""
    from dataplane.topology.file import load_topology  # noqa: PLC0415

    with working(f"reading {spec}"):
        return load_topology(spec)
