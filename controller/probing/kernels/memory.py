"""Memory performance: in order (STREAM's triad) and at random (HPC Challenge's RandomAccess).

Both write their results into arrays that stay, and both compare these with the expected values: nothing can be skipped.
By default the arrays are far larger than caches; smaller sizes measure a cache.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from controller.probing.kernels.base import (
    SAMPLES,
    Array,
    Kernel,
    Maker,
    Sizes,
    Value,
    fold,
    numbers,
    relative_error,
)

_CHUNK: Final = 16_384
"""Numbers per step: numpy computes s c and b + s c one after the other; the intermediate result stays in the cache."""
SCALE: Final = 3.0
_LANES: Final = 1024
"""Updates made at a time, as many as RandomAccess allows in flight."""


class StreamTriad(Kernel):
    """a = b + s c over n numbers in order: 24 bytes each (McCalpin, STREAM, 1995)."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        n = sizes["n"]
        self._generator = np.random.default_rng(seed)
        super().__init__(numbers(self._generator, (n,)), numbers(self._generator, (n,)))
        # Written, so that its pages exist before anything is timed.
        self._a = np.zeros(n)
        self._a.fill(np.nan)

    def compute(self, *data: Array) -> Array:
        """Go through all three arrays once."""
        a, (b, c) = self._a, data
        for start in range(0, a.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            np.multiply(c[part], SCALE, out=a[part])
            np.add(a[part], b[part], out=a[part])
        return a

    def accuracy(self, output: Array) -> float:
        """Return the larger of the errors at sampled places and of the sum of all."""
        b, c = self.data
        if output.shape != b.shape:
            return math.inf
        places = self._generator.integers(0, output.size, SAMPLES)
        true = b[places].astype(np.longdouble) + SCALE * c[places].astype(np.longdouble)
        # With numbers on both sides of zero the sum may be close to zero: compare it with the array's size.
        total = self.truth(lambda: float(b.sum() + SCALE * c.sum()))
        whole = relative_error(float(output.sum()), total, float(output.size))
        return max(relative_error(output[places], true), whole)


class RandomAccess:
    """Words of 64 bits at random places of a table, changed by exclusive or (Luszczek et al., HPC Challenge, 2005).

    1,024 updates are made at a time, no two of the same word. The output is the words at sampled places; their expected
    values follow from the table's initial content 0, 1, 2, ....
    """

    def __init__(self, sizes: Sizes, seed: int) -> None:
        words, updates = sizes["words"], sizes["updates"]
        generator = np.random.default_rng(seed)
        self._lanes = min(_LANES, words)
        self._width = words // self._lanes
        # Each lane of a batch has its own part of the table.
        order = generator.permutation(self._lanes)
        self._places = generator.integers(0, self._width, updates, dtype=np.int64)
        self._places += np.resize(order * self._width, updates)
        self._values = generator.integers(0, 1 << 63, updates, dtype=np.uint64)
        self._first = self._values[0]
        self._table = np.arange(words, dtype=np.uint64)
        updated = self._places[generator.integers(0, updates, SAMPLES)]
        updated[0] = self._places[0]
        self._samples = np.concatenate([updated, generator.integers(0, self._lanes * self._width, SAMPLES)])
        self._true = self._samples.astype(np.uint64)
        lanes = np.argsort(order)[self._samples // self._width]
        self._change = np.array([self._changes(*pair) for pair in zip(self._samples, lanes, strict=True)])
        self._inputs: tuple[Value, ...] = ()

    def run(self, inputs: tuple[Value, ...]) -> Array:
        """Update all; the inputs change the first update's value."""
        if inputs is not self._inputs:
            self._inputs = inputs
            before, self._values[0] = self._values[0], self._first ^ np.uint64((fold(inputs) - 1.0) * (1 << 52))
            self._change[self._samples == self._places[0]] ^= before ^ self._values[0]
        table, places, values = self._table, self._places, self._values
        for start in range(0, places.size, self._lanes):
            part = slice(start, start + self._lanes)
            table[places[part]] ^= values[part]
        self._true ^= self._change
        words: Array = table[self._samples]
        return words

    def accuracy(self, output: Array) -> float:
        """Return the fraction of sampled words that are wrong."""
        return math.inf if output.shape != self._true.shape else float(np.mean(output != self._true))

    def close(self) -> None:
        """Do nothing: there are no files and no servers."""

    def _changes(self, index: int, lane: int) -> np.uint64:
        """Return what a run does to the word at a place, which only that lane changes."""
        hits = self._places[lane :: self._lanes] == index
        change: np.uint64 = np.bitwise_xor.reduce(self._values[lane :: self._lanes][hits])
        return change


stream_triad: Final = Maker(StreamTriad, lambda s: 24 * s["n"])
random_access: Final = Maker(RandomAccess, lambda s: 8 * s["words"] + 16 * s["updates"])
