"""Asynchronous all-reduces: one thread runs them in the order of their submission."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np

from dataplane.allreduce.engine import EngineSettings
from dataplane.allreduce.job_engine import JobEngine, Values
from dataplane.allreduce.submission_queue import SubmissionQueue
from dataplane.allreduce.turns import Poll
from dataplane.errors import AllReduceError

T = TypeVar("T")

LOGGER: Final = logging.getLogger("millrace.allreduce")

_REPORT_S: Final = 5.0
"""Time without a result after which the log says so."""
_KINDS: Final = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.int32))
_BFLOAT16: Final = np.dtype(np.uint16)


@dataclass(frozen=True, slots=True)
class _Submission:
    """Something submitted: an all-reduce, or another call of the engine's."""

    call: Callable[[], Any]
    future: Future[Any]


class AllReducer(JobEngine):
    """One worker of a job. All workers submit arrays of the same sizes and types in the same order."""

    def __init__(self, settings: EngineSettings) -> None:
        """Open the socket and start the thread; raises AllReduceError."""
        super().__init__(settings)
        self._queue: SubmissionQueue[_Submission] = SubmissionQueue(self.who)
        self._thread = threading.Thread(target=self._work, name=f"millrace-job-{settings.job}", daemon=True)
        self._thread.start()

    def all_reduce(
        self,
        values: Values,
        *,
        mean: bool = False,
        target: Values | None = None,
        bfloat16: bool = False,
        final: bool = False,
    ) -> Future[Values]:
        """Start adding up float32, float16, int32, or the bits of bfloat16 in uint16, over all workers.

        The sums go to `target`, which may be `values`, or to a new array; do not change the values until then. `final`
        sums also go to the main server (`Engine.read`). Raises AllReduceError for arrays that cannot be added up. Later
        failures set AllReduceError on this future and all that follow, except that SaturatedError concerns one
        all-reduce only. A future cannot be cancelled.
        """
        _check(values, mean=mean, bfloat16=bfloat16)
        chosen: Values = np.empty_like(values) if target is None else target
        _check_target(values, chosen)

        def add_up() -> Values:
            self.reduce(values, chosen, mean=mean, final=final, poll=self._reporting())
            return chosen

        return self.submit(add_up)

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Start another call of this engine, such as `receive`, in order with all-reduces; return its result."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        failure = self._queue.put(_Submission(call, future))
        if failure is not None:
            future.set_exception(self._turns.failure or failure)
        return future

    def retire(self) -> int:
        """Stop starting all-reduces, and fail all futures without a result."""
        item = super().retire()
        self._queue.close(AllReduceError(f"{self.who}: the all-reducer is closed"))
        self._thread.join()
        return item

    def _reporting(self) -> Poll:
        """Return a poll that says once that a result is late."""
        due_s = time.monotonic() + _REPORT_S

        def poll() -> None:
            nonlocal due_s
            if time.monotonic() >= due_s:
                due_s = math.inf
                LOGGER.warning("%s: all-reduce %d has had no result for %g s", self.who, self.begun, _REPORT_S)

        return poll

    def _work(self) -> None:
        while (submission := self._queue.first()) is not None:
            error: BaseException | None = None
            result = None
            try:
                result = submission.call()
            except Exception as failure:  # noqa: BLE001 - in any case: no caller may wait for a thread that ended
                error = failure
            self._queue.settle(submission)
            if error is None:
                submission.future.set_result(result)
            else:
                submission.future.set_exception(error)


def _check(values: Values, *, mean: bool, bfloat16: bool) -> None:
    if bfloat16 and values.dtype != _BFLOAT16:
        raise AllReduceError(f"bfloat16 values are passed as their bits in uint16, not as {values.dtype}")
    if not bfloat16 and values.dtype not in _KINDS:
        raise AllReduceError(f"{values.dtype} is not float32, float16, int32, or uint16 with the bits of bfloat16")
    if mean and values.dtype == np.int32:
        raise AllReduceError("integers have a sum but no mean")
    if not values.flags.c_contiguous:
        raise AllReduceError(f"an array of shape {values.shape} is not contiguous")


def _check_target(values: Values, target: Values) -> None:
    if target.dtype != values.dtype or target.shape != values.shape:
        raise AllReduceError(
            f"sums of {values.dtype} in shape {values.shape} do not fit a target of {target.dtype} in {target.shape}"
        )
    if not (target.flags.c_contiguous and target.flags.writeable):
        raise AllReduceError("where the sums go must be contiguous and writable")
