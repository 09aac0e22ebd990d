"""All-reduces that the caller does not wait for: one thread carries them out in the order of their submission."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from dataplane.allreduce.engine import Engine, EngineSettings, EngineStatistics
from dataplane.allreduce.errors import SaturatedError
from dataplane.allreduce.narrow import from_bfloat16, to_bfloat16, to_float16
from dataplane.errors import AllReduceError
from dataplane.wire.aggregation import Aggregation

Values = NDArray[Any]
_KINDS: Final = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.int32))
_BFLOAT16: Final = np.dtype(np.uint16)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What was submitted."""

    values: Values
    target: Values
    mean: bool
    bfloat16: bool
    future: Future[Values]


class AllReducer:
    """One worker of a job. All workers submit arrays of the same sizes and types in the same order."""

    def __init__(self, settings: EngineSettings) -> None:
        """Open the socket and start the thread; raises AllReduceError."""
        self._engine = Engine(settings)
        self._wanted: queue.SimpleQueue[_Wanted | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._failure: AllReduceError | None = None
        self._thread = threading.Thread(target=self._work, name=f"millrace-job-{settings.job}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def local_address(self) -> tuple[str, int]:
        """Return the address and UDP port that this worker is known by."""
        return self._engine.local_address

    @property
    def epoch(self) -> int:
        """Return the epoch that the worker is in."""
        return self._engine.epoch

    @property
    def statistics(self) -> EngineStatistics:
        """Return the counters as they stand."""
        return self._engine.statistics

    def recent(self, item: int) -> Aggregation | None:
        """Return the result of an item if it is one of the last; to be asked when the thread has nothing to do."""
        return self._engine.recent(item)

    def all_reduce(
        self, values: Values, *, mean: bool = False, target: Values | None = None, bfloat16: bool = False
    ) -> Future[Values]:
        """Begin to add up float32, float16, int32, or the bits of bfloat16 in uint16, over all workers.

        The sums go to `target`, which may be `values`, or to a new array; the values stay as they are until then.
        Raises AllReduceError for arrays that cannot be added up. What fails later fails with AllReduceError, and so do
        all that follow, except that SaturatedError concerns one all-reduce only. A future cannot be cancelled.
        """
        _check(values, mean=mean, bfloat16=bfloat16)
        chosen: Values = np.empty_like(values) if target is None else target
        _check_target(values, chosen)
        future: Future[Values] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._failure is None:
                self._wanted.put(_Wanted(values, chosen, mean, bfloat16, future))
                return future
        future.set_exception(self._failure)
        return future

    def close(self) -> None:
        """Stop: all-reduces without a result fail."""
        self._fail(AllReduceError(f"job {self._engine.settings.job}: the all-reducer is closed"))
        self._engine.stop()
        self._thread.join()
        self._engine.close()

    def _fail(self, error: AllReduceError) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = error
                self._wanted.put(None)

    def _work(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            try:
                self._reduce(wanted)
            except SaturatedError as error:
                wanted.future.set_exception(error)
            except AllReduceError as error:
                self._fail(error)
                wanted.future.set_exception(error)
            except Exception as error:  # noqa: BLE001 - whatever it is: nobody may wait for a thread that has ended
                self._fail(AllReduceError(f"job {self._engine.settings.job}: {error!r}"))
                wanted.future.set_exception(error)
            else:
                wanted.future.set_result(wanted.target)

    def _reduce(self, wanted: _Wanted) -> None:
        if self._failure is not None:
            raise self._failure
        values, target = wanted.values.reshape(-1), wanted.target.reshape(-1)
        if wanted.bfloat16:
            wide = from_bfloat16(values)
            self._engine.all_reduce(wide, wide, mean=wanted.mean)
            target[:] = to_bfloat16(wide)
        elif values.dtype == np.float16:
            wide = values.astype(np.float32)
            self._engine.all_reduce(wide, wide, mean=wanted.mean)
            target[:] = to_float16(wide)
        else:
            self._engine.all_reduce(values, target, mean=wanted.mean)


def _check(values: Values, *, mean: bool, bfloat16: bool) -> None:
    if bfloat16 and values.dtype != _BFLOAT16:
        raise AllReduceError(f"bfloat16 values come as their bits in uint16, not as {values.dtype}")
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
