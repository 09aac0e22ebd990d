"""What adds up vectors over all workers of a job, as the PyTorch hook sees it."""

from __future__ import annotations

import concurrent.futures
from typing import Any, Protocol

from numpy.typing import NDArray


class Reducer(Protocol):
    """Adds up vectors; all workers give the same lengths in the same order, and get the same results to the bit."""

    def all_reduce(self, values: NDArray[Any], *, mean: bool) -> concurrent.futures.Future[NDArray[Any]]:
        """Begin to add up float32 or int32, which must stay as they are until there is a result; never wait.

        A mean is over those whose values are in it. What fails, fails with AllReduceError; SaturatedError is the
        result where a sum has left int32, the same at all workers, and the reducer goes on.
        """
        ...

    def close(self) -> None:
        """Send no more; all-reduces without a result fail. May be called again."""
        ...
