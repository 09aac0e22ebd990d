"""Windows in plain Python as columns, to be merged with those of other collectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collectors.settings import StateSettings
from collectors.statistics.columns import Integers
from collectors.statistics.link_windows import BucketRows, LinkWindows, Readings, SlotRows
from collectors.statistics.window import Window


def windows_of(windows: Sequence[Window | None], settings: StateSettings) -> LinkWindows:
    """Return the windows of links in their order, None where nothing ever came."""
    slots: list[tuple[int, ...]] = []
    buckets: list[tuple[int, ...]] = []
    readings: list[tuple[int, ...]] = []
    for link, window in enumerate(windows):
        if window is None:
            continue
        for number, source, delays, (queues, queue_frames, buffers, buffer_frames, newest_ns) in window.rows():
            sums = delays.count, delays.total, delays.least, delays.greatest
            slots.append((link, number, source, *sums, queues, queue_frames, buffers, buffer_frames, newest_ns))
            buckets += [(link, number, bucket, count) for bucket, count in sorted(delays.buckets.items())]
        readings += [(link, *reading) for reading in window.readings()]
    return LinkWindows(
        len(windows),
        settings.window_ns,
        settings.tx_window_ns,
        SlotRows(*_columns(slots, 12)),
        BucketRows(*_columns(buckets, 4)),
        Readings(*_columns(readings, 4)),
    )


def _columns(rows: Sequence[tuple[int, ...]], width: int) -> list[Integers]:
    return list(np.array(rows, np.int64).reshape(-1, width).T.copy())
