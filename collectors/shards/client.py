"""Reader of several collectors' feeds, which gives what a single collector's `FeedClient` does: their states merged.

Which collectors there are is read from their leases, or stated. One that cannot be reached stops nothing: its last
state stays in the sums, growing older, and is forgotten after a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from collectors.errors import FeedError
from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.states.feed_time import FeedTime
from collectors.record_columns import RecordColumns
from collectors.settings import StateSettings
from collectors.shards.following import live_collectors
from collectors.shards.settings import CollectorLeases
from collectors.values import FlowMove, JobNote, LinkStatus, NetworkSignals, Snapshot
from dataplane.rpc.access.settings import TlsSettings
from dataplane.topology.values import LinkKey, Topology

if TYPE_CHECKING:
    from collectors.shards.merging import ShardView

T = TypeVar("T")

_ANSWER_S: Final = 0.5
"""Time after which a collector that does not answer is left out of a state that was asked for out of turn."""
_FORGET_NS: Final = 15_000_000_000
"""Longer than any of its links and flows counts."""
_WAITING: Final = 64
_AGAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Observed:
    """A state of a collector's process, and how far this machine's clock is ahead of the collector's."""

    key: tuple[str, int]
    snapshot: Snapshot
    ahead_ns: int


class ShardedFeed:
    """Feeds of one fabric's collectors; use it as an async context manager.

    Times in snapshots and records are of this machine's monotonic clock.
    """

    def __init__(
        self,
        topology: Topology,
        collectors: CollectorLeases | Sequence[str],
        *,
        tls: TlsSettings | None = None,
        state: StateSettings | None = None,
        on_wait: Callable[[str], None] | None = None,
        on_answer: Callable[[str], None] | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Find collectors by their leases, or at these addresses; their `state` has the same settings."""
        self._collectors, self._tls = collectors, tls
        self._on_wait, self._on_answer, self._now_ns = on_wait, on_answer, now_ns
        from collectors.shards.merging import SnapshotMerger  # noqa: PLC0415 - loads numpy

        self._merger = SnapshotMerger(topology, state)
        self._views: dict[tuple[str, int], ShardView] = {}
        self._clocks: dict[str, FeedTime] = {}
        self._taken_ns: dict[tuple[str, int], int] = {}
        self._misfits: dict[tuple[str, int], str] = {}
        self._feeds: dict[str, FeedClient] = {}
        self._changed = asyncio.Event()
        self._stack = AsyncExitStack()
        self._failure: Exception | None = None

    async def __aenter__(self) -> Self:
        if isinstance(self._collectors, CollectorLeases):
            task = asyncio.create_task(self._follow(self._collectors), name="follow the leases of collectors")
            self._stack.push_async_callback(_ended, task)
        else:
            await self._use(self._collectors)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        for feed in self._feeds.values():
            await feed.__aexit__(None, None, None)
        self._feeds.clear()

    @property
    def address(self) -> str:
        """The addresses of the collectors' feeds."""
        return ", ".join(self._feeds) or "none yet"

    @property
    def feeds(self) -> Mapping[str, FeedClient]:
        """The collectors in use now, by address."""
        return self._feeds

    async def snapshots(self, interval_ns: int) -> AsyncGenerator[Snapshot, None]:
        """Yield the merged state at every interval, as long as any collector answers, endlessly; raise FeedError."""
        streams = self._each(lambda feed: self._read(feed, interval_ns))
        due_s = asyncio.get_running_loop().time()
        async with aclosing(streams) as news:
            async for _ in news:
                now_s = asyncio.get_running_loop().time()
                # One merged state an interval, however many collectors there are.
                if now_s < due_s:
                    continue
                due_s = max(due_s + interval_ns / 1e9, now_s)
                yield self._merged()

    async def snapshot(self) -> Snapshot:
        """Return the merged state now; raise FeedError when no collector can be reached."""
        answers = await self._ask_all(self._look)
        if not any(answers):
            raise FeedError(f"no collector answers: {self.address}")
        return self._merged()

    async def signals(self, queue_frames: float, shortest_gap_ns: int) -> AsyncGenerator[NetworkSignals, None]:
        """Yield the signs of all collectors that the network has changed, as they come."""
        async with aclosing(self._each(lambda feed: feed.signals(queue_frames, shortest_gap_ns))) as news:
            async for signals in news:
                yield signals

    async def record_columns(self, reports_per_s: int | None = None) -> AsyncGenerator[RecordColumns, None]:
        """Yield the batches of all collectors; of each an equal part of `reports_per_s`."""
        share = None if reports_per_s is None else max(reports_per_s // max(len(self._feeds), 1), 1)
        async with aclosing(self._each(lambda feed: feed.record_columns(share))) as news:
            async for columns in news:
                yield columns

    async def note_links(self, statuses: Mapping[LinkKey, LinkStatus]) -> None:
        """Report the condition of all watched links to every collector; raise FeedError if one does not answer."""
        await self._tell(lambda feed: feed.note_links(statuses))

    async def name_jobs(self, notes: Mapping[int, JobNote]) -> None:
        """Report all jobs that run to every collector; raise FeedError if one does not answer."""
        await self._tell(lambda feed: feed.name_jobs(notes))

    async def note_moves(self, moves: Sequence[FlowMove]) -> None:
        """Report decisions about flows' paths, at most 1,000, to the first collector that takes them; FeedError."""
        problem = "none is known"
        for feed in list(self._feeds.values()):
            try:
                await asyncio.wait_for(feed.note_moves(moves), _ANSWER_S)
            except (FeedError, TimeoutError) as error:
                problem = str(error) or f"{feed.address} does not answer"
            else:
                return
        raise FeedError(f"no collector takes decisions: {problem}")

    def _merged(self) -> Snapshot:
        now_ns = self._now_ns()
        for key in [key for key, view in self._views.items() if now_ns - view.taken_ns > _FORGET_NS]:
            del self._views[key]
            self._taken_ns.pop(key, None)
            self._misfits.pop(key, None)
        if not self._views:
            raise FeedError("no collector has sent a state lately")
        views = sorted(self._views.items(), key=lambda item: item[1].taken_ns)
        newest = views[-1][1]
        fitting = [view for key, view in views if self._fits(key, view, newest)]
        if not fitting:
            raise FeedError(f"no collector's state fits: {'; '.join(self._misfits.values())}")
        return self._merger.merged(fitting, newest.taken_ns)

    def _fits(self, key: tuple[str, int], view: ShardView, newest: ShardView) -> bool:
        """Return whether a view can be merged; one that cannot is left out, and told of once."""
        problem = self._merger.misfit(view, newest)
        if problem is None:
            return True
        if key not in self._misfits:
            self._misfits[key] = f"collector at {key[0]}: {problem}"
            if self._on_wait is not None:
                self._on_wait(f"{self._misfits[key]}: it is left out")
        return False

    async def _read(self, feed: FeedClient, interval_ns: int) -> AsyncGenerator[None, None]:
        """Keep a collector's newest state, and yield whenever there is one."""
        newest: asyncio.Queue[_Observed] = asyncio.Queue(1)
        draining = asyncio.create_task(self._drain(feed, interval_ns, newest))
        try:
            while True:
                arriving = asyncio.create_task(newest.get())
                await asyncio.wait((draining, arriving), return_when=asyncio.FIRST_COMPLETED)
                if not arriving.done():
                    await _ended(arriving)
                    draining.result()
                    return
                try:
                    await self._complete(feed, arriving.result())
                except FeedError:
                    continue  # it ended in between: the stream waits for it, and says so
                yield
        finally:
            await _ended(draining)

    async def _drain(self, feed: FeedClient, interval_ns: int, newest: asyncio.Queue[_Observed]) -> None:
        """Read a collector's stream, so that no states wait in it, which would be old when their turn comes."""
        async with aclosing(feed.snapshots(interval_ns)) as snapshots:
            async for snapshot in snapshots:
                observed = self._observe(feed, snapshot)
                if observed is None:
                    continue
                if newest.full():
                    newest.get_nowait()
                newest.put_nowait(observed)

    async def _look(self, feed: FeedClient) -> bool:
        observed = self._observe(feed, await feed.snapshot())
        if observed is not None:
            await self._complete(feed, observed)
        return True

    def _observe(self, feed: FeedClient, snapshot: Snapshot) -> _Observed | None:
        """Return a state that has arrived now with its collector's clock, None for one that a newer has overtaken."""
        key, now_ns = (feed.address, feed.epoch), self._now_ns()
        if snapshot.taken_ns < self._taken_ns.get(key, 0):
            return None
        self._taken_ns[key] = snapshot.taken_ns
        clock = self._clocks.setdefault(feed.address, FeedTime())
        clock.observe(snapshot.taken_ns, now_ns)
        return _Observed(key, snapshot, min(clock.offset_ns, now_ns - snapshot.taken_ns))

    async def _complete(self, feed: FeedClient, observed: _Observed) -> None:
        """Keep a state with the sums behind its links, unless a newer one has been kept meanwhile."""
        from collectors.shards.merging import ShardView  # noqa: PLC0415 - loads numpy

        windows, before = await feed.link_windows(), self._views.get(observed.key)
        if before is None or before.snapshot.taken_ns <= observed.snapshot.taken_ns:
            # A collector that has restarted begins another view: what its predecessor knew stays until it is old.
            self._views[observed.key] = ShardView(observed.snapshot, windows, observed.ahead_ns)

    async def _follow(self, leases: CollectorLeases) -> None:
        try:
            async with aclosing(live_collectors(leases, self._on_wait or _ignore)) as changes:
                async for live in changes:
                    await self._use(collector.feed for collector in live)
        except Exception as error:  # noqa: BLE001 - raised where the feeds are read
            self._failure = error
            self._changed.set()

    async def _use(self, addresses: Iterable[str]) -> None:
        """Read these collectors from now on, and no others."""
        wanted = list(dict.fromkeys(addresses))
        for address in [address for address in self._feeds if address not in wanted]:
            await self._feeds.pop(address).__aexit__(None, None, None)
        for address in wanted:
            if address not in self._feeds:
                settings = FeedClientSettings(address=address, tls=self._tls)
                client = FeedClient(settings, on_wait=self._on_wait, on_answer=self._on_answer)
                self._feeds[address] = await client.__aenter__()
        self._changed.set()
        self._changed = asyncio.Event()

    async def _each(self, watch: Callable[[FeedClient], AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
        """Yield what all collectors' streams yield, of those that come and go, until cancelled."""
        queue: asyncio.Queue[T | Exception] = asyncio.Queue(_WAITING)
        pumping = asyncio.create_task(self._pump_all(watch, queue))
        try:
            while True:
                news = await queue.get()
                if isinstance(news, Exception):
                    raise news
                yield news
        finally:
            await _ended(pumping)

    async def _pump_all(
        self, watch: Callable[[FeedClient], AsyncGenerator[T, None]], queue: asyncio.Queue[T | Exception]
    ) -> None:
        """Put what the streams of all present collectors yield into a queue; begin those again that end in an error."""

        async def pump(feed: FeedClient) -> None:
            # The stream of a collector that is no longer used ends with its connection.
            while feed in self._feeds.values():
                try:
                    async with aclosing(watch(feed)) as stream:
                        async for news in stream:
                            await queue.put(news)
                except FeedError as error:
                    # As of another version: the others go on without it.
                    if feed in self._feeds.values() and self._on_wait is not None:
                        self._on_wait(f"{error}: it is left out")
                await asyncio.sleep(_AGAIN_S)

        tasks: dict[FeedClient, asyncio.Task[None]] = {}
        try:
            while self._failure is None:
                changed, present = self._changed, set(self._feeds.values())
                for feed in present - tasks.keys():
                    tasks[feed] = asyncio.create_task(pump(feed))
                for feed in tasks.keys() - present:
                    await _ended(tasks.pop(feed))
                await changed.wait()
            await queue.put(self._failure)
        finally:
            for task in tasks.values():
                await _ended(task)

    async def _ask_all(self, ask: Callable[[FeedClient], Awaitable[bool]]) -> list[bool]:
        """Return which collectors answered in time."""

        async def once(feed: FeedClient) -> bool:
            try:
                return await asyncio.wait_for(ask(feed), _ANSWER_S)
            except (FeedError, TimeoutError):
                return False

        return await asyncio.gather(*(once(feed) for feed in list(self._feeds.values())))

    async def _tell(self, tell: Callable[[FeedClient], Awaitable[None]]) -> None:
        answers = await asyncio.gather(*(tell(feed) for feed in list(self._feeds.values())), return_exceptions=True)
        failed = next((answer for answer in answers if isinstance(answer, BaseException)), None)
        if failed is not None:
            raise failed


def feed_at(
    addresses: str,
    topology: Topology,
    *,
    tls: TlsSettings | None = None,
    on_wait: Callable[[str], None] | None = None,
    on_answer: Callable[[str], None] | None = None,
) -> FeedClient | ShardedFeed:
    """Return the reader of a feed, or of several whose addresses are separated by commas."""
    several = [address.strip() for address in addresses.split(",")]
    if len(several) > 1:
        return ShardedFeed(topology, several, tls=tls, on_wait=on_wait, on_answer=on_answer)
    return FeedClient(FeedClientSettings(address=addresses, tls=tls), on_wait=on_wait, on_answer=on_answer)


async def _ended(task: asyncio.Task[T]) -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    await asyncio.wait((task,))


def _ignore(_: str) -> None:
    """Say nothing."""
