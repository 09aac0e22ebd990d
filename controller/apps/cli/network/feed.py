"""Queries to a collector's feed: a prompt answer, or a one-line reason."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from collectors.errors import FeedError
from collectors.settings import FeedClientSettings

if TYPE_CHECKING:
    from collectors.feed.client import FeedClient
    from collectors.values import Snapshot

Feed = Annotated[str, typer.Option("--feed", metavar="ADDRESS", help="The collector's feed: unix:PATH or HOST:PORT.")]
FEED: Final = FeedClientSettings().address
PATIENCE_S: Final = 10.0
"""Time limit for an answer from a reachable collector."""

T = TypeVar("T")


def ask(feed: str, question: Callable[[FeedClient], Awaitable[T]], *, patience_s: float | None = PATIENCE_S) -> T:
    """Return the answer to a query; raise FeedError if the collector is unreachable or answers too late."""
    from collectors.feed.client import FeedClient  # noqa: PLC0415

    async def asked() -> T:
        client = FeedClient(FeedClientSettings(address=feed), on_wait=lambda line: typer.echo(line, err=True))
        async with client:
            return await asyncio.wait_for(question(client), patience_s)

    try:
        return asyncio.run(asked())
    except TimeoutError as error:
        raise FeedError(f"collector at {feed}: no answer within {PATIENCE_S:.0f} s") from error


async def snapshot_of(client: FeedClient) -> Snapshot:
    """Return the network's current state."""
    await client.status()  # unlike a stream, it fails at once if nothing listens
    return await anext(client.snapshots(1_000_000_000))
