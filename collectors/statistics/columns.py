"""Figures of many windows side by side, as they come from native memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
Places = NDArray[np.intp]

UNKNOWN: Final = -1
"""Stands for None in columns of integers, as NaN does in those of floats."""


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """`WindowFigures` of links, one place each; `newest_ns` is UNKNOWN where nothing ever came."""

    delay_mean_ns: Integers
    delay_p50_ns: Integers
    delay_p99_ns: Integers
    delay_ewma_ns: Integers
    delay_max_ns: Integers
    source: Integers
    """Places in `SOURCES`."""

    samples: Integers
    queue_occupancy_frames: Numbers
    tx_bytes_per_window: Integers
    newest_ns: Integers
    buffer_occupancy_frames: Numbers
    newest_delay_ns: Integers
    newest_queue_frames: Numbers
    newest_tx_bytes: Integers


def signed(words: NDArray[np.unsignedinteger[Any]]) -> Integers:
    """Return words as numbers; what has all ones becomes UNKNOWN where words have 64 bits."""
    return words.astype(np.int64)
