"""A use of a kernel that is ready to run: its data, its inputs, its last output, and the mean of its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controller.probing.kernels.base import Mean, Value
from controller.probing.kernels.loading import prepare
from controller.probing.values import KernelUse

Inputs = tuple[Value, ...]


class Ready:
    """A use in one process. `run` is timed; `settle` follows each run, and is not."""

    def __init__(self, use: KernelUse, sizes: Mapping[str, int], seed: int, *, is_read: bool) -> None:
        name = f"{use.kernel}.{use.version}"
        self._kernel = prepare(name, use.implementation, dict(sizes), seed)
        self._is_read = is_read
        self._inputs: Inputs = ()
        self._output: Any = None
        self._mean = Mean()

    def begin(self, inputs: Inputs) -> None:
        """Take the inputs of the repetitions to come."""
        self._inputs, self._mean = inputs, Mean()

    def run(self) -> None:
        """Run the kernel once."""
        self._output = self._kernel.run(self._inputs)

    def settle(self, *, is_checked: bool) -> float:
        """Add the last output to the mean, if somebody reads that; return its relative error, 0 if not checked."""
        if self._is_read:
            self._mean.add(self._output)
        return self._kernel.accuracy(self._output) if is_checked else 0.0

    def mean(self) -> Value:
        """Return the mean of all outputs since `begin`."""
        return self._mean.value

    def figures(self) -> dict[str, float]:
        """Return the kernel's other figures of its last run: bytes per second, hits, whatever it measures."""
        told = getattr(self._kernel, "figures", None)
        return {} if told is None else {str(name): float(value) for name, value in told().items()}

    def end(self) -> None:
        """Drop the last output."""
        self._output = None

    def close(self) -> None:
        """Remove what the runs have left."""
        self._kernel.close()
