"""Queries of commands to a running path server, and how they show flows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from controller.apps.cli.shared.units import seconds
from controller.network.intents import FlowSpec
from controller.network.paths.settings import ADDRESS

if TYPE_CHECKING:
    from controller.network.paths.records.values import PathServerStatus
    from controller.network.paths.service.client import RouteClient

Server = Annotated[str, typer.Option("--server", metavar="ADDRESS", help="unix:PATH or HOST:PORT.")]
SERVER: Final = ADDRESS

T = TypeVar("T")


def ask(server: str, question: Callable[[RouteClient], Awaitable[T]]) -> T:
    """Return a path server's answer; raise PathError."""
    from controller.network.paths.service.client import RouteClient, RouteClientSettings  # noqa: PLC0415

    async def answer() -> T:
        async with RouteClient(RouteClientSettings(address=server)) as client:
            return await question(client)

    return asyncio.run(answer())


def ask_at(server: str, question: Callable[[RouteClient], Awaitable[T]]) -> tuple[T, PathServerStatus]:
    """Return an answer and the path server's state; warn on stderr if its data is old."""

    async def both(client: RouteClient) -> tuple[T, PathServerStatus]:
        return await question(client), await client.status()

    answer, now = ask(server, both)
    if now.feed_is_silent:
        newest = (
            "no figures received yet"
            if now.snapshot_age_ns is None
            else f"figures are {seconds(now.snapshot_age_ns)} s old"
        )
        typer.echo(f"the collector's feed is silent: {newest}, so no decisions use them", err=True)
    return answer, now


def flow_name(flow: FlowSpec) -> str:
    """Return a flow as tables show it."""
    ports = (("protocol", flow.protocol), ("from port", flow.src_port), ("to port", flow.dst_port))
    details = ", ".join(f"{name} {number}" for name, number in ports if number is not None)
    return f"{flow.src_host} → {flow.dst_host}" + (f" ({details})" if details else "")
