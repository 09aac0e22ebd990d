"""The feed's client: snapshots and records in another process, across restarts of the collector."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, TypeVar

from google.protobuf.message import Message

from collectors.errors import FeedError
from collectors.events.changes import RuleState
from collectors.events.rules import Rule
from collectors.feed import events_pb2, feed_pb2, records_pb2
from collectors.feed.events import event_of, events_of, rules_message, state_of
from collectors.feed.records import drops_of, record_columns_of
from collectors.feed.signals import signals_of
from collectors.feed.statuses import moves_message, statuses_message
from collectors.feed.windows import windows_pb2
from collectors.record_columns import RecordColumns
from collectors.settings import FeedClientSettings
from collectors.values import (
    CollectorStatus,
    DropRecord,
    Event,
    FlowMove,
    HopRecord,
    JobNote,
    LinkStatus,
    NetworkSignals,
    Snapshot,
)
from dataplane.rpc.client import Peer, ServiceClient
from dataplane.topology.values import LinkKey

if TYPE_CHECKING:
    from collectors.feed.states.changes import StateReader
    from collectors.feed.windows.windows import NamedWindows

__all__ = ["FeedClient", "FeedClientSettings"]

T = TypeVar("T")
M = TypeVar("M", bound=Message)
_PEER: Final = Peer(feed_pb2.DESCRIPTOR.services_by_name["Feed"].full_name, "collector", FeedError)


class FeedClient(ServiceClient):
    """Reader of a collector's feed, which reconnects; use it as an async context manager.

    gRPC's flow control bounds the data in flight: if the reader is slow, the server drops and counts batches, and
    memory here does not grow.
    """

    def __init__(
        self,
        settings: FeedClientSettings | None = None,
        *,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_wait: Callable[[str], None] | None = None,
        on_answer: Callable[[str], None] | None = None,
    ) -> None:
        client_settings = settings or FeedClientSettings()
        super().__init__(_PEER, client_settings, rng=rng, sleep=sleep, on_wait=on_wait, on_answer=on_answer)
        self._states: StateReader | None = None

    @property
    def epoch(self) -> int:
        """A number of the collector's process, since the first snapshot; another one has restarted."""
        return 0 if self._states is None else self._states.request.epoch

    def snapshots(self, interval_ns: int) -> AsyncGenerator[Snapshot, None]:
        """Yield a snapshot every interval, endlessly; raise FeedError when the two sides speak different versions.

        Only changes travel after the first one.
        """
        from collectors.feed.states.changes import StateReader  # noqa: PLC0415 - loads numpy

        self._states = reader = StateReader()
        request = feed_pb2.WatchSnapshotsRequest(interval_ns=interval_ns, changes=True)
        return self._watch("WatchSnapshots", request, feed_pb2.Snapshot, reader.read)

    async def snapshot(self) -> Snapshot:
        """Return the state now; raise FeedError when the collector cannot be reached.

        While `snapshots` are read, only what has changed since the last of them travels.
        """
        from collectors.feed.states.changes import StateReader  # noqa: PLC0415 - loads numpy

        reader = self._states or StateReader()
        answer = await self._ask("GetSnapshot", reader.request, feed_pb2.Snapshot)
        with self._decoding():
            return reader.read(answer)

    async def link_windows(self) -> NamedWindows:
        """Return the sums behind the figures of links, which `merged` adds up with those of other collectors."""
        from collectors.feed.windows.windows import windows_of  # noqa: PLC0415 - loads numpy

        answer = await self._ask("GetLinkWindows", feed_pb2.GetLinkWindowsRequest(), windows_pb2.LinkWindows)
        with self._decoding():
            return windows_of(answer)

    async def records(self, reports_per_s: int | None = None) -> AsyncGenerator[tuple[HopRecord, ...], None]:
        """Yield batches of hop records, endlessly; raise FeedError when the two sides speak different versions.

        They cover about `reports_per_s` reports, by default as many as the collector's settings allow. An empty
        batch marks the start of a subscription: records before it may be missing.
        """
        async with aclosing(self.record_columns(reports_per_s)) as batches:
            async for columns in batches:
                yield columns.records()

    def record_columns(self, reports_per_s: int | None = None) -> AsyncGenerator[RecordColumns, None]:
        """Yield the batches of `records` as columns, which takes far less time."""
        request = feed_pb2.WatchRecordsRequest(reports_per_s=reports_per_s)
        return self._watch("WatchRecords", request, records_pb2.HopRecords, record_columns_of)

    def drops(self) -> AsyncGenerator[tuple[DropRecord, ...], None]:
        """Yield batches of drops that switches report, endlessly; an empty one marks the start of a subscription."""
        return self._watch("WatchDrops", feed_pb2.WatchDropsRequest(), records_pb2.DropRecords, drops_of)

    def signals(self, queue_frames: float, shortest_gap_ns: int) -> AsyncGenerator[NetworkSignals, None]:
        """Yield signs that the network has changed, endlessly; one without any marks the start of a subscription.

        A queue of `queue_frames` between two switches is a sign; messages are at least `shortest_gap_ns` apart, but
        a queue twice as long as the last one is told of at once.
        """
        request = feed_pb2.WatchSignalsRequest(queue_frames=queue_frames, shortest_gap_ns=shortest_gap_ns)
        return self._watch("WatchSignals", request, feed_pb2.Signals, signals_of)

    def events(self, since_ns: int | None = None) -> AsyncGenerator[tuple[Event, ...], None]:
        """Yield events as rules raise and clear them, endlessly; first those kept since a time, if one is given.

        An empty batch marks the start of a subscription. After a break the same kept events may be repeated. The first
        batch begins with events that have been open for longer, if a time is given.
        """
        request = feed_pb2.WatchEventsRequest(since_ns=since_ns)
        return self._watch("WatchEvents", request, events_pb2.Events, events_of)

    async def _watch(
        self, method: str, request: Message, schema: type[M], value_of: Callable[[M], T]
    ) -> AsyncGenerator[T, None]:
        async with aclosing(self._follow(method, request, schema)) as answers:
            async for answer in answers:
                with self._decoding():
                    value = value_of(answer)
                yield value

    async def acknowledge(self, rule: str, subject: str, text: str, *, by: str = "", withdraw: bool = False) -> Event:
        """Acknowledge an open event, or withdraw that; raise FeedError where there is none.

        `by` is on whose behalf; only a service may name somebody else than itself.
        """
        request = events_pb2.Acknowledgement(rule=rule, subject=subject, text=text, withdrawn=withdraw)
        if by:
            request.by = by
        with self._decoding():
            return event_of(await self._ask("Acknowledge", request, events_pb2.Event))

    async def rules(self) -> tuple[Rule, ...]:
        """Return the current rules; raise FeedError when the collector cannot be reached."""
        return (await self.rule_state()).rules

    async def rule_state(self) -> RuleState:
        """Return the current rules, and how they differ from the settings; raise FeedError."""
        answer = await self._ask("GetRules", feed_pb2.GetRulesRequest(), events_pb2.RuleSet)
        with self._decoding():
            return state_of(answer)

    async def set_rules(self, rules: Sequence[Rule], *, by: str = "", version: str | None = None) -> RuleState:
        """Replace all rules with these; raise FeedError when the collector rejects them.

        With `version`, it also rejects them if the rules in force are of another one. `by` as in `acknowledge`.
        """
        request = rules_message(rules)
        if by:
            request.by = by
        if version is not None:
            request.version = version
        with self._decoding():
            return state_of(await self._ask("SetRules", request, events_pb2.RuleSet))

    async def name_jobs(self, notes: Mapping[int, JobNote]) -> None:
        """Report all jobs that run, by their numbers; raise FeedError when the collector cannot be reached."""
        from collectors.feed.snapshots import notes_message  # noqa: PLC0415 - loads numpy

        await self._ask("NameJobs", notes_message(notes), feed_pb2.NameJobsResponse)

    async def note_links(self, statuses: Mapping[LinkKey, LinkStatus]) -> None:
        """Report the condition of all watched links; raise FeedError when the collector cannot be reached."""
        await self._ask("NoteLinks", statuses_message(statuses), feed_pb2.NoteLinksResponse)

    async def note_moves(self, moves: Sequence[FlowMove]) -> None:
        """Report decisions about flows' paths, at most 1,000, for the history; raise FeedError if that fails."""
        await self._ask("NoteMoves", moves_message(moves), feed_pb2.NoteMovesResponse)

    async def status(self) -> CollectorStatus:
        """Return the collector's counters; raise FeedError when it cannot be reached."""
        from collectors.feed.snapshots import status_of  # noqa: PLC0415 - loads numpy

        return status_of(await self._ask("GetStatus", feed_pb2.GetStatusRequest(), feed_pb2.CollectorStatus))
