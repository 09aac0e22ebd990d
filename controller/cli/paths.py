"""`millrace paths`: the path server, and questions to one that runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import isfinite
from typing import Annotated, Final, TypeVar

import typer
from rich.table import Table

from collectors.values import HopRecord, RecordKind
from controller.cli.common import SettingsFile, log_to_stderr, ready
from controller.console import plain_or_terminal
from controller.intents import FlowSpec
from controller.paths.client import RouteClient, RouteClientSettings
from controller.paths.codec import Explanation, HistoryQuery, LinkChange, RecordQuery
from controller.paths.graph import PathFigures
from dataplane.fabric.topology import LinkKey

paths = typer.Typer(name="paths", help="The path server, and questions to one that runs.", no_args_is_help=True)

Server = Annotated[str, typer.Option("--server", metavar="ADDRESS", help="unix:PATH or HOST:PORT.")]
SERVER: Final = RouteClientSettings().address
Src = Annotated[str, typer.Argument(help="Name of the sending host.")]
Dst = Annotated[str, typer.Argument(help="Name of the receiving host.")]

_MOST_S: Final = (1 << 63) / 1e9
"""No clock of 64-bit nanoseconds gets there."""

T = TypeVar("T")


@paths.command()
def serve(settings: SettingsFile) -> None:
    """Run the path server: record every hop, decide, serve routes."""
    from controller.paths import process  # noqa: PLC0415

    log_to_stderr("paths")
    process.run(process.load_settings(settings), ready("paths"))


@paths.command()
def why(  # noqa: PLR0917 - a command line's options
    src: Src,
    dst: Dst,
    server: Server = SERVER,
    protocol: Annotated[int | None, typer.Option(min=0, max=255, help="IP protocol of the flow.")] = None,
    src_port: Annotated[int | None, typer.Option(min=0, max=65535, help="Source port of the flow.")] = None,
    dst_port: Annotated[int | None, typer.Option(min=0, max=65535, help="Destination port of the flow.")] = None,
) -> None:
    """Say why a flow is on its path: what was measured, the candidates, the reason, its last moves."""
    explanation = _ask(server, lambda client: client.why(FlowSpec(src, dst, protocol, src_port, dst_port)))
    _show_explanation(explanation)


@paths.command()
def history(  # noqa: PLR0917 - a command line's options
    server: Server = SERVER,
    src: Annotated[str | None, typer.Option(help="Only flows from this host.")] = None,
    dst: Annotated[str | None, typer.Option(help="Only flows to this host.")] = None,
    since: Annotated[float | None, typer.Option(metavar="S", help="From this time on, seconds of its clock.")] = None,
    until: Annotated[float | None, typer.Option(metavar="S", help="Before this time.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Decisions at most, the newest.")] = 50,
) -> None:
    """List what was decided over time: moves of flows, and rounds of traffic engineering."""
    query = HistoryQuery(src, dst, _ns(since, "--since"), _ns(until, "--until"), limit)
    found = _ask(server, lambda client: client.history(query))
    rows = [(one.time_ns, _name(one.flow), " ".join(one.new_path), one.reason) for one in found.decisions]
    if src is None and dst is None:
        rows += [
            (one.time_ns, "all to " + " ".join(one.destinations), "weighted", one.reason)
            for one in found.rounds
            if (query.start_ns or 0) <= one.time_ns and (query.end_ns is None or one.time_ns < query.end_ns)
        ]
    table = Table("time s", "flow", "path", "why")
    for time_ns, flow, path, reason in sorted(rows)[-limit:]:
        table.add_row(f"{time_ns / 1e9:.3f}", flow, path, reason)
    plain_or_terminal().print(table)


@paths.command()
def routes(server: Server = SERVER) -> None:
    """List the explicit and the weighted routes in force."""
    table = Table("flow", "path")
    found = _ask(server, lambda client: client.current_routes())
    for route in found.routes:
        table.add_row(_name(route.flow), " ".join(route.switches))
    for weighted in found.weighted:
        ways = ", ".join(f"{peer} ({weight})" for peer, weight in weighted.next_hops)
        table.add_row(f"all to {weighted.destination} at {weighted.switch}", ways)
    plain_or_terminal().print(table)


@paths.command("link")
def change_link(
    link: Annotated[str, typer.Argument(metavar="A->B", help="A link between switches, one direction.")],
    state: Annotated[str, typer.Argument(metavar="down|up", help="What became of it.")],
    server: Server = SERVER,
) -> None:
    """Tell the path server that a link is down (all flows leave it at once) or up again."""
    if state not in ("down", "up"):
        raise typer.BadParameter(f"{state!r} is not down or up", param_hint="STATE")
    _ask(server, lambda client: client.link_changed(LinkChange(_link(link), up=state == "up")))


@paths.command()
def records(
    server: Server = SERVER,
    src: Annotated[str | None, typer.Option(help="Source address; goes with --dst.")] = None,
    dst: Annotated[str | None, typer.Option(help="Destination address.")] = None,
    link: Annotated[str | None, typer.Option(metavar="A->B", help="The link that hops sent onto.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Rows at most.")] = 20,
) -> None:
    """List the newest rows of the record table, one a hop: of all flows, between two addresses, or of a link."""
    if (src is None) != (dst is None):
        raise typer.BadParameter("--src and --dst go together")
    query = RecordQuery(src=src, dst=dst, link=None if link is None else _link(link), limit=limit)
    table = Table("flow", "hop", "node", "in", "out", "latency us", "queue", "tx bytes/window")
    for row in _ask(server, lambda client: client.records(query)):
        latency = "" if row.hop_latency_ns is None else f"{row.hop_latency_ns / 1000:.0f}"
        flow = f"{row.flow.src}:{row.flow.src_port} → {row.flow.dst}:{row.flow.dst_port}"
        cells = (_place(row), row.node_id, row.ingress_port, row.egress_port)
        rest = (latency, row.queue_occupancy_frames, row.tx_bytes_per_window)
        table.add_row(flow, *("" if cell is None else str(cell) for cell in (*cells, *rest)))
    plain_or_terminal().print(table)


def _place(row: HopRecord) -> str:
    """Return a hop's place on its path, or the kind of report where that does not tell it."""
    told = row.kind in (RecordKind.STACK, RecordKind.INTERMEDIATE, RecordKind.HOP_BY_HOP)
    return str(row.hop_index) if told else row.kind.name.lower()


