"""Recorder of a running collector's history: a row of everything at every interval, written outside the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from collectors.counters import Count, Counters
from collectors.errors import HistoryError
from collectors.history.downsample import Halt
from collectors.history.files import TOPOLOGY_FILE, UNFINISHED
from collectors.history.retention import HistoryKeeper
from collectors.history.rows import DropTally, Observation, RowMaker
from collectors.history.settings import HistorySettings
from collectors.history.writer import HistoryWriter
from collectors.statistics.sketch import Sketch
from collectors.values import CollectorStatus, DropRecord, Event, FlowMove, Snapshot
from dataplane.clock import NS_PER_S
from dataplane.topology.file import dumps
from dataplane.topology.values import LinkKey, Topology

_ASK_AGAIN_S: Final = 0.05
_MOST_MOVES: Final = 100_000
"""Decisions that wait for the next rows, while the disk is slow; older ones are left out."""


def _note_topology(folder: Path, topology: Topology) -> None:
    """Write what the rows are of beside them, for whoever reads the history elsewhere; raise HistoryError."""
    file = folder / TOPOLOGY_FILE
    draft = file.with_name(TOPOLOGY_FILE + UNFINISHED)
    try:
        draft.write_text(dumps(topology), "utf-8")
        draft.replace(file)
    except OSError as error:
        raise HistoryError(f"{file}: cannot be written: {error.strerror}") from error


class Observed(Protocol):
    """Parts of a collector that the history reads."""

    @property
    def counters(self) -> Counters:
        """The counters, live."""
        ...

    def snapshot(self) -> Snapshot:
        """Return the network's state now."""
        ...

    def delays(self) -> Mapping[LinkKey, Sketch]:
        """Return sketches of the delays behind a snapshot's links."""
        ...

    def status(self) -> CollectorStatus:
        """Return every counter that has counted."""
        ...


@dataclass(frozen=True, slots=True)
class _Taken:
    """Events, notes and moves gathered by the event loop since the last rows."""

    events: tuple[Event, ...]
    notes: tuple[tuple[int, Event], ...]
    moves: tuple[FlowMove, ...]


class HistoryRecorder:
    """Writes a collector's history; `run` until cancelled. Raises HistoryError if the folder cannot be used.

    `wall_ns` is UNIX time. An interval that cannot be written is counted, and `on_problem` called; the next is tried.
    """

    def __init__(
        self,
        collector: Observed,
        topology: Topology,
        settings: HistorySettings,
        wall_ns: Callable[[], int],
        on_problem: Callable[[str], None],
    ) -> None:
        self._collector, self._settings, self._wall_ns = collector, settings, wall_ns
        self._on_problem = on_problem
        self._writer = HistoryWriter(settings)
        _note_topology(Path(settings.folder), topology)
        self._rows = RowMaker(topology, settings)
        self._halt = Halt()
        self._problem = ""
        self._tidy_problems: list[str] = []
        self._events: list[Event] = []
        self._notes: list[tuple[int, Event]] = []
        self._moves: deque[FlowMove] = deque(maxlen=_MOST_MOVES)
        self._drops = DropTally(settings.max_drops)

    def __str__(self) -> str:
        return f"history in {self._settings.folder}"

    def add_events(self, events: Iterable[Event]) -> None:
        """Take events, for the next rows; in the event loop."""
        self._events += events

    def add_note(self, event: Event) -> None:
        """Take an event whose note was given or withdrawn now, for the next rows; in the event loop."""
        self._notes.append((self._wall_ns(), event))

    def add_moves(self, moves: Iterable[FlowMove]) -> None:
        """Take decisions about flows' paths, for the next rows; in the event loop."""
        self._moves.extend(moves)

    def add_drops(self, drops: Iterable[DropRecord]) -> None:
        """Take drops, for the next rows; from any thread."""
        self._drops.add(drops)

    def record(self) -> None:
        """Write rows of everything now, and wait for the disk; for callers that do not `run`. Raises HistoryError."""
        if self._record(self._take()):
            self._writer.complete(self._on_problem)

    async def run(self) -> None:
        """Write rows of everything now and at every interval; when cancelled, for the last time."""
        loop = asyncio.get_running_loop()
        interval_s = self._settings.interval_ns / NS_PER_S
        due_s = loop.time()
        writing: asyncio.Future[bool] | None = None
        tidying = asyncio.ensure_future(self._tidy())
        try:
            while True:
                writing = asyncio.ensure_future(asyncio.to_thread(self._record, self._take()))
                if await self._has_finished(asyncio.shield(writing)) and tidying.done():
                    tidying = asyncio.ensure_future(self._tidy())
                # Intervals that passed while the disk was slow are left out, not made up for.
                due_s = max(due_s + interval_s, loop.time())
                await asyncio.sleep(due_s - loop.time())
        finally:
            # A thread cannot be cancelled: what it does must be done before the last rows. Merging can wait.
            if writing is not None and not writing.done():
                await self._has_finished(writing)
            while not tidying.done():
                # Between two statements of a merge an interruption is lost.
                self._halt.ask()
                await asyncio.wait((tidying,), timeout=_ASK_AGAIN_S)
            await self._has_finished(asyncio.to_thread(self._record_last, self._take()))

    def close(self) -> None:
        """Complete the files; for a recorder that never ran."""
        self._writer.close(self._on_problem)

    def _take(self) -> _Taken:
        taken = _Taken(tuple(self._events), tuple(self._notes), tuple(self._moves))
        self._events, self._notes = [], []
        self._moves.clear()
        return taken

    def _record(self, taken: _Taken) -> bool:
        """Write rows of everything now; return whether journals wait to be completed."""
        wall_ns, snapshot = self._wall_ns(), self._collector.snapshot()
        delays = self._collector.delays() if self._settings.sketches else {}
        counters = self._collector.status().counters
        drops = self._drops.take()
        seen = Observation(wall_ns, snapshot, counters, taken.events, drops, delays, taken.notes, taken.moves)
        return self._writer.write(self._rows.batches(seen), seen.wall_ns)

    def _record_last(self, taken: _Taken) -> bool:
        try:
            return self._record(taken)
        finally:
            self._writer.close(self._on_problem)

    async def _has_finished(self, writing: Awaitable[bool]) -> bool:
        """Return whether journals wait to be completed; failures are counted, and reported if the problem is new."""
        try:
            finished = await writing
        except HistoryError as error:
            self._collector.counters[Count.HISTORY_FAILED] += 1
            if str(error) != self._problem:
                self._on_problem(str(error))
            self._problem = str(error)
            return False
        self._problem = ""
        return finished

    async def _tidy(self) -> None:
        await asyncio.to_thread(self._complete_and_tidy, self._wall_ns() // NS_PER_S)

    def _complete_and_tidy(self, now_s: int) -> None:
        """Report a failure, unless the last attempt failed, too."""
        problems: list[str] = []
        self._writer.complete(problems.append)
        HistoryKeeper(self._settings, problems.append, self._halt).tidy(now_s)
        for problem in problems:
            if problem not in self._tidy_problems:
                self._on_problem(problem)
        self._tidy_problems = problems
