"""The other end of the feed: snapshots and records in another process, over restarts of the collector."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from collectors.errors import FeedError
from collectors.events.rules import Rule
from collectors.feed import codec, event_codec
from collectors.feed.messages import ADDRESS, SERVICE
from collectors.settings import Positive
from collectors.values import CollectorStatus, DropRecord, Event, HopRecord, JobNote, LinkStatus, Snapshot
from dataplane.config import Strict
from dataplane.rpc.client import Peer, ServiceClient
from dataplane.topology.values import LinkKey

_PEER: Final = Peer(SERVICE, "collector", FeedError)


class FeedClientSettings(Strict, frozen=True):
    """Where the collector's feed is, and how to wait for it."""

    address: str = ADDRESS
    """The feed's gRPC address: unix:PATH or HOST:PORT."""

    first_wait_ns: Positive = 100_000_000
    """How long to wait before the first new try; each further wait is twice as long."""

    longest_wait_ns: Positive = 5_000_000_000
    """Waits grow no longer than this."""


class FeedClient(ServiceClient):
    """Reads a collector's feed and comes back when the collector does; use it as an async context manager.

    gRPC's flow control bounds what is underway: a slow reader makes the server drop batches, and count them, never this
    side grow.
    """

    def __init__(
        self,
        settings: FeedClientSettings | None = None,
        *,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(_PEER, settings or FeedClientSettings(), rng=rng, sleep=sleep, on_wait=on_wait)

    async def snapshots(self, interval_ns: int) -> AsyncGenerator[Snapshot, None]:
        """Yield a snapshot at every interval, for ever; raise FeedError when the two sides speak different versions."""
        async with aclosing(self._stream("Watch", codec.encode_watch(interval_ns))) as messages:
            async for message in messages:
                yield codec.decode_snapshot(message)

    async def records(self) -> AsyncIterator[tuple[HopRecord, ...]]:
        """Yield batches of hop records, for ever; raise FeedError when the two sides speak different versions.

        An empty batch says that a subscription begins: records before it may be missing.
        """
        async for message in self._stream("Records", codec.encode_request()):
            yield codec.decode_records(message)

    async def drops(self) -> AsyncIterator[tuple[DropRecord, ...]]:
        """Yield batches of what switches say they dropped, for ever; an empty one says that a subscription begins."""
        async for message in self._stream("Drops", codec.encode_request()):
            yield event_codec.decode_drops(message)

    async def events(self, since_ns: int | None = None) -> AsyncIterator[tuple[Event, ...]]:
        """Yield events as rules raise and clear them, for ever; first those kept since a time, if one is given.

        An empty batch says that a subscription begins. After a break the same kept events may come again.
        """
        async for message in self._stream("Events", event_codec.encode_events_request(since_ns)):
            yield event_codec.decode_events(message)

    async def rules(self) -> tuple[Rule, ...]:
        """Return the rules in force; raise FeedError when the collector cannot be reached."""
        return event_codec.decode_rules(await self._call("Rules", codec.encode_request()))

    async def set_rules(self, rules: Sequence[Rule]) -> None:
        """Put these rules in force, all others away; raise FeedError when the collector does not take them."""
        await self._call("SetRules", event_codec.encode_rules(rules))

    async def name_jobs(self, notes: Mapping[int, JobNote]) -> None:
        """Tell of all jobs that run, by their numbers; raise FeedError when the collector cannot be reached."""
        await self._call("NameJobs", codec.encode_notes(notes))

    async def note_links(self, statuses: Mapping[LinkKey, LinkStatus]) -> None:
        """Tell the condition of all links that are watched; raise FeedError when the collector cannot be reached."""
        await self._call("NoteLinks", codec.encode_statuses(statuses))

    async def status(self) -> CollectorStatus:
        """Return the collector's counters; raise FeedError when it cannot be reached."""
        return codec.decode_status(await self._call("Status", codec.encode_request()))
