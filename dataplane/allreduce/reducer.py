"""What adds up vectors over all workers of a job, as the PyTorch hook sees it."""

from __future__ import annotations

import concurrent.futures
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Reducer(Protocol):
    """Adds up vectors; all workers give the same lengths in the same order, and get the same results to the bit."""

    def all_reduce(self, values: NDArray[np.float32], *, mean: bool) -> concurrent.futures.Future[NDArray[np.float32]]:
        """Begin to add up `values`, which must stay as they are until there is a result; never wait.

        A mean is over those whose values are in it. What fails, fails with AllReduceError.
        """
        ...

    def close(self) -> None:
        """Send no more; all-reduces without a result fail. May be called again."""
        ...
