"""The feed from the collector to other processes, a gRPC service as feed.proto describes it."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from collectors.collector import Collector
from collectors.counters import Count
from collectors.errors import CollectorError
from collectors.events.service import EventService
from collectors.feed import events_pb2, feed_pb2, links_pb2
from collectors.feed.events import event_message, events_message, rules_of, state_message
from collectors.feed.records import drops_message, record_columns_message
from collectors.feed.signals import SignalBoard, SignalWatch, signals_message, tells
from collectors.feed.snapshots import notes_of, snapshot_message, status_message
from collectors.feed.states.changes import NumberedState, NumberedStates
from collectors.feed.statuses import moves_of, statuses_of
from collectors.feed.windows.windows import windows_message
from collectors.record_columns import RecordColumns
from collectors.settings import FEED_ADDRESS, Positive
from collectors.subscribers import Handover, RecordQueue, SharedSnapshots, next_due
from collectors.values import DropRecord, Event, EventNote, FlowMove, NetworkSignals, Snapshot
from dataplane.clock import NS_PER_S
from dataplane.config import Settings
from dataplane.rpc.access.caller import CALLER
from dataplane.rpc.access.permissions import Permission
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.access.values import Role
from dataplane.rpc.errors import CallError, MessageError
from dataplane.rpc.limits import Limits
from dataplane.rpc.server import RpcServer
from dataplane.rpc.service import Service

LOGGER: Final = logging.getLogger("millrace.collector")
_NOTE_LENGTH: Final = 500
MoveSink = Callable[[Sequence[FlowMove]], None]
_NEWS: Final = 2
"""A queue this many times as long as the last that was told of is told of at once."""
MAX_INTERVAL_NS: Final = 3_600_000_000_000

_NEEDS: Final = {
    "WatchSnapshots": Permission.READ,
    "GetSnapshot": Permission.READ,
    "GetLinkWindows": Permission.READ,
    "WatchRecords": Permission.READ,
    "WatchDrops": Permission.READ,
    "WatchSignals": Permission.READ,
    "WatchEvents": Permission.READ,
    "Acknowledge": Permission.CHANGE,
    "GetRules": Permission.READ,
    "SetRules": Permission.OPERATE,
    "NameJobs": Permission.CHANGE,
    "NoteLinks": Permission.CHANGE,
    "NoteMoves": Permission.CHANGE,
    "GetStatus": Permission.READ,
}


class FeedSettings(Settings, frozen=True):
    """Settings of the collector's feed: its address and the buffering for slow subscribers."""

    address: str = FEED_ADDRESS
    """A gRPC address: unix:PATH, or HOST:PORT with port 0 for a free one; others than loopback need `tls`."""

    tls: TlsSettings | None = None
    """Certificates for HOST:PORT: the server's own, and by `ca` or `tokens` those of accepted clients."""

    queue_batches: Positive = 4096
    """Messages of drops or events queued for one subscriber; those beyond are dropped and counted."""

    batch_drops: Positive = 1024
    """Approximate number of drops per message."""

    queue_records: Positive = 65_536
    """Hop records queued for one subscriber; batches beyond are dropped and counted."""

    record_interval_ns: Positive = 50_000_000
    """Time between two messages of hop records, each with all that have come since."""

    shortest_interval_ns: Positive = 10_000_000
    """Snapshots are sent no more often than this, whatever a subscriber asks for."""

    signal_interval_ns: Positive = 5_000_000
    """Interval between checks for signs of a change, while any client watches; messages are no more frequent."""

    limits: Limits = Limits()
    """Limits for all subscribers together."""


