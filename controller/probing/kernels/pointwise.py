"""Operations on each of n numbers, and on all of them: the arithmetic between the large operators of a program.

Each allocates a new array for its result, as programs do. Outputs are compared with sampled places in higher precision;
reductions with their sum in higher precision.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

import numpy as np

from controller.probing.kernels.base import SAMPLES, Array, Kernel, Maker, Sizes, numbers, relative_error

_MOST_OPERANDS: Final = 8
_TWO: Final = (("operands", 2),)


class Pointwise(Kernel):
    """A kernel of arrays of n numbers whose output has as many."""

    def __init__(self, dtype: Any, sizes: Sizes, seed: int, *, operands: int = 1) -> None:  # noqa: ANN401 - as numpy's
        self.generator = np.random.default_rng(seed)
        super().__init__(*(numbers(self.generator, (sizes["n"],), dtype) for _ in range(operands)))

    def accuracy(self, output: Array) -> float:
        """Return the error at sampled places, the first and the last among them."""
        if output.shape != self.data[0].shape:
            return math.inf
        places = self.generator.integers(0, output.size, SAMPLES)
        places[:2] = 0, output.size - 1
        scale = float(np.abs(output[places].astype(np.float64)).max())
        return relative_error(
            output[places], self.true(*(array[places].astype(np.longdouble) for array in self.data)), scale
        )

    def true(self, *data: Array) -> Array:
        """Return the true output, computed in higher precision."""
        raise NotImplementedError


class Elementwise(Pointwise):
    """The negative of one operand, the product of two; of more, the sum of that product and the rest, one by one."""

    def __init__(self, dtype: Any, sizes: Sizes, seed: int) -> None:  # noqa: ANN401 - as numpy's
        operands = min(sizes["operands"], _MOST_OPERANDS)
        super().__init__(dtype, sizes, seed, operands=operands)

    def compute(self, *data: Array) -> Array:
        """Compute: one numpy operation for each operand but the first."""
        if len(data) == 1:
            negative: Array = np.negative(data[0])
            return negative
        result: Array = data[0] * data[1]
        for other in data[2:]:
            result = result + other
        return result

    def true(self, *data: Array) -> Array:
        """Return the same at sampled places."""
        return self.compute(*data)


class Trigonometric(Pointwise):
    """The sine of each of n angles within four turns."""

    def __init__(self, dtype: Any, sizes: Sizes, seed: int) -> None:  # noqa: ANN401 - as numpy's
        super().__init__(dtype, sizes, seed)
        self.data[0] *= self.data[0].dtype.type(8 * np.pi)
        self._first = self.data[0].flat[0]

    def compute(self, *data: Array) -> Array:
        """Compute all sines."""
        sines: Array = np.sin(data[0])
        return sines

    def true(self, *data: Array) -> Array:
        """Return the sines in higher precision."""
        sines: Array = np.sin(data[0])
        return sines


class Copy(Pointwise):
    """n numbers copied to another place in memory."""

    def compute(self, *data: Array) -> Array:
        """Move all."""
        return data[0].copy()

    def true(self, *data: Array) -> Array:
        """Return the numbers."""
        return data[0]


class Reduction(Pointwise):
    """The sum of n numbers."""

    def compute(self, *data: Array) -> Array:
        """Add up all."""
        total: Array = data[0].sum()
        return total

    def accuracy(self, output: Array) -> float:
        """Return the error against the sum in higher precision, over the sum of absolute values."""
        return math.inf if np.shape(output) else relative_error(float(output), *self.truth(self._sums))

    def _sums(self) -> tuple[float, float]:
        """Return the sum in higher precision, and that of absolute values."""
        wide = np.float64 if self.data[0].dtype == np.float32 else np.longdouble
        return float(self.data[0].sum(dtype=wide)), float(np.abs(self.data[0]).sum(dtype=np.float64))


class Scan(Pointwise):
    """The sums of the first 1, 2, ... n numbers."""

    def compute(self, *data: Array) -> Array:
        """Add up one after another."""
        sums: Array = np.cumsum(data[0])
        return sums

    def accuracy(self, output: Array) -> float:
        """Return the largest error of the sums up to eight places, over the sum of absolute values."""
        (data,) = self.data
        if output.shape != data.shape:
            return math.inf
        places, true, scale = self.truth(self._sums)
        return relative_error(output[places], true, scale)

    def _sums(self) -> tuple[Array, Array, float]:
        """Return eight places and the last, the sums up to them, and that of absolute values."""
        (data,) = self.data
        places = np.append(self.generator.integers(0, data.size, 8), data.size - 1)
        true = np.array([data[: index + 1].sum(dtype=np.float64) for index in places])
        return places, true, float(np.abs(data).sum(dtype=np.float64))


class RandomNumbers(Kernel):
    """n random numbers between 0 and 1 from PCG64, seeded by the seed and the inputs."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        super().__init__(np.array([float(seed)]))
        self._n = sizes["n"]

    def compute(self, *data: Array) -> Array:
        """Draw all."""
        return np.random.default_rng(self._state(data[0])).random(self._n)

    def accuracy(self, output: Array) -> float:
        """Return the error of the first numbers and the last, and how far the mean is off beyond chance."""
        if output.shape != (self._n,):
            return math.inf
        count = min(self._n, SAMPLES)
        first = np.random.default_rng(self._state(self.data[0]))
        last = np.random.default_rng(self._state(self.data[0]))
        last.bit_generator.advance(self._n - count)  # type: ignore[attr-defined] # PCG64's, which the default is
        off = abs(float(output.mean()) - 1 / 2) - 6 * math.sqrt(1 / 12 / self._n)
        if math.isnan(off):
            return math.inf
        ends = np.concatenate([output[:count], output[-count:]])
        return max(relative_error(ends, np.concatenate([first.random(count), last.random(count)])), off)

    @staticmethod
    def _state(data: Array) -> int:
        return int(abs(float(data[0])) * (1 << 32))


def _bytes(width: int, arrays: int, sizes: Sizes) -> int:
    return width * sizes["n"] * arrays


def _elementwise_bytes(width: int, sizes: Sizes) -> int:
    return width * sizes["n"] * (min(sizes["operands"], _MOST_OPERANDS) + 2)


elementwise: Final = Maker(partial(Elementwise, np.float64), partial(_elementwise_bytes, 8), optional=_TWO)
elementwise_fp32: Final = Maker(partial(Elementwise, np.float32), partial(_elementwise_bytes, 4), optional=_TWO)
trigonometric: Final = Maker(partial(Trigonometric, np.float64), partial(_bytes, 8, 2))
trigonometric_fp32: Final = Maker(partial(Trigonometric, np.float32), partial(_bytes, 4, 2))
copy: Final = Maker(partial(Copy, np.float64), partial(_bytes, 8, 2))
reduction: Final = Maker(partial(Reduction, np.float64), partial(_bytes, 8, 1))
reduction_fp32: Final = Maker(partial(Reduction, np.float32), partial(_bytes, 4, 1))
scan: Final = Maker(partial(Scan, np.float64), partial(_bytes, 8, 2))
random_numbers: Final = Maker(RandomNumbers, partial(_bytes, 8, 1))
