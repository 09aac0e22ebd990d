"""The discrete Fourier transform of complex numbers, `batch` times.

Its input is a sum of a few waves of whole frequencies, so that its spectrum is known in closed form: a line of known
height at each of them, nothing elsewhere. Of a signal that comes from another kernel sampled frequencies are summed up
in higher precision, and Parseval's theorem holds the whole.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Final

import numpy as np

from controller.schedulers.probe.kernels.base import Array, InMemory, Maker, Sizes, Value, fold, operand, relative_error

_WAVES: Final = 8
_FREQUENCIES: Final = 8
"""Sampled, of a signal that comes from another kernel."""


class Fft(InMemory):
    """Forward transforms; an input of `batch` x `n` numbers is the signal, all others are a constant added to it."""

    def __init__(self, library: str, sizes: Sizes, seed: int) -> None:
        self._transform = import_module(library).fft
        n, self._batch = sizes["n"], sizes["batch"]
        self._generator = np.random.default_rng(seed)
        self._lines = np.unique(self._generator.integers(0, n, _WAVES))
        self._heights = 1.0 + self._generator.random((self._batch, self._lines.size))
        self._signal = _waves(n, self._lines, self._heights)
        self._used, self._lift = self._signal, 0.0
        self._is_own = True

    def run(self, inputs: tuple[Value, ...]) -> Array:
        """Transform all signals."""
        given = self._fitting(inputs)
        self._is_own = given is None
        if given is None:
            lift = fold(inputs) - 1.0 if inputs else 0.0
            self._signal[:, 0] += lift - self._lift
            self._lift = lift
        self._used = self._signal if given is None else given
        found: Array = self._transform(self._used, axis=1)
        return found

    def accuracy(self, output: Array) -> float:
        """Return the error over the whole spectrum, or of sampled frequencies and the energy."""
        if output.shape != self._used.shape:
            return np.inf
        if self._is_own:
            n = output.shape[1]
            true = np.full(output.shape, self._lift, dtype=np.complex128)
            true[:, self._lines] += self._heights * n
            return relative_error(output, true)
        return self._sampled_error(output)

    def _fitting(self, inputs: tuple[Value, ...]) -> Array | None:
        shape = self._signal.shape
        found = operand(inputs, shape, np.complex128)
        flat = operand(inputs, (shape[1],), np.complex128) if found is None and shape[0] == 1 else None
        return found if flat is None else flat[None, :]

    def _sampled_error(self, output: Array) -> float:
        n = output.shape[1]
        found, true = [], []
        for frequency in self._generator.integers(0, n, _FREQUENCIES):
            angles = (np.arange(n) * int(frequency)) % n
            turn = np.exp(-2j * np.longdouble(np.pi) / n * angles.astype(np.clongdouble))
            found.append(output[0, frequency])
            true.append((self._used[0] * turn).sum())
        energy = relative_error(float((np.abs(output) ** 2).sum()), float((np.abs(self._used) ** 2).sum()) * n)
        return max(energy, relative_error(np.array(found), np.array(true)))


def _waves(n: int, lines: Array, heights: Array) -> Array:
    """Return signals of n points whose lines have heights; angles are whole parts of a turn, so that none drifts."""
    turns = np.arange(n, dtype=np.int64)
    circle = np.exp((2j * np.pi / n) * turns)
    found = np.zeros((heights.shape[0], n), dtype=np.complex128)
    for line, height in zip(lines, heights.T, strict=True):
        found += height[:, None] * circle[(turns * int(line)) % n]
    return found


def _bytes(sizes: Sizes) -> int:
    return 16 * sizes["n"] * sizes["batch"] * 3


fft: Final = Maker(partial(Fft, "numpy.fft"), _bytes)
fft_scipy: Final = Maker(partial(Fft, "scipy.fft"), _bytes)
