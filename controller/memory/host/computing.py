"""Operations of requests: additions of single-precision floats and of 32-bit integers on vectors, by count."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import numpy as np

from dataplane.clock import NS_PER_S

_WIDTH: Final = 1 << 16
_ROUNDS: Final = 64
_GENERATED: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
"""Odd constant of Fibonacci hashing: content of neighbouring keys differs in most bits."""


class Computer:
    """Computes, and knows how fast; each thread needs its own vectors."""

    def __init__(self, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock_ns = clock_ns
        self.float_ops_per_s = self._rate(np.float32)
        self.int_ops_per_s = self._rate(np.int32)

    def run(self, float_operations: int, int_operations: int) -> int:
        """Carry out this many operations; return the nanoseconds that it took."""
        begin_ns = self._clock_ns()
        for kind, count in ((np.float32, float_operations), (np.int32, int_operations)):
            if count:
                _add(np.ones(min(count, _WIDTH), kind), count)
        return self._clock_ns() - begin_ns

    def _rate(self, kind: type[np.float32] | type[np.int32]) -> int:
        vector = np.ones(_WIDTH, kind)
        _add(vector, _WIDTH)
        begin_ns = self._clock_ns()
        _add(vector, _ROUNDS * _WIDTH)
        return _ROUNDS * _WIDTH * NS_PER_S // max(self._clock_ns() - begin_ns, 1)


def _add(vector: np.ndarray[tuple[int], np.dtype[np.float32 | np.int32]], count: int) -> None:
    one = vector.dtype.type(1)
    for _ in range(count // len(vector)):
        np.add(vector, one, out=vector)
    rest = vector[: count % len(vector)]
    np.add(rest, one, out=rest)


def generated(key: int, version: int, nbytes: int) -> bytes:
    """Return the content that a request without data of its own writes: the same everywhere, other for each version."""
    with np.errstate(over="ignore"):
        seed = np.uint64(key) * _GENERATED + np.uint64(version)
    return np.full(nbytes // 8, seed, np.uint64).tobytes()
