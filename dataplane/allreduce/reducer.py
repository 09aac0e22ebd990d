"""What adds up vectors over all workers of a job, as the PyTorch hook sees it."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from dataplane.allreduce.turns import Poll


class Reducer(Protocol):
    """Adds up vectors; all workers give the same lengths in the same order, and get the same results to the bit."""

    def reduce(
        self, values: NDArray[Any], target: NDArray[Any], *, mean: bool, final: bool = False, poll: Poll | None = None
    ) -> None:
        """Write the sums of float32, float16, int32, or bits of bfloat16 in uint16, to `target`.

        A mean is over those whose values are in it. Calls `poll` from time to time while it waits. What fails, fails
        with AllReduceError; SaturatedError is raised where a sum has left int32, the same at all workers, and the
        reducer continues. What `poll` raises ends it.
        """
        ...

    def close(self) -> None:
        """Send no more; have `reduce` of another thread fail. May be called again."""
        ...
