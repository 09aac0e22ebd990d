"""Read registers quickly: large ones are nearly empty."""

from __future__ import annotations

import numpy as np

from dataplane.switch.tables.arrays import Cells


def used_cells(cells: Cells) -> tuple[int, dict[int, int]]:
    """Return how many words a register has, and those that are not zero by their places."""
    words = np.frombuffer(cells.words, dtype=np.uint64)
    places = np.flatnonzero(words)
    return len(words), dict(zip(places.tolist(), words[places].tolist(), strict=True))
