"""Reducer of vectors over all workers of a job, as the PyTorch hook sees it."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from dataplane.allreduce.turns import Poll


class Reducer(Protocol):
    """Adds up vectors; all workers give the same lengths in the same order, and get bit-identical results."""

    def reduce(
        self, values: NDArray[Any], target: NDArray[Any], *, mean: bool, final: bool = False, poll: Poll | None = None
    ) -> None:
        """Write the sums of float32, float16, int32, or bits of bfloat16 in uint16, to `target`.

        A mean is over the workers whose values it includes. Calls `poll` from time to time while it waits. Failures
        raise AllReduceError; SaturatedError is raised if a sum has overflowed int32, at all workers alike, and the
        reducer continues. An exception from `poll` ends it.
        """
        ...

    def close(self) -> None:
        """Stop sending, and make `reduce` in another thread fail. Idempotent."""
        ...