def _link(text: str) -> LinkKey:
    tail, arrow, head = text.partition("->")
    if not (tail and arrow and head):
        raise typer.BadParameter(f"{text!r} is not of the form A->B", param_hint="link")
    return LinkKey(tail, head)


def _name(flow: FlowSpec) -> str:
    ports = (("protocol", flow.protocol), ("from port", flow.src_port), ("to port", flow.dst_port))
    details = ", ".join(f"{name} {number}" for name, number in ports if number is not None)
    return f"{flow.src_host} → {flow.dst_host}" + (f" ({details})" if details else "")


def _ask(server: str, question: Callable[[RouteClient], Awaitable[T]]) -> T:
    async def ask() -> T:
        async with RouteClient(RouteClientSettings(address=server)) as client:
            return await question(client)

    return asyncio.run(ask())


def _show_explanation(explanation: Explanation) -> None:
    screen = plain_or_terminal()
    screen.print(_record_table(explanation))
    table = Table("", "path", "delay ms", "free Mbit/s", title=_name(explanation.flow))
    for figures in explanation.candidates:
        table.add_row(*_row(figures, present=figures.switches == explanation.present.switches))
    screen.print(table)
    screen.print(explanation.reason, highlight=False, soft_wrap=True)
    for move in explanation.moves:
        screen.print(f"moved at {move.time_ns / 1e9:.3f} s: {move.reason}", highlight=False, soft_wrap=True)


def _record_table(explanation: Explanation) -> Table:
    table = Table("received s", "packet", "hop", "switch", "to", "latency us", "queue", title="newest records")
    for row in explanation.records:
        latency = "" if row.hop_latency_ns is None else f"{row.hop_latency_ns / 1000:.0f}"
        queue = "" if row.queue_occupancy_frames is None else str(row.queue_occupancy_frames)
        packet = f"{row.packet_id:x}"[-6:]
        table.add_row(
            f"{row.received_ns / 1e9:.3f}", packet, str(row.hop_index), row.switch, row.next_hop, latency, queue
        )
    return table


def _ns(seconds: float | None, option: str) -> int | None:
    if seconds is None:
        return None
    if not (isfinite(seconds) and 0 <= seconds < _MOST_S):
        raise typer.BadParameter(f"{seconds:g} s is no time of a clock", param_hint=option)
    return round(seconds * 1e9)


def _row(figures: PathFigures, *, present: bool) -> tuple[str, str, str, str]:
    dead = "" if figures.dead_link is None else f" (dead: {figures.dead_link})"
    path = " ".join(figures.switches) + dead
    return ("now" if present else "", path, f"{figures.delay_ns / 1e6:.3f}", f"{figures.bottleneck_bps / 1e6:.3f}")
