"""The sequence accounting of `collectors.reference.sequence` in native memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from collectors.counters import Count, Counters
from collectors.decode.sequence import Arrival
from collectors.native.kernel_calls import kernel_calls
from collectors.native.memory import CellMemory
from collectors.native.structures import TrackerCell
from collectors.native.tables import SequenceTable
from collectors.settings import SequenceSettings
from collectors.values import ReporterState
from dataplane.native import u32, u64
from dataplane.wire.report_group import SEQUENCE_BITS, ReportGroup

_ARRIVALS = tuple(Arrival)


class NativeAccounting:
    """The accounts of every reporter, bounded: the one unheard for longest is evicted first."""

    def __init__(self, settings: SequenceSettings, counters: Counters) -> None:
        self._counters = counters
        self._calls = kernel_calls()
        most = settings.max_reporters
        ring = max(64, 1 << (settings.window_reports - 1).bit_length())
        places = 1 << (2 * most - 1).bit_length()
        self._trackers = CellMemory(TrackerCell, most)
        bits, marks = most * ring // 64, most * ring
        self._kept = [CellMemory(u64, bits), CellMemory(u64, bits), CellMemory(u32, marks), CellMemory(u64, places)]
        seen, before_seen, mark_ring, index = (memory.pointer for memory in self._kept)
        self._table = SequenceTable(
            trackers=self._trackers.pointer,
            seen=seen,
            before_seen=before_seen,
            marks=mark_ring,
            index=index,
            mask=places - 1,
            most=most,
            ring=ring,
            window=settings.window_reports,
            largest_gap=settings.largest_gap_reports,
            silence_ns=settings.silence_ns,
            most_repeats=settings.repeats_before_restart,
        )

    @property
    def native(self) -> SequenceTable:
        """Native structure that kernels take."""
        return self._table

    def observe(self, group: ReportGroup, mark: int, now_ns: int) -> Arrival:
        """Account one report packet; its `content_mark` separates a repetition from another report with its number."""
        first_word = group.hw_id << SEQUENCE_BITS | group.sequence
        arrival = _ARRIVALS[self._calls.observe(self._table, group.node_id, first_word, mark, now_ns)]
        self.count()
        return arrival

    def count(self) -> None:
        """Add what the kernels have counted to the counters."""
        if self._table.forgotten:
            self._counters[Count.REPORTERS_FORGOTTEN] += self._table.forgotten
            self._table.forgotten = 0

    def end(self, node_ids: Collection[int]) -> None:
        """End the accounts of switches that report elsewhere now."""
        cells = self._trackers.rows(np.dtype(TrackerCell))[: self._table.count]
        ended = np.isin(cells["key"] & 0xFFFF_FFFF, np.array(sorted(node_ids), np.uint64))
        # A restart to reconsider takes the kernel off its fast path, which does not look at ends.
        cells["has_ended"][ended] = cells["has_before"][ended] = 1

    def states(self) -> Mapping[tuple[int, int], ReporterState]:
        """Return every account, by node id and hardware id."""
        return _ReporterStates(self._trackers.rows(np.dtype(TrackerCell))[: self._table.count].copy())


class _ReporterStates(Mapping[tuple[int, int], ReporterState]):
    """Accounts as copies of their cells; states are made when one is first asked for."""

    def __init__(self, cells: NDArray[np.void]) -> None:
        self._cells = cells

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._made)

    def __getitem__(self, key: tuple[int, int]) -> ReporterState:
        return self._made[key]

    def __repr__(self) -> str:
        return repr(self._made)

    @cached_property
    def _made(self) -> dict[tuple[int, int], ReporterState]:
        names = ("key", "received", "lost", "late", "duplicate", "restarts", "contested")
        result = {}
        for key, *counts in zip(*(self._cells[name].tolist() for name in names), strict=True):
            node_id, hw_id = key & 0xFFFF_FFFF, key >> 32
            result[node_id, hw_id] = ReporterState(node_id, hw_id, *counts)
        return result