class FeedServer:
    """Serves a collector's snapshots and records; construct and use it inside a running event loop."""

    def __init__(
        self,
        collector: Collector,
        settings: FeedSettings | None = None,
        events: EventService | None = None,
        take_moves: MoveSink = lambda _: None,
    ) -> None:
        """`take_moves` gets what path servers report."""
        self._collector, self._take_moves = collector, take_moves
        self._events = events or EventService(collector)
        self._signals = SignalBoard(collector.take_signals)
        self._settings = settings or FeedSettings()
        self._states = NumberedStates(snapshot_bytes)
        self._snapshots = SharedSnapshots(self._new_state)
        self._guard = threading.Lock()
        self._server = RpcServer(
            self._settings.address,
            [Service(feed_pb2.DESCRIPTOR.services_by_name["Feed"], self._methods(), _NEEDS)],
            purpose="cannot serve the feed",
            error=CollectorError,
            limits=self._settings.limits,
            tls=self._settings.tls,
        )
        self.address = self._server.address

    def _methods(self) -> dict[str, Callable[..., Any]]:
        return {
            "WatchSnapshots": self._watch_snapshots,
            "GetSnapshot": self._get_snapshot,
            "GetLinkWindows": self._get_link_windows,
            "WatchRecords": self._watch_records,
            "WatchDrops": self._watch_drops,
            "WatchSignals": self._watch_signals,
            "WatchEvents": self._watch_events,
            "Acknowledge": self._acknowledge,
            "GetRules": self._get_rules,
            "SetRules": self._set_rules,
            "NameJobs": self._name_jobs,
            "NoteLinks": self._note_links,
            "NoteMoves": self._note_moves,
            "GetStatus": self._get_status,
        }

    async def start(self) -> None:
        """Start serving."""
        await self._server.start()

    async def stop(self) -> None:
        """End every stream and stop serving."""
        await self._server.stop()

    async def _watch_snapshots(self, request: feed_pb2.WatchSnapshotsRequest) -> AsyncIterator[bytes]:
        interval_ns = _interval("interval", request.interval_ns)
        loop, interval_s = asyncio.get_running_loop(), max(interval_ns, self._settings.shortest_interval_ns) / NS_PER_S
        due_s, epoch, sent = loop.time(), 0, 0
        while True:
            state = await self._snapshots.since(due_s)
            yield await self._sent(state, epoch, sent)
            if request.changes:
                epoch, sent = state.epoch, state.number
            due_s = next_due(loop.time(), interval_s)
            await asyncio.sleep(due_s - loop.time())

    async def _get_snapshot(self, request: feed_pb2.GetSnapshotRequest) -> bytes:
        state = await self._snapshots.since(asyncio.get_running_loop().time())
        return await self._sent(state, request.epoch, request.since)

    async def _get_link_windows(self, _: feed_pb2.GetLinkWindowsRequest) -> bytes:
        def made() -> bytes:
            return windows_message(self._collector.link_places, self._collector.link_windows()).SerializeToString()

        return await asyncio.to_thread(made)

    async def _sent(self, state: NumberedState, epoch: int, since: int) -> bytes:
        """Return a state's message, which is made beside the event loop, and count its bytes."""
        message = await asyncio.to_thread(state.message, epoch, since)
        self._collector.counters[Count.FEED_BYTES] += len(message)
        return message

    def _new_state(self) -> NumberedState:
        self._collector.begin_round()
        return self._states.take(self._collector.snapshot())

    async def _watch_records(self, request: feed_pb2.WatchRecordsRequest) -> AsyncIterator[Message]:
        wanted = request.reports_per_s if request.HasField("reports_per_s") else None
        waiting = RecordQueue(self._settings.queue_records, self._count_dropped)
        unsubscribe = self._collector.subscribe_columns(waiting.offer, wanted)
        try:
            # The first message, without content, confirms the subscription.
            yield record_columns_message(RecordColumns.of(()))
            while True:
                await asyncio.sleep(self._settings.record_interval_ns / NS_PER_S)
                self._collector.hand_over_records()
                for columns in waiting.take():
                    yield record_columns_message(columns)
        finally:
            unsubscribe()

    async def _watch_drops(self, _: feed_pb2.WatchDropsRequest) -> AsyncIterator[Message]:
        """Yield drops, several batches of them together where the subscriber is behind."""
        queue: Handover[tuple[DropRecord, ...]] = Handover(self._settings.queue_batches)
        unsubscribe = self._collector.subscribe_drops(lambda batch: self._hand_over(queue, batch))
        try:
            # The first message, without content, confirms the subscription.
            yield drops_message(())
            while True:
                batches = await queue.take(self._settings.batch_drops)
                yield drops_message([drop for batch in batches for drop in batch])
        finally:
            unsubscribe()

    async def _watch_signals(self, request: feed_pb2.WatchSignalsRequest) -> AsyncIterator[Message]:
        gap_ns, queue_frames = _interval("shortest gap", request.shortest_gap_ns), request.queue_frames
        if not 0 <= queue_frames < math.inf:
            raise MessageError(f"a queue of {queue_frames} frames is not possible")
        interval_ns = self._settings.signal_interval_ns
        watch = self._signals.watch()
        try:
            # The first message, without content, confirms the subscription.
            yield signals_message(NetworkSignals())
            while True:
                await asyncio.sleep(interval_ns / NS_PER_S)
                signals = watch.take()
                if tells(signals, queue_frames):
                    yield signals_message(signals)
                    await self._pass_gap(watch, signals.queue_frames or 0, (gap_ns - interval_ns) / NS_PER_S)
        finally:
            watch.close()

    async def _pass_gap(self, watch: SignalWatch, told_frames: int, gap_s: float) -> None:
        """Wait before the next message, but not once there is a queue much longer than the one that was told of."""
        loop, interval_s = asyncio.get_running_loop(), self._settings.signal_interval_ns / NS_PER_S
        until_s = loop.time() + gap_s
        while loop.time() < until_s and not watch.has_queue(max(_NEWS * told_frames, 1)):
            await asyncio.sleep(min(interval_s, max(until_s - loop.time(), 0)))

    async def _watch_events(self, request: feed_pb2.WatchEventsRequest) -> AsyncIterator[events_pb2.Events]:
        queue: asyncio.Queue[tuple[Event, ...]] = asyncio.Queue(self._settings.queue_batches)
        ends = (
            self._events.subscribe(lambda events: self._offer(queue, events)),
            self._events.subscribe_notes(lambda event: self._offer(queue, (event,))),
        )
        try:
            # The first message, perhaps without events, confirms the subscription.
            yield events_message(self._events.since(request.since_ns) if request.HasField("since_ns") else ())
            while True:
                yield events_message(await queue.get())
        finally:
            for unsubscribe in ends:
                unsubscribe()

    async def _acknowledge(self, request: events_pb2.Acknowledgement) -> events_pb2.Event:
        by, text = _on_behalf_of(request.by), request.text
        if len(text) > _NOTE_LENGTH or len(by) > _NOTE_LENGTH:
            raise CallError(grpc.StatusCode.INVALID_ARGUMENT, f"a note has at most {_NOTE_LENGTH} characters")
        note = None if request.withdrawn else EventNote(by, text, time.time_ns())
        try:
            event = self._events.acknowledge(request.rule, request.subject, note)
        except CollectorError as error:
            raise CallError(grpc.StatusCode.NOT_FOUND, str(error)) from error
        LOGGER.info("%s %s %s of %s", by, "withdrew a note on" if note is None else "acknowledged", *_name(event))
        return event_message(event)

    async def _get_rules(self, _: feed_pb2.GetRulesRequest) -> events_pb2.RuleSet:
        return state_message(self._events.state)

    async def _set_rules(self, request: events_pb2.RuleSet) -> events_pb2.RuleSet:
        rules, by = rules_of(request), _on_behalf_of(request.by)
        if request.HasField("version") and request.version != self._events.state.version:
            raise CallError(
                grpc.StatusCode.FAILED_PRECONDITION, "somebody else has changed the rules meanwhile: read them again"
            )
        try:
            self._events.replace(rules, by)
        except CollectorError as error:
            raise CallError(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from error
        LOGGER.info("%s replaced the rules: %d in force", by, len(rules))
        return state_message(self._events.state)

    async def _name_jobs(self, request: feed_pb2.JobNotes) -> feed_pb2.NameJobsResponse:
        self._collector.note_jobs(notes_of(request))
        return feed_pb2.NameJobsResponse()

    async def _note_links(self, request: links_pb2.LinkStatuses) -> feed_pb2.NoteLinksResponse:
        self._collector.note_links(statuses_of(request))
        return feed_pb2.NoteLinksResponse()

    async def _note_moves(self, request: feed_pb2.FlowMoves) -> feed_pb2.NoteMovesResponse:
        self._take_moves(moves_of(request))
        return feed_pb2.NoteMovesResponse()

    async def _get_status(self, _: feed_pb2.GetStatusRequest) -> feed_pb2.CollectorStatus:
        return status_message(self._collector.status())

    def _hand_over(self, queue: Handover[tuple[DropRecord, ...]], batch: tuple[DropRecord, ...]) -> None:
        if not queue.offer(batch):
            self._count_dropped()

    def _count_dropped(self) -> None:
        with self._guard:  # the receiving thread and the loop's both count these
            self._collector.counters[Count.FEED_BATCHES_DROPPED] += 1

    def _offer(self, queue: asyncio.Queue[tuple[Event, ...]], batch: tuple[Event, ...]) -> None:
        if queue.full():
            self._count_dropped()
        else:
            queue.put_nowait(batch)


def _on_behalf_of(by: str) -> str:
    """Return the name of a caller, or of the one on whose behalf a service calls."""
    caller = CALLER.get()
    return by if by and caller.role in {Role.ADMIN, Role.SERVICE} else caller.name


def _name(event: Event) -> tuple[str, str]:
    return str(event.subject), event.rule


def _interval(name: str, interval_ns: int) -> int:
    if not 0 < interval_ns <= MAX_INTERVAL_NS:
        raise MessageError(f"{name} of {interval_ns} ns is not between 1 ns and one hour")
    return interval_ns


def snapshot_bytes(snapshot: Snapshot) -> bytes:
    """Return the bytes of a snapshot's message."""
    return snapshot_message(snapshot).SerializeToString()
