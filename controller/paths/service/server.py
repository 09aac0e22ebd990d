"""The path server's process: the collector's feed in, routes, decisions and answers out.

Service millrace.paths.v1.Paths over gRPC with generic handlers: Routes (the full set at once, then each new one),
Decisions and Rebalances (the last ones, then each as it is made), Why, History, LinkChanged (by hand), NoteLinks (by
the controller), Records, Status (once each). Everything
that touches the database runs in one thread of its own, so that a slow disk delays neither feed nor answers of others.
Nothing here authenticates: the address is a unix socket, guarded by its folder's rights, or loopback.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import grpc
import grpc.aio

from collectors.feed import codec as collector_codec
from collectors.values import DropRecord, HopRecord, Snapshot
from controller.errors import PathError
from controller.intents import FlowSpec
from controller.paths.balancing.values import Rebalance
from controller.paths.core import RECENT_DECISIONS, PathServerCore
from controller.paths.deciding.decide import Decision
from controller.paths.deciding.signals import Signals
from controller.paths.records.codec import (
    Explanation,
    HistoryQuery,
    LinkChange,
    LinkNotes,
    PathServerStatus,
    RecentDecisions,
    RecordQuery,
    pack,
    unpack,
)
from controller.paths.records.queries import answer, rows_between
from controller.paths.records.recorder import Recorder
from controller.paths.round_result import RoundResult
from controller.paths.service.feed_time import FeedTime
from controller.paths.service.feed_watch import FeedWatch
from controller.paths.settings import PathServerSettings
from dataplane.clock import Clock
from dataplane.rpc.addresses import SERVER_OPTIONS, unavailable

LOGGER = logging.getLogger("millrace.paths")

SERVICE: Final = "millrace.paths.v1.Paths"
MAX_PENDING_BATCHES = 64
"""Batches of records that wait for the database before more are dropped and counted."""
_LOOKS: Final = 4
"""How often, in the time that makes a feed silent, one looks whether it is."""
MAX_PENDING_DECISIONS = 1024
"""Decisions that wait for one subscriber before more are dropped and counted."""

T = TypeVar("T")
_Context = grpc.aio.ServicerContext[bytes, bytes]


class Feed(Protocol):
    """Where snapshots and records come from: `collectors.feed.client.FeedClient`."""

    def snapshots(self, interval_ns: int) -> AsyncGenerator[Snapshot, None]:
        """Yield a snapshot at every interval."""
        ...

    def records(self) -> AsyncIterator[tuple[HopRecord, ...]]:
        """Yield batches of hop records."""
        ...

    def drops(self) -> AsyncIterator[tuple[DropRecord, ...]]:
        """Yield batches of what switches say they dropped."""
        ...


class PathServer:
    """Runs a core on a feed and serves it; construct it inside a running event loop."""

    def __init__(self, core: PathServerCore, recorder: Recorder, settings: PathServerSettings, clock: Clock) -> None:
        problem = unavailable(settings.listen)
        if problem is not None:
            raise PathError(f"cannot serve routes at {settings.listen}: {problem}")
        self._core, self._recorder, self._settings, self._clock = core, recorder, settings, clock
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="paths")
        self._pending: asyncio.Queue[tuple[HopRecord, ...]] = asyncio.Queue(MAX_PENDING_BATCHES)
        self._subscribers: set[asyncio.Queue[Decision]] = set()
        self._balance_subscribers: set[asyncio.Queue[Rebalance]] = set()
        self._routes = core.routes
        self._recent = deque(core.decisions, maxlen=RECENT_DECISIONS)
        self._recent_changes = deque(core.rebalances, maxlen=RECENT_DECISIONS)
        self._news = asyncio.Condition()
        self._newest: tuple[Snapshot, int, bool] | None = None
        self._signals = Signals(
            core.network.topology, queue_frames=core.settings.idle_frames, interval_ns=settings.interval_ns
        )
        self._woken = asyncio.Event()
        self._arrived = asyncio.Event()
        self._feed_time = FeedTime()
        self._feed_time_known = asyncio.Event()
        self._last_step_ns: int | None = None
        self._feed_watch = FeedWatch(settings.oldest_snapshot_ns, clock.now_ns())
        self.counters: dict[str, int] = dict.fromkeys(
            (
                "records",
                "record_batches_dropped",
                "records_failed",
                "decisions_dropped",
                "stale_snapshots",
                "feed_silences",
                "rounds_woken",
            ),
            0,
        )
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers((self._handlers(),))
        try:
            port = self._server.add_insecure_port(settings.listen)
        except RuntimeError as error:
            raise PathError(f"cannot serve routes at {settings.listen}: {error}") from error
        is_unix = settings.listen.startswith("unix:")
        self.address = settings.listen if is_unix else f"{settings.listen.rpartition(':')[0]}:{port}"

    async def run(self, feed: Feed) -> None:
        """Serve, record and decide until cancelled; a failure of the feed for good is raised."""
        await self._server.start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch(feed), name="watch")
                group.create_task(self._listen_for_silence(), name="listen for silence")
                group.create_task(self._look_at_once(feed), name="look at once")
                group.create_task(self._decide(), name="decide")
                group.create_task(self._receive(feed), name="receive records")
                group.create_task(self._receive_drops(feed), name="receive drops")
                group.create_task(self._record(), name="record")
        finally:
            await self._server.stop(grace=None)
            self._worker.shutdown(wait=True, cancel_futures=True)

    async def step(self, snapshot: Snapshot, taken_ns: int, *, woken: bool = False) -> None:
        """Decide on a snapshot, taken at a time of ours, and publish what comes of it; an old one is only counted.

        `woken` says that it was asked for out of turn, as the network has changed.
        """
        now_ns = self._clock.now_ns()
        if self._feed_watch.is_old(taken_ns, now_ns):
            self.counters["stale_snapshots"] += 1
            return
        result = await self._in_worker(partial(self._core.step, snapshot, now_ns, woken=woken))
        self._signals.decided(moved=result is not None)
        self._last_step_ns = now_ns
        await self._publish(result)

    async def link_changed(self, change: LinkChange) -> None:
        """Take note of a link that went down or came back, and publish what comes of it."""
        now_ns = self._clock.now_ns()
        await self._publish(await self._in_worker(partial(self._core.link_changed, change.link, now_ns, up=change.up)))

    async def links_noted(self, notes: LinkNotes) -> None:
        """Take note of what the controller says of all links, and publish what comes of it."""
        now_ns, statuses = self._clock.now_ns(), dict(notes.links)
        await self._publish(await self._in_worker(partial(self._core.links_noted, statuses, now_ns)))

    async def _watch(self, feed: Feed) -> None:
        """Keep the newest snapshot only: a round that takes long must not leave a queue of old ones behind."""
        async for snapshot in feed.snapshots(self._settings.interval_ns):
            self._feed_time.hear(snapshot.taken_ns, self._clock.now_ns())
            self._feed_time_known.set()
            self._take(snapshot, woken=False)

    async def _look_at_once(self, feed: Feed) -> None:
        """Ask for a snapshot out of turn whenever records say that the network has changed."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            async with aclosing(feed.snapshots(self._settings.interval_ns)) as snapshots:
                async for snapshot in snapshots:
                    self._take(snapshot, woken=True)
                    break

    def _take(self, snapshot: Snapshot, *, woken: bool) -> None:
        taken_ns = snapshot.taken_ns + self._feed_time.offset_ns
        self._feed_watch.heard(taken_ns)
        self.tell_of_silence()
        self._newest = snapshot, taken_ns, woken
        self._arrived.set()

    async def _listen_for_silence(self) -> None:
        while True:
            await asyncio.sleep(self._settings.oldest_snapshot_ns / _LOOKS / 1e9)
            self.tell_of_silence()

    def tell_of_silence(self) -> None:
        """Say, once each, when the feed falls silent and when it speaks again."""
        now_ns = self._clock.now_ns()
        news = self._feed_watch.news(now_ns)
        if news is None:
            return
        is_silent = self._feed_watch.is_silent(now_ns)
        self.counters["feed_silences"] += is_silent
        LOGGER.log(logging.WARNING if is_silent else logging.INFO, "%s", news)

    async def _decide(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            if self._newest is not None:
                snapshot, taken_ns, woken = self._newest
                await self.step(snapshot, taken_ns, woken=woken)

    async def _receive(self, feed: Feed) -> None:
        async for records in feed.records():
            outgrown, now_ns = self._core.hear(records), self._clock.now_ns()
            self._wake(self._signals.hear(records, now_ns) or self._signals.hear_growth(outgrown, now_ns))
            if self._pending.full():
                self.counters["record_batches_dropped"] += 1
            elif records:
                self._pending.put_nowait(records)

    async def _receive_drops(self, feed: Feed) -> None:
        async for drops in feed.drops():
            self._wake(self._signals.hear_drops(drops, self._clock.now_ns()))

    def _wake(self, wanted: bool) -> None:
        if wanted:
            self.counters["rounds_woken"] += 1
            self._woken.set()

    async def _record(self) -> None:
        await self._feed_time_known.wait()
        problem = ""
        while True:
            records = await self._pending.get()
            try:
                await self._in_worker(partial(self._recorder.record, records, self._feed_time.offset_ns))
                self.counters["records"] += len(records)
            except PathError as error:
                self.counters["records_failed"] += len(records)
                # A disk that is full fails every batch: the counter goes on, the log has each problem once.
                if str(error) != problem:
                    LOGGER.warning("%s", error)
                problem = str(error)
            else:
                problem = ""

    async def _publish(self, result: RoundResult | None) -> None:
        """Send subscribers what a round came to; without a result nothing has changed."""
        if result is None:
            return
        self._recent.extend(result.moves)
        self._recent_changes.extend(result.rebalances)
        for decision in result.moves:
            LOGGER.info("%s->%s: %s", decision.flow.src_host, decision.flow.dst_host, decision.reason)
            self._tell(self._subscribers, decision)
        for change in result.rebalances:
            LOGGER.info("all to %s at %s: %s", change.destination, change.switch, change.reason)
            self._tell(self._balance_subscribers, change)
        async with self._news:
            self._routes = result.routes
            self._news.notify_all()

    def _tell(self, subscribers: set[asyncio.Queue[T]], news: T) -> None:
        for queue in subscribers:
            if queue.full():
                self.counters["decisions_dropped"] += 1
            else:
                queue.put_nowait(news)

    async def _in_worker(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, call)

    def _handlers(self) -> grpc.GenericRpcHandler[Any, Any]:
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Routes": grpc.unary_stream_rpc_method_handler(self._serve_routes),
                "Decisions": grpc.unary_stream_rpc_method_handler(self._serve_decisions),
                "Rebalances": grpc.unary_stream_rpc_method_handler(self._serve_rebalances),
                "Why": grpc.unary_unary_rpc_method_handler(self._serve_why),
                "History": grpc.unary_unary_rpc_method_handler(self._serve_history),
                "NoteLinks": grpc.unary_unary_rpc_method_handler(self._serve_note_links),
                "LinkChanged": grpc.unary_unary_rpc_method_handler(self._serve_link_changed),
                "Records": grpc.unary_unary_rpc_method_handler(self._serve_records),
                "Status": grpc.unary_unary_rpc_method_handler(self._serve_status),
            },
        )

    async def _serve_routes(self, request: bytes, context: _Context) -> AsyncIterator[bytes]:
        """Send the set in force, then always the newest; sets that a slow reader missed are skipped."""
        await _checked(context, request, type(None))
        sent = self._routes
        yield pack(sent)
        while True:
            async with self._news:
                while self._routes is sent:
                    await self._news.wait()
                sent = self._routes
            yield pack(sent)

    async def _serve_decisions(self, request: bytes, context: _Context) -> AsyncIterator[bytes]:
        wanted = await _checked(context, request, RecentDecisions)
        async for message in _follow(self._recent, self._subscribers, wanted.recent):
            yield message

    async def _serve_rebalances(self, request: bytes, context: _Context) -> AsyncIterator[bytes]:
        wanted = await _checked(context, request, RecentDecisions)
        async for message in _follow(self._recent_changes, self._balance_subscribers, wanted.recent):
            yield message

    async def _serve_why(self, request: bytes, context: _Context) -> bytes:
        flow = await _checked(context, request, FlowSpec)
        return pack(await self._answer(context, lambda: self._explain(flow)))

    def _explain(self, flow: FlowSpec) -> Explanation:
        now_ns = self._clock.now_ns()
        return replace(
            self._core.why(flow, now_ns),
            records=rows_between(self._recorder, self._core.network.topology, flow),
            figures_age_ns=self._feed_watch.age_ns(now_ns),
            feed_is_silent=self._feed_watch.is_silent(now_ns),
        )

    async def _serve_link_changed(self, request: bytes, context: _Context) -> bytes:
        change = await _checked(context, request, LinkChange)
        try:
            await self.link_changed(change)
        except PathError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        return pack(None)

    async def _serve_note_links(self, request: bytes, context: _Context) -> bytes:
        await self.links_noted(await _checked(context, request, LinkNotes))
        return pack(None)

    async def _serve_history(self, request: bytes, context: _Context) -> bytes:
        query = await _checked(context, request, HistoryQuery)
        return pack(await self._answer(context, lambda: self._core.history(query)))

    async def _serve_records(self, request: bytes, context: _Context) -> bytes:
        query = await _checked(context, request, RecordQuery)
        topology = self._core.network.topology
        records = await self._answer(context, lambda: answer(self._recorder, topology, query))
        return collector_codec.encode_records(records)

    async def _serve_status(self, request: bytes, context: _Context) -> bytes:
        await _checked(context, request, type(None))
        now_ns, core = self._clock.now_ns(), self._core
        counters = {**self.counters, **core.counters}
        status = PathServerStatus(
            core.routes.version,
            core.flows,
            len(core.routes.routes),
            self._last_step_ns,
            self._feed_watch.age_ns(now_ns),
            counters,
            core.last_problem,
            self._feed_watch.is_silent(now_ns),
            now_ns,
        )
        return pack(status)

    async def _answer(self, context: _Context, call: Callable[[], T]) -> T:
        """Return what a call in the worker gives, or end the request with its error."""
        try:
            return await self._in_worker(call)
        except PathError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
            raise


async def _follow(news: Collection[T], subscribers: set[asyncio.Queue[T]], recent: int) -> AsyncIterator[bytes]:
    """Yield the last `recent` of what was decided, then all that follows, until nobody asks any more."""
    queue: asyncio.Queue[T] = asyncio.Queue(MAX_PENDING_DECISIONS)
    known = list(news)
    subscribers.add(queue)
    try:
        for one in known[max(0, len(known) - max(0, recent)) :]:
            yield pack(one)
        while True:
            yield pack(await queue.get())
    finally:
        subscribers.discard(queue)


async def _checked(context: _Context, request: bytes, schema: type[T]) -> T:
    try:
        return unpack(request, schema)
    except PathError as error:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        raise
