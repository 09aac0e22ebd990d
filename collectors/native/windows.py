"""Windows of links copied out of native memory, to be merged with those of other collectors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from collectors.native.kernel_calls import kernel_calls
from collectors.native.structures import WINDOW_SLOTS, WindowCell
from collectors.native.tables import TelemetryTables
from collectors.statistics.columns import Integers
from collectors.statistics.link_windows import BucketRows, LinkWindows, Readings, SlotRows
from collectors.statistics.sketch import BUCKETS
from collectors.statistics.window import TX_READINGS

_WINDOW = np.dtype(WindowCell)


def link_windows(tables: TelemetryTables, cells: NDArray[np.void]) -> LinkWindows:
    """Return the windows of links, which are the first ones; `cells` are theirs."""
    slots, newest = cells["slots"], cells["newest_slot"]
    inside = (slots["number"] != 0) & (slots["number"] + (WINDOW_SLOTS - 1) > newest[:, None])
    link, column = np.nonzero(inside)
    order = np.lexsort((slots["number"][link, column], link))
    link, column = link[order], column[order]
    chosen = slots[link, column]
    rows = SlotRows(
        link.astype(np.int64),
        _integers(chosen["number"]) - 1,
        _integers(chosen["source"]),
        delays=_integers(chosen["delays"]),
        total_ns=_integers(chosen["total"]),
        least_ns=np.where(chosen["delays"] != 0, _integers(chosen["least"]), 0),
        greatest_ns=_integers(chosen["greatest"]),
        queues=_integers(chosen["queues"]),
        queue_frames=_integers(chosen["queue_total"]),
        buffers=_integers(cells["buffers"][link, column]),
        buffer_frames=_integers(cells["buffer_totals"][link, column]),
        newest_ns=_integers(chosen["newest_ns"]),
    )
    windows = tables.windows
    return LinkWindows(
        len(cells),
        windows.window_ns,
        windows.tx_window_ns,
        rows,
        _buckets(tables, rows, column.astype(np.uint32)),
        _readings(cells),
    )


def _buckets(tables: TelemetryTables, slots: SlotRows, column: NDArray[np.uint32]) -> BucketRows:
    some = np.flatnonzero(slots.delays > 0)
    room = int(np.minimum(slots.delays[some], BUCKETS).sum())
    of, bucket, count = (np.zeros(room, np.uint32) for _ in range(3))
    links, columns = slots.link[some].astype(np.uint32), column[some]
    filled = kernel_calls().read_buckets(tables, links, columns, len(some), room, of, bucket, count)
    row = some[of[:filled].astype(np.int64)]
    return BucketRows(slots.link[row], slots.number[row], _integers(bucket[:filled]), _integers(count[:filled]))


def _readings(cells: NDArray[np.void]) -> Readings:
    readings, newest = cells["tx"], cells["tx_newest"]
    inside = (readings["number"] != 0) & (readings["number"] + (TX_READINGS - 1) > newest[:, None])
    link, column = np.nonzero(inside)
    order = np.lexsort((readings["number"][link, column], link))
    chosen = readings[link[order], column[order]]
    return Readings(
        link[order].astype(np.int64),
        _integers(chosen["number"]) - 1,
        _integers(chosen["at_ns"]),
        _integers(chosen["nbytes"]),
    )


def _integers(words: NDArray[np.unsignedinteger]) -> Integers:
    return words.astype(np.int64)
