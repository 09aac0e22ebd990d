"""The other end of the feed: snapshots and records in another process, over restarts of the collector."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Final

import grpc
import grpc.aio

from collectors import codec, event_codec
from collectors.errors import FeedError
from collectors.events.rules import Rule
from collectors.messages import SERVICE
from collectors.settings import Positive
from collectors.values import CollectorStatus, DropRecord, Event, HopRecord, JobNote, Snapshot
from dataplane.config import Strict
from dataplane.rpc.addresses import client_options, malformed
from dataplane.rpc.call_errors import reason_of

_PERMANENT: Final = frozenset(
    {grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INVALID_ARGUMENT}
)
"""Codes that no waiting mends."""


class FeedClientSettings(Strict, frozen=True):
    """Where the collector's feed is, and how to wait for it."""

    address: str = "unix:/tmp/millrace-collector.sock"
    """The feed's gRPC address: unix:PATH or HOST:PORT."""

    first_wait_ns: Positive = 100_000_000
    """How long to wait before the first new try; each further wait is twice as long."""

    longest_wait_ns: Positive = 5_000_000_000
    """Waits grow no longer than this."""


class FeedClient:
    """Reads a collector's feed and comes back when the collector does; use it as an async context manager.

    `on_wait` is told, before each wait, what is waited for and why. gRPC's flow control bounds what is underway: a slow
    reader makes the server drop batches, and count them, never this side grow.
    """

    def __init__(
        self,
        settings: FeedClientSettings | None = None,
        *,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        self._settings = settings or FeedClientSettings()
        self._rng = rng or random.Random()
        self._sleep = sleep
        self._on_wait = on_wait
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> FeedClient:
        problem = malformed(self._settings.address)
        if problem is not None:
            raise FeedError(f"collector at {self._settings.address!r}: {problem}")
        options = client_options(self._settings.longest_wait_ns)
        self._channel = grpc.aio.insecure_channel(self._settings.address, options=options)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._channel is not None:
            await self._channel.close(grace=None)
            self._channel = None

    async def snapshots(self, interval_ns: int) -> AsyncIterator[Snapshot]:
        """Yield a snapshot at every interval, for ever; raise FeedError when the two sides speak different versions."""
        async for message in self._stream("Watch", codec.encode_watch(interval_ns)):
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

    async def status(self) -> CollectorStatus:
        """Return the collector's counters; raise FeedError when it cannot be reached."""
        return codec.decode_status(await self._call("Status", codec.encode_request()))

    async def _call(self, method: str, request: bytes) -> bytes:
        call = self._open().unary_unary(f"/{SERVICE}/{method}", None, None)
        try:
            message: bytes = await call(request)
        except grpc.aio.AioRpcError as error:
            raise FeedError(f"collector at {self._settings.address}: {reason_of(error)}") from error
        return message

    async def _stream(self, method: str, request: bytes) -> AsyncIterator[bytes]:
        """Yield the method's messages over as many calls as it takes."""
        wait_ns = self._settings.first_wait_ns
        while True:
            reason = "the collector ended the stream"
            try:
                async for message in self._open().unary_stream(f"/{SERVICE}/{method}", None, None)(request):
                    wait_ns = self._settings.first_wait_ns
                    yield message
            except grpc.aio.AioRpcError as error:
                reason = reason_of(error)
                if error.code() in _PERMANENT:
                    raise FeedError(f"collector at {self._settings.address}: {reason}") from error
            await self._wait(wait_ns, reason)
            wait_ns = min(2 * wait_ns, self._settings.longest_wait_ns)

    async def _wait(self, wait_ns: int, reason: str) -> None:
        # Between half the wait and all of it, so that many clients do not come back at once.
        seconds = wait_ns * self._rng.uniform(0.5, 1.0) / 1e9
        if self._on_wait is not None:
            self._on_wait(f"waiting {seconds:.1f} s for the collector at {self._settings.address}: {reason}")
        await self._sleep(seconds)

    def _open(self) -> grpc.aio.Channel:
        if self._channel is None:
            raise FeedError("the client is used outside its `async with`")
        return self._channel
