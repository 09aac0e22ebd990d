"""All-reduces that the caller does not wait for: one thread carries them out in the order of their submission."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from dataplane.allreduce.engine import Engine, EngineSettings, EngineStatistics
from dataplane.allreduce.errors import SaturatedError
from dataplane.allreduce.half_precision import from_bfloat16, to_bfloat16, to_float16
from dataplane.allreduce.submission_queue import Line
from dataplane.errors import AllReduceError
from dataplane.wire.aggregation import Aggregation, age

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
    final: bool
    future: Future[Values]


class AllReducer:
    """One worker of a job. All workers submit arrays of the same sizes and types in the same order."""

    def __init__(self, settings: EngineSettings) -> None:
        """Open the socket and start the thread; raises AllReduceError."""
        self._engine = Engine(settings)
        self._line: Line[_Wanted] = Line(f"job {settings.job}", settings.first_all_reduce)
        self._done_item = settings.first_item
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=f"millrace-job-{settings.job}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _who(self) -> str:
        return f"job {self._engine.settings.job}"

    @property
    def local_address(self) -> tuple[str, int]:
        """Return the address and UDP port that this worker is known by."""
        return self._engine.local_address

    @property
    def epoch(self) -> int:
        """Return the epoch that the worker is in."""
        return self._engine.epoch

    @property
    def begun(self) -> int:
        """Return how many all-reduces the job has begun, as this worker counts them."""
        return self._line.begun

    @property
    def next_item(self) -> int:
        """Return the number that the next all-reduce begins with; of use while none is going on."""
        return self._engine.next_item

    @property
    def statistics(self) -> EngineStatistics:
        """Return the counters as they stand."""
        return self._engine.statistics

    def recent(self, item: int) -> Aggregation | None:
        """Return the result of an item if it is one of the last; to be asked when the thread has nothing to do."""
        return self._engine.recent(item)

    def all_reduce(
        self,
        values: Values,
        *,
        mean: bool = False,
        target: Values | None = None,
        bfloat16: bool = False,
        final: bool = False,
    ) -> Future[Values]:
        """Begin to add up float32, float16, int32, or the bits of bfloat16 in uint16, over all workers.

        The sums go to `target`, which may be `values`, or to a new array; the values stay as they are until then.
        `final` sums go to the main server as well (`Engine.read`).
        Raises AllReduceError for arrays that cannot be added up. What fails later fails with AllReduceError, and so do
        all that follow, except that SaturatedError concerns one all-reduce only. A future cannot be cancelled.
        """
        _check(values, mean=mean, bfloat16=bfloat16)
        chosen: Values = np.empty_like(values) if target is None else target
        _check_target(values, chosen)
        future: Future[Values] = Future()
        future.set_running_or_notify_cancel()
        failure = self._line.put(_Wanted(values, chosen, mean, bfloat16, final, future))
        if failure is not None:
            future.set_exception(failure)
        return future

    def hold(self, deadline_s: float = 60.0) -> int:
        """Begin no more all-reduces, whoever asks for them, and return how many were begun since the job began.

        The patience with the switch does not run out meanwhile. Not released for `deadline_s` (from the last call
        on), all that has no result fails. Raises what this worker has failed with.
        """
        begun = self._line.hold(deadline_s)
        self._engine.hold(time.monotonic_ns() + int(deadline_s * 1e9))
        return begun

    def run_until(self, count: int) -> Future[int]:
        """Let so many all-reduces begin in all; the result is the next one's first item, once they are done.

        To be called between `hold` and `release`, else it raises AllReduceError. What fails, also because the hold is
        overdue, fails with AllReduceError.
        """
        future: Future[int] = Future()
        future.set_running_or_notify_cancel()

        def then(error: AllReduceError | None) -> None:
            if error is None:
                future.set_result(self._engine.next_item)
            else:
                future.set_exception(error)

        self._line.run_until(count, then)
        return future

    def release(self, epoch: int | None = None, *, aggregator: str | None = None, job: int | None = None) -> None:
        """Go on after `hold`, in this epoch if it is newer.

        With an aggregator or a number the job has moved there, and begins with that epoch, whatever it was before.
        That is possible once what was begun is done (`run_until`); raises AllReduceError.
        """
        if aggregator is not None or job is not None:
            self._move(epoch, aggregator, job)
        elif epoch is not None:
            self._engine.set_epoch(epoch)
        self._engine.hold(0)
        self._line.release()

    def _move(self, epoch: int | None, aggregator: str | None, job: int | None) -> None:
        if not self._line.is_quiet:
            raise AllReduceError(f"{self._who}: it can only be moved while it is held and all that was begun is done")
        settings = self._engine.settings
        self._engine.move(
            settings.aggregator if aggregator is None else aggregator,
            settings.job if job is None else job,
            self._engine.epoch if epoch is None else epoch,
        )

    def set_epoch(self, epoch: int) -> None:
        """Go on in this epoch if it is newer, also in the middle of an all-reduce: membership has changed."""
        self._engine.set_epoch(epoch)

    def fail(self, error: AllReduceError) -> None:
        """Have all that has no result, and all that follows, fail with this error; soon, from any thread."""
        self._line.fail(error)
        self._engine.stop()

    def say_when_past(self, item: int, then: Callable[[], None]) -> None:
        """Call `then`, in whatever thread, once there are all results before an item, or nothing more is to come."""
        self._line.when(lambda: age(self._done_item, than=item) >= 0, lambda _: then())

    def retire(self) -> int:
        """Begin nothing more: all-reduces without a result fail; return the item before which there are all results."""
        self.fail(AllReduceError(f"{self._who}: the all-reducer is closed"))
        self._thread.join()
        return self._done_item

    @property
    def is_open(self) -> bool:
        """Return whether it can still send."""
        return not self._is_closed

    def offer_again(self) -> None:
        """Send some of what others may still need, each time other items; to be called between `retire` and `close`."""
        self._engine.offer_again(self._done_item)

    def close(self) -> None:
        """Stop: all-reduces without a result fail. May be called again."""
        self.retire()
        if not self._is_closed:
            self._is_closed = True
            self._engine.close()

    def _work(self) -> None:
        while (wanted := self._line.take()) is not None:
            try:
                self._reduce(wanted)
            except SaturatedError as error:
                self._finish()
                wanted.future.set_exception(error)
            except AllReduceError as error:
                self._line.fail(error)
                wanted.future.set_exception(self._line.failure)
            except Exception as error:  # noqa: BLE001 - whatever it is: nobody may wait for a thread that has ended
                self._line.fail(AllReduceError(f"{self._who}: {error!r}"))
                wanted.future.set_exception(error)
            else:
                self._finish()
                wanted.future.set_result(wanted.target)

    def _finish(self) -> None:
        self._done_item = self._engine.next_item
        self._line.finish()

    def _reduce(self, wanted: _Wanted) -> None:
        if self._line.failure is not None:
            raise self._line.failure
        values, target = wanted.values.reshape(-1), wanted.target.reshape(-1)
        if wanted.bfloat16:
            wide = from_bfloat16(values)
            self._engine.all_reduce(wide, wide, mean=wanted.mean, final=wanted.final)
            target[:] = to_bfloat16(wide)
        elif values.dtype == np.float16:
            wide = values.astype(np.float32)
            self._engine.all_reduce(wide, wide, mean=wanted.mean, final=wanted.final)
            target[:] = to_float16(wide)
        else:
            self._engine.all_reduce(values, target, mean=wanted.mean, final=wanted.final)


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
