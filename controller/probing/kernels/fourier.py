"""The discrete Fourier transform of complex numbers, `batch` times.

Its signal is a sum of a few waves of whole frequencies, so its spectrum is known in closed form: a line of known height
at each of them, nothing elsewhere. For a signal from another kernel, sampled frequencies are summed up in higher
precision. Parseval's theorem checks the whole in both cases.
"""

from __future__ import annotations

import math
from functools import partial
from importlib import import_module
from typing import Final

import numpy as np

from controller.probing.kernels.base import SAMPLES, Array, Kernel, Maker, Sizes, relative_error

_WAVES: Final = 4
_FREQUENCIES: Final = 4
"""Number of sampled frequencies of a signal that comes from another kernel."""
_PART: Final = 8192


class Fft(Kernel):
    """Forward transforms of `batch` signals of n complex numbers."""

    def __init__(self, library: str, sizes: Sizes, seed: int) -> None:
        self._transform = import_module(library).fft
        n, batch = sizes["n"], sizes["batch"]
        self._generator = np.random.default_rng(seed)
        self._lines = np.unique(self._generator.integers(0, n, _WAVES))
        self._heights = 1.0 + self._generator.random((batch, self._lines.size))
        super().__init__(_waves(n, self._lines, self._heights))

    def compute(self, *data: Array) -> Array:
        """Transform all signals."""
        spectrum: Array = self._transform(data[0], axis=1)
        return spectrum

    def accuracy(self, output: Array) -> float:
        """Return the largest of the errors at lines, at sampled frequencies and of the energy."""
        (signal,) = self.data
        if output.shape != signal.shape:
            return math.inf
        whole = relative_error(_energy(output), self.truth(lambda: _energy(signal) * signal.shape[1]))
        return max(whole, self._at_lines(output) if self.is_own else self._at_frequencies(output))

    def _at_lines(self, output: Array) -> float:
        n = output.shape[1]
        places = np.concatenate([self._lines, self._generator.integers(0, n, SAMPLES)])
        true = np.zeros((output.shape[0], places.size), dtype=np.complex128)
        # Only the first number of the first signal has grown: each of its frequencies grows by the same.
        true[0] += self.lift
        for line, height in zip(self._lines, self._heights.T, strict=True):
            true[:, places == line] += n * height[:, None]
        return relative_error(output[:, places], true)

    def _at_frequencies(self, output: Array) -> float:
        signal, n = self.data[0][0], output.shape[1]
        frequencies = self._generator.integers(0, n, _FREQUENCIES)
        true = [(signal * _wave(n, -int(frequency))).sum() for frequency in frequencies]
        return relative_error(output[0, frequencies], np.array(true), math.sqrt(_energy(signal) * n))


def _energy(numbers: Array) -> float:
    """Return the sum of squares; parts are added up separately, or small ones would be lost next to a line."""
    flat = np.ascontiguousarray(numbers).reshape(-1)
    parts = (flat[start : start + _PART] for start in range(0, flat.size, _PART))
    return math.fsum(float(np.vdot(part, part).real) for part in parts)


def _wave(n: int, frequency: int) -> Array:
    """Return n points of a wave; angles are whole fractions of a turn, so that none drifts."""
    turns = (np.arange(n, dtype=np.int64) * frequency) % n
    wave: Array = np.exp((2j * np.pi / n) * turns)
    return wave


def _waves(n: int, lines: Array, heights: Array) -> Array:
    """Return signals of n points whose lines have the given heights."""
    waves = np.zeros((heights.shape[0], n), dtype=np.complex128)
    for line, height in zip(lines, heights.T, strict=True):
        waves += height[:, None] * _wave(n, int(line))
    return waves


def _bytes(sizes: Sizes) -> int:
    return 16 * sizes["n"] * sizes["batch"] * 3


fft: Final = Maker(partial(Fft, "numpy.fft"), _bytes, optional=(("batch", 1),))
fft_scipy: Final = Maker(partial(Fft, "scipy.fft"), _bytes, optional=(("batch", 1),))
