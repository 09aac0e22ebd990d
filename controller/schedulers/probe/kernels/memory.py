"""What memory delivers: in order (STREAM's triad) and at random (HPC Challenge's RandomAccess).

Both write what they compute into arrays that stay, and both are held against what must stand there: nothing can be left
out. By default they are far larger than caches; sizes that are not say how fast a cache is.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from controller.schedulers.probe.kernels.base import (
    SAMPLES,
    Array,
    InMemory,
    Maker,
    Sizes,
    Value,
    centred,
    fold,
    relative_error,
)

_CHUNK: Final = 16_384
"""Numbers at a time: numpy computes s c and b + s c one after the other, and what lies between stays in the cache."""


class StreamTriad(InMemory):
    """a = b + s c over n numbers in order, s the inputs folded: 24 bytes each (McCalpin, STREAM, 1995)."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        n = sizes["n"]
        self._generator = np.random.default_rng(seed)
        self._b = centred(self._generator, (n,), np.float64)
        self._c = centred(self._generator, (n,), np.float64)
        # Written, so that its pages are there before anything is timed.
        self._a = np.full(n, np.nan)
        self._scale = 0.0

    def run(self, inputs: tuple[Value, ...]) -> Array:
        """Go through all three arrays once."""
        self._scale = scale = 2.0 + fold(inputs)
        a, b, c = self._a, self._b, self._c
        for start in range(0, a.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            np.multiply(c[part], scale, out=a[part])
            np.add(a[part], b[part], out=a[part])
        return a

    def accuracy(self, output: Array) -> float:
        """Return the larger of the errors at sampled places and of the sum of all."""
        if output.shape != self._b.shape:
            return np.inf
        places = self._generator.integers(0, output.size, SAMPLES)
        true = self._b[places].astype(np.longdouble) + self._scale * self._c[places].astype(np.longdouble)
        total = float(self._b.sum() + self._scale * self._c.sum())
        # Of numbers on both sides of zero the sum may be next to nothing: it is held against their size.
        whole = abs(float(output.sum()) - total) / (float(np.abs(output).sum()) or 1.0)
        return max(relative_error(output[places], true), whole if np.isfinite(whole) else np.inf)


def _triad_bytes(sizes: Sizes) -> int:
    return 24 * sizes["n"]


stream_triad: Final = Maker(StreamTriad, _triad_bytes)
