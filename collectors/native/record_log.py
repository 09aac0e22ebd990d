"""The log of records in native memory: kernels put hops into it, and Python those of reports that it has read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collectors.counters import Count, Counters
from collectors.native.accumulator import NativeStore, half, key_words, word
from collectors.native.figures import distinct_flows
from collectors.native.kernel_calls import kernel_calls
from collectors.native.memory import CellMemory
from collectors.native.structures import KEY_WORDS, NONE24, NONE32, RecordCell
from collectors.record_columns import RecordColumns
from collectors.state.record_log import ALL, ROOM, sample_of
from collectors.statistics.columns import UNKNOWN
from collectors.values import HopRecord

_SAME: Final = ("received_ns", "reporter_id", "sequence", "hop_index", "node_id", "packet_id", "kind")
_HALVES: Final = ("hop_count", "ingress_port", "egress_port", "hop_latency_ns", "tx_bytes_per_window")
_STAMPS: Final = ("ingress_timestamp_ns", "egress_timestamp_ns")
_NO_QUEUE: Final = 0xFF
_MOST_PER_S: Final = 1 << 31


class NativeRecordLog:
    """Keeps records of a bounded number of hops; the kernels choose the reports, also those that Python reads."""

    def __init__(self, store: NativeStore, counters: Counters) -> None:
        self._store, self._counters = store, counters
        self._tables, self._records = store.native, store.native.records
        self._calls = kernel_calls()
        self._cells = CellMemory(RecordCell, ROOM)
        self._type = np.dtype(RecordCell)
        self._records.cells, self._records.room, self._records.share = self._cells.pointer, ROOM, ALL

    def want(self, reports_per_s: int, *, is_capped: bool) -> None:
        """Make records of this many reports per second, 0 for none; if that is capped, subscribers want more."""
        self._records.per_s, self._records.share = min(reports_per_s, _MOST_PER_S), ALL
        self._records.is_capped = is_capped

    def say_behind(self, is_behind: bool) -> None:
        """Set whether the collector is behind; if so, no records are made."""
        self._records.is_behind = is_behind

    def choose(self, choice: int, now_ns: int) -> bool:
        """Return whether a report becomes records; count it otherwise."""
        chosen = bool(self._calls.choose_record(self._tables, choice, now_ns))
        self._store.count()
        return chosen

    def put(self, records: Sequence[HopRecord], choice: int) -> None:
        """Keep the records of a chosen report; count it if there is no room."""
        if self._records.count + len(records) > ROOM:
            self._counters[Count.RECORDS_WITHHELD] += 1
            return
        for record in records:
            self._put(self._cells.pointer[self._records.count], record, choice)
            self._records.count += 1

    def _put(self, cell: Any, record: HopRecord, choice: int) -> None:  # noqa: ANN401 - a struct in native memory
        key = key_words(record.flow).tolist()
        for index in range(KEY_WORDS):
            cell.key[index] = key[index]
        for name in _SAME:
            setattr(cell, name, getattr(record, name))
        for name in _HALVES:
            setattr(cell, name, half(getattr(record, name)))
        for name in _STAMPS:
            setattr(cell, name, word(getattr(record, name)))
        number = _NO_QUEUE if record.queue_id is None else record.queue_id
        frames = NONE24 if record.queue_occupancy_frames is None else record.queue_occupancy_frames
        cell.queue, cell.buffer = number << 24 | frames, half(record.buffer_occupancy_frames)
        cell.choice = choice

    def take(self) -> KeptCells:
        """Return the records since the last call."""
        cells = self._cells.rows(self._type)[: self._records.count].copy()
        self._records.count = 0
        return KeptCells(cells, self._records.per_s, self._records.seen_per_s)


@dataclass(frozen=True, slots=True)
class KeptCells:
    """Copied cells of a log, and the numbers of reports per second kept and seen."""

    cells: NDArray[np.void]
    kept_per_s: int
    seen_per_s: int

    def sample(self, wanted_per_s: int) -> RecordColumns:
        """Return the records of an even sample of about `wanted_per_s` reports per second."""
        share = sample_of(wanted_per_s, self.kept_per_s, self.seen_per_s)
        return columns_of_cells(self.cells[self.cells["choice"] < share])


def columns_of_cells(cells: NDArray[np.void]) -> RecordColumns:
    """Return the records of cells."""
    flows, flow = distinct_flows(cells["key"])
    columns = {name: cells[name].tolist() for name in _SAME}
    for name in _HALVES:
        columns[name] = _maybe(cells[name], NONE32)
    for name in _STAMPS:
        columns[name] = cells[name].astype(np.int64).tolist()  # NONE64 becomes UNKNOWN
    columns["queue_id"] = _maybe(cells["queue"] >> 24, _NO_QUEUE)
    columns["queue_occupancy_frames"] = _maybe(cells["queue"] & NONE24, NONE24)
    # The buffer's number precedes its frames.
    columns["buffer_occupancy_frames"] = _maybe(cells["buffer"] & NONE24, NONE24)
    return RecordColumns(flows, flow.tolist(), columns)


def _maybe(numbers: NDArray[Any], none: int) -> list[int]:
    values: list[int] = np.where(numbers == none, UNKNOWN, numbers.astype(np.int64)).tolist()
    return values
