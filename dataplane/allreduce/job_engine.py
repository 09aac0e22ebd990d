"""A worker's engine in a job, paced by the job's service; 16-bit floats are widened and rounded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dataplane.allreduce import transfers
from dataplane.allreduce.engine import Engine, EngineSettings, EngineStatistics
from dataplane.allreduce.errors import SaturatedError
from dataplane.allreduce.half_precision import narrow, widen
from dataplane.allreduce.transfers import Bytes
from dataplane.allreduce.turns import Poll, Turns
from dataplane.clock import NS_PER_S
from dataplane.closing import Closing
from dataplane.errors import AllReduceError
from dataplane.wire.aggregation import Aggregation, age

Values = NDArray[Any]
T = TypeVar("T")


class JobEngine(Closing):
    """All-reduces of one worker of a job, each run by the only thread that calls `reduce`.

    All workers call it with arrays of the same sizes and types in the same order.
    """

    def __init__(self, settings: EngineSettings) -> None:
        """Open the transport; raises AllReduceError."""
        self._engine = Engine(settings)
        self._turns = Turns(f"job {settings.job}", settings.first_all_reduce)
        self._done_item = settings.first_item
        self._wide = np.empty(0, np.float32)
        self._is_closed = False
        self._relocation: EngineSettings | None = None

    @property
    def who(self) -> str:
        """Return the worker's name in messages."""
        return f"job {self._engine.settings.job}"

    @property
    def local_address(self) -> tuple[str, int]:
        """Return the address and UDP port that other programs know this worker by."""
        return self._engine.local_address

    @property
    def epoch(self) -> int:
        """Return the epoch that the worker is in."""
        return self._engine.epoch

    @property
    def begun(self) -> int:
        """Return the number of all-reduces the job has started, as counted by this worker."""
        return self._turns.begun

    @property
    def next_item(self) -> int:
        """Return the number that the next all-reduce begins with; meaningful while none is running."""
        return self._engine.next_item

    @property
    def statistics(self) -> EngineStatistics:
        """Return the current counters."""
        return self._engine.statistics

    @property
    def is_open(self) -> bool:
        """Return whether it can still send."""
        return not self._is_closed

    def recent(self, item: int) -> Aggregation | None:
        """Return the result of an item if it is recent; call it between all-reduces."""
        return self._engine.recent(item)

    def reduce(
        self, values: Values, target: Values, *, mean: bool = False, final: bool = False, poll: Poll | None = None
    ) -> None:
        """Write sums, or means of floats, over all workers to `target`, which may be `values`; waits while held.

        Both are contiguous, of the same size, and float32, float16, int32, or bits of bfloat16 in uint16; `final` sums
        also go to the main server. `poll` is called from time to time meanwhile. Raises AllReduceError, and whatever
        `poll` raises; so do all calls that follow, except that SaturatedError concerns one all-reduce only.
        """
        self._take_turn(lambda pause: self._add_up(values.reshape(-1), target.reshape(-1), mean, final, pause), poll)

    def receive(self, poll: Poll | None = None) -> Bytes:
        """Return what the job's main server distributes; all workers call it at the same place in their order.

        `poll` and errors: as with `reduce`.
        """
        return self._take_turn(lambda pause: transfers.receive(self._engine, pause), poll)

    def deliver(self, data: Bytes | None, givers: Sequence[bool], poll: Poll | None = None) -> None:
        """Send bytes to the job's main server; all workers call it at the same place in their order.

        `givers` are those who may give theirs, True for this worker. `poll` and errors: as with `reduce`.
        """
        self._take_turn(lambda pause: transfers.deliver(self._engine, data, givers, pause), poll)

    def distribute(self, data: Bytes, poll: Poll | None = None) -> None:
        """Send bytes, as the job's main server, to all workers, which `receive` them; return when they have them.

        Waits for the workers, calling `poll` meanwhile. Errors: as with `reduce`.
        """
        self._take_turn(lambda pause: transfers.distribute(self._engine, data, pause), self._following(poll))

    def take(self, givers: int, poll: Poll | None = None) -> Bytes:
        """Return, as the job's main server, what the workers deliver, of which so many may give theirs.

        Waits for the workers, calling `poll` meanwhile. Errors: as with `reduce`.
        """
        return self._take_turn(lambda pause: transfers.take(self._engine, givers, pause), self._following(poll))

    def _following(self, poll: Poll | None) -> Poll:
        """Return a poll that also takes the main server where its job has moved to, while it waits for the workers."""

        def follow() -> None:
            settings, self._relocation = self._relocation, None
            if settings is not None:
                self._engine.move(settings)
            if poll is not None:
                poll()

        follow()
        return follow

    def _take_turn(self, work: Callable[[Poll | None], T], poll: Poll | None) -> T:
        self._turns.begin(poll)
        pause = None if poll is None else partial(self._turns.pause, poll)
        try:
            result = work(pause)
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
        return result

    def hold(self, deadline_s: float = 60.0) -> int:
        """Stop starting all-reduces, and return how many were started since the job began.

        The patience with the switch is suspended meanwhile. Unless released within `deadline_s` (of the last call),
        everything without a result fails. Raises the error that this worker has failed with.
        """
        begun = self._turns.hold(deadline_s)
        self._engine.hold(time.monotonic_ns() + int(deadline_s * NS_PER_S))
        return begun

    def run_until(self, count: int) -> Future[int]:
        """Run until `count` all-reduces have started; once they are done, the result is the next one's first item.

        Call it between `hold` and `release`, else it raises AllReduceError. Failures, an overdue hold among them, set
        AllReduceError on the future.
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
        """Continue after `hold`, in this epoch and with this many contributors if it is newer.

        An aggregator or a number, with its nonce, means that the job has moved there and starts in that epoch, whatever
        it was before. That is possible once everything started is done (`run_until`); raises AllReduceError.
        """
        if aggregator is not None or job is not None:
            self._move(self._moved(epoch, contributors, aggregator, job, nonce))
        elif epoch is not None:
            self._engine.set_epoch(epoch, contributors)
        self._engine.hold(0)
        self._turns.release()

    def relocate(self, epoch: int, contributors: int, aggregator: str, job: int, nonce: int) -> None:
        """Continue elsewhere, as the job's main server: at its next transfer, or in one that waits for the workers."""
        self._relocation = self._moved(epoch, contributors, aggregator, job, nonce)

    def _moved(
        self, epoch: int | None, contributors: int | None, aggregator: str | None, job: int | None, nonce: int | None
    ) -> EngineSettings:
        settings = self._engine.settings
        return replace(
            settings,
            aggregator=settings.aggregator if aggregator is None else aggregator,
            job=settings.job if job is None else job,
            nonce=settings.nonce if nonce is None else nonce,
            epoch=self._engine.epoch if epoch is None else epoch,
            contributors=contributors,
        )

    def set_epoch(self, epoch: int, contributors: int | None = None) -> None:
        """Continue in this epoch if it is newer, even in the middle of an all-reduce: membership has changed.

        `contributors` is the number of its members, if known.
        """
        self._engine.set_epoch(epoch, contributors)

    def fail(self, error: AllReduceError) -> None:
        """Soon fail everything without a result, and all that follows, with this error; callable from any thread."""
        self._turns.fail(error)
        self._engine.stop()

    def when_complete(self, item: int, on_done: Callable[[], None]) -> None:
        """Call `on_done`, in any thread, once all results before an item exist, or no more will come."""
        self._turns.when(lambda: age(self._done_item, than=item) >= 0, lambda _: on_done())

    def retire(self) -> int:
        """Stop: all-reduces without a result fail; return the item before which all results exist."""
        self.fail(AllReduceError(f"{self.who}: the all-reducer is closed"))
        self._turns.wait_until_idle()
        return self._done_item

    def offer_again(self) -> None:
        """Resend some items that others may still need, different ones each time; call between `retire` and `close`."""
        self._engine.offer_again(self._done_item)

    def close(self) -> None:
        """Stop: all-reduces without a result fail. Idempotent."""
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
            raise AllReduceError(f"{self.who}: it can only be moved while it is held and everything started is done")
        self._engine.move(settings)
