"""The feed from the collector to other processes: gRPC with generic handlers, messages as in `collectors.feed.codec`.

Service millrace.collector.v1.Feed: Watch (a snapshot at an interval, the first at once), Records (batches of hop
records as they come), Drops (packets that switches say they dropped), Events (what the rules raise and clear), Rules
and SetRules (those in force), NameJobs (what those tell who run jobs), NoteLinks (what the controller tells of links'
condition), Status (once). A request of another version
fails with FAILED_PRECONDITION. Nothing here authenticates: the address is a unix socket, guarded by its folder's
rights, or loopback.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

import grpc
import grpc.aio

from collectors.collector import Collector
from collectors.counters import Count
from collectors.errors import CollectorError, FeedError
from collectors.events.service import EventService
from collectors.feed import codec, event_codec
from collectors.feed.messages import ADDRESS, SERVICE
from collectors.settings import Positive
from collectors.values import Event
from dataplane.config import Strict
from dataplane.rpc.addresses import SERVER_OPTIONS, unavailable

T = TypeVar("T")
_Subscribe = Callable[[Callable[[tuple[T, ...]], None]], Callable[[], None]]
_Context = grpc.aio.ServicerContext[bytes, bytes]


class FeedSettings(Strict, frozen=True):
    """Where the collector serves its feed, and how much it keeps for a slow subscriber."""

    address: str = ADDRESS
    """A gRPC address: unix:PATH, or HOST:PORT with port 0 for a free one."""

    queue_batches: Positive = 4096
    """How many reports' records wait for one subscriber; those beyond are dropped and counted."""

    batch_records: Positive = 1024
    """About how many records go into one message."""

    shortest_interval_ns: Positive = 1_000_000
    """Snapshots are sent no more often than this, whatever a subscriber asks for."""


class FeedServer:
    """Serves a collector's snapshots and records; construct and use it inside a running event loop."""

    def __init__(
        self, collector: Collector, settings: FeedSettings | None = None, events: EventService | None = None
    ) -> None:
        self._collector = collector
        self._events = events or EventService(collector)
        self._settings = settings or FeedSettings()
        problem = unavailable(self._settings.address)
        if problem is not None:
            raise CollectorError(f"cannot serve the feed at {self._settings.address}: {problem}")
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers((self._handlers(),))
        try:
            port = self._server.add_insecure_port(self._settings.address)
        except RuntimeError as error:
            raise CollectorError(f"cannot serve the feed at {self._settings.address}: {error}") from error
        is_unix = self._settings.address.startswith("unix:")
        self.address = self._settings.address if is_unix else f"{self._settings.address.rpartition(':')[0]}:{port}"

    def _handlers(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        methods = {
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch),
            "Records": grpc.unary_stream_rpc_method_handler(self._records),
            "Drops": grpc.unary_stream_rpc_method_handler(self._drops),
            "Events": grpc.unary_stream_rpc_method_handler(self._event_stream),
            "Rules": grpc.unary_unary_rpc_method_handler(self._rules),
            "SetRules": grpc.unary_unary_rpc_method_handler(self._set_rules),
            "NameJobs": grpc.unary_unary_rpc_method_handler(self._name_jobs),
            "NoteLinks": grpc.unary_unary_rpc_method_handler(self._note_links),
            "Status": grpc.unary_unary_rpc_method_handler(self._status),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def start(self) -> None:
        """Begin to serve."""
        await self._server.start()

    async def stop(self) -> None:
        """End every stream and stop serving."""
        await self._server.stop(grace=None)

    async def _watch(self, request: bytes, context: _Context) -> AsyncIterator[bytes]:
        interval_ns = await _checked(context, codec.decode_watch, request)
        while True:
            # Values of many flows take long to make: reports come in meanwhile.
            yield await asyncio.to_thread(codec.encode_snapshot, self._collector.snapshot())
            await asyncio.sleep(max(interval_ns, self._settings.shortest_interval_ns) / 1e9)

    async def _records(self, request: bytes, context: _Context) -> AsyncIterator[bytes]:
        await _checked(context, codec.decode_request, request)
        async for message in self._batches(self._collector.subscribe, codec.encode_records):
            yield message

    async def _drops(self, request: bytes, context: _Context) -> AsyncIterator[bytes]:
        await _checked(context, codec.decode_request, request)
        async for message in self._batches(self._collector.subscribe_drops, event_codec.encode_drops):
            yield message

    async def _batches(self, subscribe: _Subscribe[T], encode: Callable[[Sequence[T]], bytes]) -> AsyncIterator[bytes]:
        """Yield what a subscription brings, several batches of it together where the subscriber is behind."""
        queue: asyncio.Queue[tuple[T, ...]] = asyncio.Queue(self._settings.queue_batches)
        unsubscribe = subscribe(lambda batch: self._offer(queue, batch))
        try:
            # The first message, without content, says that the subscription stands.
            yield encode(())
            while True:
                batch = list(await queue.get())
                while len(batch) < self._settings.batch_records and not queue.empty():
                    batch += queue.get_nowait()
                yield encode(batch)
        finally:
            unsubscribe()

    async def _event_stream(self, request: bytes, context: _Context) -> AsyncIterator[bytes]:
        since_ns = await _checked(context, event_codec.decode_events_request, request)
        queue: asyncio.Queue[tuple[Event, ...]] = asyncio.Queue(self._settings.queue_batches)
        unsubscribe = self._events.subscribe(lambda events: self._offer(queue, events))
        try:
            kept = () if since_ns is None else self._events.kept
            # The first message, perhaps without events, says that the subscription stands.
            yield event_codec.encode_events([event for event in kept if event.time_ns >= (since_ns or 0)])
            while True:
                yield event_codec.encode_events(await queue.get())
        finally:
            unsubscribe()

    async def _rules(self, request: bytes, context: _Context) -> bytes:
        await _checked(context, codec.decode_request, request)
        return event_codec.encode_rules(self._events.rules)

    async def _set_rules(self, request: bytes, context: _Context) -> bytes:
        self._events.replace(await _checked(context, event_codec.decode_rules, request))
        return event_codec.encode_rules(self._events.rules)

    async def _name_jobs(self, request: bytes, context: _Context) -> bytes:
        self._collector.note_jobs(await _checked(context, codec.decode_notes, request))
        return codec.encode_request()

    async def _note_links(self, request: bytes, context: _Context) -> bytes:
        self._collector.note_links(await _checked(context, codec.decode_statuses, request))
        return codec.encode_request()

    def _offer(self, queue: asyncio.Queue[tuple[T, ...]], batch: tuple[T, ...]) -> None:
        if queue.full():
            self._collector.counters[Count.FEED_BATCHES_DROPPED] += 1
        else:
            queue.put_nowait(batch)

    async def _status(self, request: bytes, context: _Context) -> bytes:
        await _checked(context, codec.decode_request, request)
        return codec.encode_status(self._collector.status())


async def _checked(context: _Context, decode: Callable[[bytes], T], request: bytes) -> T:
    """Return the decoded request, or end the call with the reason."""
    try:
        return decode(request)
    except FeedError as error:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        raise
