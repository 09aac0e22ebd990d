"""`millrace paths`: the path server, and questions to one that runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from controller.cli.common import SettingsFile, log_to_stderr, ready
from controller.intents import FlowSpec, Route
from controller.paths.client import RouteClient, RouteClientSettings
from controller.paths.codec import Explanation, RecordQuery
from controller.paths.graph import PathFigures

paths = typer.Typer(name="paths", help="The path server, and questions to one that runs.", no_args_is_help=True)

Server = Annotated[str, typer.Option("--server", metavar="ADDRESS", help="unix:PATH or HOST:PORT.")]
Src = Annotated[str, typer.Argument(help="Name of the sending host.")]
Dst = Annotated[str, typer.Argument(help="Name of the receiving host.")]

T = TypeVar("T")


@paths.command()
def serve(settings: SettingsFile) -> None:
    """Run the path server: record every hop, decide, serve routes."""
    from controller.paths import process  # noqa: PLC0415

    log_to_stderr("paths")
    process.run(process.load_settings(settings), ready("paths"))


@paths.command()
def why(src: Src, dst: Dst, server: Server) -> None:
    """Say why a flow is on its path: the candidates with their figures, the reason, its last moves."""
    explanation = _ask(server, lambda client: client.why(FlowSpec(src, dst)))
    _show_explanation(explanation)


@paths.command()
def routes(server: Server) -> None:
    """List the explicit routes in force."""
    table = Table("flow", "path")
    for route in _ask(server, _first_routes):
        table.add_row(f"{route.flow.src_host} → {route.flow.dst_host}", " ".join(route.switches))
    Console().print(table)


@paths.command()
def records(
    server: Server,
    src: Annotated[str | None, typer.Option(help="Source address.")] = None,
    dst: Annotated[str | None, typer.Option(help="Destination address.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000)] = 20,
) -> None:
    """List the newest rows of the record table, one a hop."""
    table = Table("flow", "hop", "node", "in", "out", "latency us", "queue", "tx bytes/window")
    for row in _ask(server, lambda client: client.records(RecordQuery(src=src, dst=dst, limit=limit))):
        latency = "" if row.hop_latency_ns is None else f"{row.hop_latency_ns / 1000:.0f}"
        flow = f"{row.flow.src}:{row.flow.src_port} → {row.flow.dst}:{row.flow.dst_port}"
        cells = (row.hop_index, row.node_id, row.ingress_port, row.egress_port)
        rest = (latency, row.queue_occupancy_frames, row.tx_bytes_per_window)
        table.add_row(flow, *("" if cell is None else str(cell) for cell in (*cells, *rest)))
    Console().print(table)


async def _first_routes(client: RouteClient) -> tuple[Route, ...]:
    async for found in client.routes():
        return found.routes
    return ()


def _ask(server: str, question: Callable[[RouteClient], Awaitable[T]]) -> T:
    async def ask() -> T:
        async with RouteClient(RouteClientSettings(address=server)) as client:
            return await question(client)

    return asyncio.run(ask())


def _show_explanation(explanation: Explanation) -> None:
    console = Console()
    table = Table(
        "", "path", "delay ms", "free Mbit/s", title=f"{explanation.flow.src_host} → {explanation.flow.dst_host}"
    )
    for figures in explanation.candidates:
        table.add_row(*_row(figures, present=figures.switches == explanation.present.switches))
    console.print(table)
    console.print(explanation.reason, highlight=False, soft_wrap=True)
    for move in explanation.moves:
        console.print(f"moved at {move.time_ns / 1e9:.3f} s: {move.reason}", highlight=False, soft_wrap=True)


def _row(figures: PathFigures, *, present: bool) -> tuple[str, str, str, str]:
    dead = "" if figures.dead_link is None else f" (dead: {figures.dead_link})"
    path = " ".join(figures.switches) + dead
    return ("now" if present else "", path, f"{figures.delay_ns / 1e6:.3f}", f"{figures.bottleneck_bps / 1e6:.3f}")
