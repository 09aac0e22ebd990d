"""What every probe kernel is made of: prepared once, run often, its output held against a value known to be true.

`make(sizes, seed)` returns a kernel with its data; the same seed gives the same data. `run` is what is timed; an input
that has the shape of an operand is that operand, all others are folded into the data, so that the link is real.
`accuracy` speaks of the last run. `close` removes what the runs have left; the kernels of users may lack it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from controller.schedulers.probe.errors import ProbeKernelError
from controller.schedulers.probe.values import Prepared

Sizes: TypeAlias = Mapping[str, int]
Array: TypeAlias = NDArray[Any]
Output: TypeAlias = Any
"""What a run yields: a number, an array of numpy or a tensor of torch."""
Value: TypeAlias = float | Array
"""What feeds successors: the mean of the outputs of all repetitions, in this process's memory."""

_MOST_SAMPLES: Final = 4096
SAMPLES: Final = 64
"""Places at which an output is held against a reference of higher precision."""


@dataclass(frozen=True, slots=True)
class Maker:
    """Prepares a built-in kernel, and says before that how much memory its sizes take in bytes, output included.

    All sizes but those that `may_be_zero` are at least 1.
    """

    make: Callable[[Sizes, int], Prepared]
    memory_bytes: Callable[[Sizes], int]
    may_be_zero: tuple[str, ...] = ()

    def __call__(self, sizes: Sizes, seed: int) -> Prepared:
        """Return the kernel with its data."""
        return self.make(sizes, seed)


class InMemory:
    """A kernel that leaves nothing behind."""

    def close(self) -> None:
        """Do nothing: there are no files and no servers."""


class Mean:
    """The mean of a kernel's outputs, elementwise, as successors get it; only the sum of them is kept."""

    def __init__(self) -> None:
        self._total: Any = None
        self._count = 0

    def add(self, output: Output) -> None:
        """Take a run's output: a number, an array, or a tensor, which leaves its device."""
        if hasattr(output, "detach"):
            output = output.detach().cpu().numpy()
        wide = np.complex128 if np.iscomplexobj(output) else np.float64
        if self._total is None:
            self._total = np.array(output, dtype=wide)
        else:
            self._total += output
        self._count += 1

    @property
    def value(self) -> Value:
        """The mean; ProbeKernelError where there was no output."""
        if self._count == 0:
            raise ProbeKernelError("there is no mean of no outputs")
        found = self._total / self._count
        return found if found.ndim else float(found)


def fold(inputs: Sequence[Value]) -> float:
    """Return a number in [1, 2) that depends on all inputs, and is 1 without any: by which a kernel scales its data.

    Of a large array so many elements count, evenly spread, that folding takes microseconds.
    """
    total = 0.0
    for value in inputs:
        flat = np.abs(np.asarray(value)).reshape(-1)
        total += float(flat[:: max(1, flat.size // _MOST_SAMPLES)].mean(dtype=np.float64)) if flat.size else 0.0
    return 1.0 + math.fmod(total, 1.0) if math.isfinite(total) else 1.0


def operand(inputs: Sequence[Value], shape: tuple[int, ...], dtype: Any) -> Array | None:  # noqa: ANN401 - as numpy's
    """Return the first input that can be an operand of a shape, None if there is none; real numbers can be complex."""
    for value in inputs:
        if isinstance(value, np.ndarray) and value.shape == shape and np.can_cast(value.dtype, dtype, "same_kind"):
            return np.ascontiguousarray(value, dtype=dtype)
    return None


def relative_error(found: Array | float, true: Array | float) -> float:
    """Return the largest difference over the largest true value, inf where one is no number."""
    wide = np.clongdouble if np.iscomplexobj(found) or np.iscomplexobj(true) else np.longdouble
    expected = np.asarray(true, dtype=wide)
    difference = np.max(np.abs(np.asarray(found, dtype=wide) - expected), initial=0)
    scale = np.max(np.abs(expected), initial=0)
    error = float(difference / scale) if scale > 0 else float(difference)
    return error if math.isfinite(error) else math.inf


def centred(generator: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:  # noqa: ANN401 - as numpy's
    """Return numbers spread evenly between -1/2 and 1/2."""
    found: Array = generator.random(shape, dtype=dtype)
    found -= found.dtype.type(0.5)
    return found
