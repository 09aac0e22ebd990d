"""Collectives under way, as PyTorch waits for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from dataplane.errors import AllReduceError

Future: TypeAlias = torch.futures.Future[Any]
"""A future of tensors in whatever lists the collective has them."""
_NO_TIMEOUT = timedelta()


class CollectiveWork(dist.Work):  # type: ignore[misc]
    """A collective under way; its future has the output tensors, which `finish` fills in from the sums."""

    def __init__(self, sums: Future, finish: Callable[[torch.Tensor], None], outputs: object) -> None:
        super().__init__()
        self._finish, self._outputs = finish, outputs
        self._error: AllReduceError | None = None
        self._future = sums.then(self._done)

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:  # noqa: ARG002 - PyTorch's interface
        """Wait for the outputs; raise the collective's AllReduceError. The state's `deadline_s` bounds it."""
        try:
            self._future.wait()
        except RuntimeError as error:  # PyTorch's, which has the text of the error only
            raise self._error or error from None
        return True

    def is_completed(self) -> bool:
        """Return whether there is a result, or a failure."""
        return bool(self._future.done())

    def get_future(self) -> Future:
        """Return the future of the outputs."""
        return self._future

    def _done(self, sums: Future) -> object:
        try:
            self._finish(sums.value())
        except AllReduceError as error:
            self._error = error
            raise
        return self._outputs


class CollectiveWorks(dist.Work):  # type: ignore[misc]
    """Several collectives under way; the future has the outputs of all."""

    def __init__(self, works: Sequence[dist.Work]) -> None:
        super().__init__()
        self._works = works
        everything = torch.futures.collect_all([work.get_future() for work in works])
        self._future = everything.then(lambda futures: [output for each in futures.value() for output in each.value()])

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:  # noqa: ARG002 - PyTorch's interface
        """Wait for all; raise the error of the first that failed."""
        for work in self._works:
            work.wait()
        self._future.wait()
        return True

    def is_completed(self) -> bool:
        """Return whether all have ended."""
        return bool(self._future.done())

    def get_future(self) -> Future:
        """Return the future of all outputs."""
        return self._future
