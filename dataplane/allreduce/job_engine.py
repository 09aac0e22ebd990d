"""A worker's engine in a job: the job's service says when all-reduces begin; 16-bit floats are widened and rounded."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataplane.allreduce.engine import Engine, EngineSettings, EngineStatistics
from dataplane.allreduce.errors import SaturatedError
from dataplane.allreduce.half_precision import narrow, widen
from dataplane.allreduce.turns import Poll, Turns
from dataplane.closing import Closing
from dataplane.errors import AllReduceError
from dataplane.wire.aggregation import Aggregation, age

Values = NDArray[Any]


class JobEngine(Closing):
    """All-reduces of one worker of a job, each carried out by the one thread that calls `reduce`.

    All workers call it with arrays of the same sizes and types in the same order.
    """

    def __init__(self, settings: EngineSettings) -> None:
        """Open what carries packets; raises AllReduceError."""
        self._engine = Engine(settings)
        self._turns = Turns(f"job {settings.job}", settings.first_all_reduce)
        self._done_item = settings.first_item
        self._wide = np.empty(0, np.float32)
        self._is_closed = False

    @property
    def who(self) -> str:
        """Return what messages call it."""
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
        return self._turns.begun

    @property
    def next_item(self) -> int:
        """Return the number that the next all-reduce begins with; of use while none is going on."""
        return self._engine.next_item

    @property
    def statistics(self) -> EngineStatistics:
        """Return the counters as they stand."""
        return self._engine.statistics

    @property
    def is_open(self) -> bool:
        """Return whether it can still send."""
        return not self._is_closed

    def recent(self, item: int) -> Aggregation | None:
        """Return the result of an item if it is one of the last; to be asked when no all-reduce is going on."""
        return self._engine.recent(item)

    def reduce(
        self, values: Values, target: Values, *, mean: bool = False, final: bool = False, poll: Poll | None = None
    ) -> None:
        """Write sums, or means of floats, over all workers to `target`, which may be `values`; not while it is held.

        Both are contiguous, of one size, and float32, float16, int32, or bits of bfloat16 in uint16; `final` sums go
        to the main server as well. `poll` is called from time to time meanwhile. Raises AllReduceError, and whatever
        `poll` raises; so do all calls that follow, except that SaturatedError concerns one all-reduce only.
        """
        self._turns.begin(poll)
        pause = None if poll is None else partial(self._turns.pause, poll)
        try:
            self._add_up(values.reshape(-1), target.reshape(-1), mean, final, pause)
        except SaturatedError:
            self._finish()
            raise
        except AllReduceError as error:
            self._turns.abort(error)
            raise self._turns.failure or error from None
        except BaseException as error:
            self._turns.abort(AllReduceError(f"{self.who}: {error!r}"))
            raise
        self._finish()

    def hold(self, deadline_s: float = 60.0) -> int:
        """Begin no more all-reduces, and return how many were begun since the job began.

        The patience with the switch does not run out meanwhile. Not released for `deadline_s` (from the last call
        on), all that has no result fails. Raises what this worker has failed with.
        """
        begun = self._turns.hold(deadline_s)
        self._engine.hold(time.monotonic_ns() + int(deadline_s * 1e9))
        return begun

    def run_until(self, count: int) -> Future[int]:
        """Let so many all-reduces begin in all; the result is the next one's first item, once they are done.

        To be called between `hold` and `release`, else it raises AllReduceError. What fails, also because the hold is
        overdue, fails with AllReduceError.
        """
        future: Future[int] = Future()
        future.set_running_or_notify_cancel()

        def on_done(error: AllReduceError | None) -> None:
            if error is None:
                future.set_result(self._engine.next_item)
            else:
                future.set_exception(error)

        self._turns.run_until(count, on_done)
        return future

    def release(
        self,
        epoch: int | None = None,
        contributors: int | None = None,
        *,
        aggregator: str | None = None,
        job: int | None = None,
        nonce: int | None = None,
    ) -> None:
        """Continue after `hold`, in this epoch if it is newer, in which so many contribute.

        With an aggregator or a number, and its nonce, the job has moved there, and begins with that epoch, whatever it
        was before. That is possible once what was begun is done (`run_until`); raises AllReduceError.
        """
        if aggregator is not None or job is not None:
            settings = self._engine.settings
            moved = replace(
                settings,
                aggregator=settings.aggregator if aggregator is None else aggregator,
                job=settings.job if job is None else job,
                nonce=settings.nonce if nonce is None else nonce,
                epoch=self._engine.epoch if epoch is None else epoch,
                contributors=contributors,
            )
            self._move(moved)
        elif epoch is not None:
            self._engine.set_epoch(epoch, contributors)
        self._engine.hold(0)
        self._turns.release()

    def set_epoch(self, epoch: int, contributors: int | None = None) -> None:
        """Continue in this epoch if it is newer, also in the middle of an all-reduce: membership has changed.

        `contributors` is how many are members in it, if that is known.
        """
        self._engine.set_epoch(epoch, contributors)

    def fail(self, error: AllReduceError) -> None:
        """Have all that has no result, and all that follows, fail with this error; soon, from any thread."""
        self._turns.fail(error)
        self._engine.stop()

    def when_complete(self, item: int, on_done: Callable[[], None]) -> None:
        """Call `on_done`, in whatever thread, once there are all results before an item, or nothing more is to come."""
        self._turns.when(lambda: age(self._done_item, than=item) >= 0, lambda _: on_done())

    def retire(self) -> int:
        """Begin nothing more: all-reduces without a result fail; return the item before which there are all results."""
        self.fail(AllReduceError(f"{self.who}: the all-reducer is closed"))
        self._turns.wait_until_idle()
        return self._done_item

    def offer_again(self) -> None:
        """Send some of what others may still need, each time other items; to be called between `retire` and `close`."""
        self._engine.offer_again(self._done_item)

    def close(self) -> None:
        """Stop: all-reduces without a result fail. May be called again."""
        self.retire()
        if not self._is_closed:
            self._is_closed = True
            self._engine.close()

    def _add_up(self, values: Values, target: Values, mean: bool, final: bool, poll: Poll | None) -> None:
        if values.dtype.itemsize != 2:
            self._engine.all_reduce(values, target, mean=mean, final=final, poll=poll)
            return
        if self._wide.size < values.size:
            self._wide = np.empty(values.size, np.float32)
        wide = self._wide[: values.size]
        widen(values, wide)
        self._engine.all_reduce(wide, wide, mean=mean, final=final, poll=poll)
        narrow(wide, target)

    def _finish(self) -> None:
        self._done_item = self._engine.next_item
        self._turns.finish()

    def _move(self, settings: EngineSettings) -> None:
        if not self._turns.is_drained:
            raise AllReduceError(f"{self.who}: it can only be moved while it is held and all that was begun is done")
        self._engine.move(settings)
