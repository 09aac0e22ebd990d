"""Common base of probe kernels: prepared once, run often, outputs checked against a known true value.

`make(sizes, seed)` returns a kernel with its data; the same seed gives the same data. `run` is what is timed. An input
with the shape of an operand replaces that operand; all others are folded into the data, so that the link is real.
`accuracy` refers to the last run. `close` removes what the runs have left; users' kernels may lack it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from controller.probing.errors import ProbeKernelError
from controller.probing.values import Prepared

Sizes: TypeAlias = Mapping[str, int]
Array: TypeAlias = NDArray[Any]
Output: TypeAlias = Any
"""Output of a run: a number, a numpy array or a torch tensor."""
Number: TypeAlias = complex | np.number[Any]
Value: TypeAlias = float | Array
"""Input of successors: the mean of the outputs of all repetitions, in this process's memory."""

T = TypeVar("T")

_MOST_SAMPLES: Final = 4096
SAMPLES: Final = 64
"""Number of sampled places at which an output is compared with a reference of higher precision."""
_PATTERN: Final = 1_048_573
"""Length of the repeating pattern of numbers: a prime, so that no row of a matrix copies another one."""


@dataclass(frozen=True, slots=True)
class Maker:
    """Prepares a built-in kernel; first tells how many bytes of memory its sizes take, output included.

    All sizes but those in `may_be_zero` are at least 1. `optional` are the defaults of sizes that may be left out.
    """

    make: Callable[[Sizes, int], Prepared]
    needs_bytes: Callable[[Sizes], int]
    may_be_zero: tuple[str, ...] = ()
    optional: tuple[tuple[str, int], ...] = ()

    def __call__(self, sizes: Sizes, seed: int) -> Prepared:
        """Return the kernel with its data."""
        return self.make(dict(self.optional) | dict(sizes), seed)

    def memory_bytes(self, sizes: Sizes) -> int:
        """Return the bytes that the kernel needs at these sizes."""
        return self.needs_bytes(dict(self.optional) | dict(sizes))


class Kernel(ABC):
    """A kernel that computes an output from arrays.

    `data` are the arrays of the next run; an input with the shape and kind of one of them replaces it. Inputs without
    such a shape are folded into a number that is added to the first element of the first array. `changed` are the
    indices of the arrays that the last `take` has changed.
    """

    def __init__(self, *data: Array) -> None:
        self._own = data
        self._first = data[0].flat[0]
        self._inputs: tuple[Value, ...] | None = ()
        self.lift = 0.0
        self.data = list(data)
        self.changed: tuple[int, ...] = ()
        self._truth: Any = None

    def run(self, inputs: tuple[Value, ...]) -> Output:
        """Compute once, with the inputs applied to the data."""
        self.take(inputs)
        return self.compute(*self.data)

    def take(self, inputs: tuple[Value, ...]) -> None:
        """Apply inputs to the data of the next runs; repeating the same ones costs nothing."""
        if inputs is self._inputs:
            self.changed = ()
            return
        self._inputs, before, lift = inputs, self.data, self.lift
        self.data = [_first_fitting(inputs, own) for own in self._own]
        self.lift = 0.0 if not self.is_own or not inputs else fold(inputs) - 1.0
        self._own[0].flat[0] = self._first + self._own[0].dtype.type(self.lift)
        self.changed = tuple(
            index
            for index, (old, new) in enumerate(zip(before, self.data, strict=True))
            if old is not new or (index == 0 and lift != self.lift)
        )
        self._truth = None

    def truth(self, compute: Callable[[], T]) -> T:
        """Return the true value of the current data's output, computed once for each state of the data."""
        if self._truth is None:
            self._truth = compute()
        value: T = self._truth
        return value

    @property
    def is_own(self) -> bool:
        """True if all arrays are the kernel's own, apart from the number added to the first element."""
        return all(array is own for array, own in zip(self.data, self._own, strict=True))

    @abstractmethod
    def compute(self, *data: Array) -> Output:
        """Return the output: what is timed."""

    @abstractmethod
    def accuracy(self, output: Output) -> float:
        """Return the relative error of the last run's output against its true value; inf if it is not a number."""

    def close(self) -> None:  # noqa: B027 - most have nothing to remove
        """Do nothing: there are no files and no servers."""


class Mean:
    """The elementwise mean of a kernel's outputs, as successors get it; only their sum is kept."""

    def __init__(self) -> None:
        self._total: Any = None
        self._count = 0

    def add(self, output: Output) -> None:
        """Take a run's output: a number, an array, or a tensor, which leaves its device."""
        value = local(output)
        if self._total is None:
            self._total = np.array(value, dtype=np.complex128 if np.iscomplexobj(value) else np.float64)
        else:
            self._total += value
        self._count += 1

    @property
    def value(self) -> Value:
        """The mean; raises ProbeKernelError if there was no output."""
        if self._count == 0:
            raise ProbeKernelError("no outputs to average")
        mean = self._total / self._count
        if mean.ndim:
            return np.asarray(mean)
        return float(abs(mean)) if np.iscomplexobj(mean) else float(mean)


def local(output: Output) -> Any:  # noqa: ANN401 - a number or an array
    """Return an output as numpy holds it: a tensor is copied from its device."""
    return output.detach().cpu().numpy() if hasattr(output, "detach") else output


def fold(inputs: Sequence[Value]) -> float:
    """Return a number in [1, 2) that depends on all inputs, and is 1 without any.

    A large array is sampled at evenly spread elements, so that folding takes microseconds.
    """
    total = 0.0
    for value in inputs:
        flat = np.abs(np.asarray(value)).reshape(-1)
        total += float(flat[:: max(1, flat.size // _MOST_SAMPLES)].mean(dtype=np.float64)) if flat.size else 0.0
    return 1.0 + math.fmod(total, 1.0) if math.isfinite(total) else 1.0


def numbers(generator: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float64) -> Array:  # noqa: ANN401 - as numpy's
    """Return numbers between -1/2 and 1/2; large arrays repeat a long pattern, as drawing all takes long."""
    count = math.prod(shape)
    pattern: Array = generator.random(min(count, _PATTERN), dtype=dtype)
    pattern -= pattern.dtype.type(0.5)
    if count <= _PATTERN:
        return pattern.reshape(shape)
    array = np.empty(count, dtype=dtype)
    for start in range(0, count, _PATTERN):
        array[start : start + _PATTERN] = pattern[: count - start]
    return array.reshape(shape)


def relative_error(value: Number | Array, true: Number | Array, scale: float | None = None) -> float:
    """Return the largest difference over the largest true value, or over `scale`; inf if one is not a number."""
    wide = np.clongdouble if np.iscomplexobj(value) or np.iscomplexobj(true) else np.longdouble
    expected, got = np.asarray(true, dtype=wide), np.asarray(value, dtype=wide)
    if expected.shape != got.shape:
        return math.inf
    difference = np.max(np.abs(got - expected), initial=0)
    size = np.max(np.abs(expected), initial=0) if scale is None else scale
    error = float(difference / size) if size > 0 else float(difference)
    return error if math.isfinite(error) else math.inf


def _first_fitting(inputs: tuple[Value, ...], own: Array) -> Array:
    """Return the first input that can replace an array; real numbers can replace complex ones."""
    for value in inputs:
        if (
            isinstance(value, np.ndarray)
            and value.shape == own.shape
            and np.can_cast(value.dtype, own.dtype, "same_kind")
        ):
            return np.ascontiguousarray(value, dtype=own.dtype)
    return own
