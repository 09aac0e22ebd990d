"""All-reduces of tensors in order: by the switch as long as it works, then by gloo's ring, until all can return.

One thread runs them, each by the switch until there is a result, before the next one starts. A worker with the result
of n knows that every worker has started n, so has the results up to n - 1. Each keeps its last result: when the workers
leave the switch, none is more than one result ahead of another, and those behind get it from one that is ahead. So a
result that one worker trains on reaches all; one that none has is added up by the ring from the values that are still
in the buckets.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

import torch

from dataplane.allreduce.errors import RemovedError, SaturatedError
from dataplane.allreduce.submission_queue import SubmissionQueue
from dataplane.allreduce.torch.agreement import Agreement, listed
from dataplane.allreduce.torch.flight_recorder import Call, FlightRecorder
from dataplane.allreduce.torch.job_membership import JobMember
from dataplane.allreduce.torch.reducer import Reducer
from dataplane.allreduce.torch.results import BEYOND, SpareTensors, as_array, carried, carrier, is_beyond
from dataplane.allreduce.torch.returning import LEAD, Returning
from dataplane.allreduce.torch.ring import Ring, Started
from dataplane.allreduce.torch.staging import back, on_host
from dataplane.allreduce.turns import POLL_S, Poll
from dataplane.clock import NS_PER_S, Clock
from dataplane.errors import AllReduceError

logger = logging.getLogger("millrace.allreduce")

_ABANDON_S: Final = 2.0
"""Maximum wait for the thread when abandoning."""
_REPORT_S: Final = 5.0
"""Time without a result after which the log says so, and the flight record is written."""


class _CalledError(AllReduceError):
    """Another worker has left the switch."""


@dataclass(frozen=True, slots=True)
class _Submission:
    """A tensor to be added up; `values` are a private copy on the host, unchanged until there is a result."""

    number: int
    tensor: torch.Tensor
    values: torch.Tensor
    mean: bool
    future: torch.futures.Future[torch.Tensor]
    call: Call


@dataclass(frozen=True, slots=True)
class _Transfer:
    """A transfer from or to the job's main server, which no ring can take over."""

    number: int
    call: Callable[[Poll], bytes]
    future: Future[bytes]


class OrderedAllReduces:
    """Runs all-reduces and transfers in the order of their submission; only its thread uses the reducer.

    `on_mean` gets each tensor that a mean was asked for, and the mean; `on_leave` is called once the switch is left,
    `on_return` with the membership when it is used again.
    """

    def __init__(
        self,
        reducer: Reducer | None,
        agreement: Agreement | None,
        flight_recorder: FlightRecorder,
        *,
        reason: str,
        deadline_s: float,
        clock: Clock,
        on_mean: Callable[[torch.Tensor, torch.Tensor], None],
        on_leave: Callable[[], None],
        on_return: Callable[[JobMember], None],
        returning: Returning | None = None,
    ) -> None:
        """Start; `reason` is why there is no reducer, `deadline_s` bounds each wait for a result.

        Without `returning` the workers stay on the ring.
        """
        self._reducer, self._agreement, self._flight_recorder = reducer, agreement, flight_recorder
        self._reason, self._deadline_s, self._clock = reason, deadline_s, clock
        self._on_mean, self._on_leave, self._on_return = on_mean, on_leave, on_return
        self._returning = returning
        self._ring: Ring | None = None
        self.is_leaving = False
        """True while the workers agree to leave the switch."""
        self._submitting = threading.Lock()
        self._submitted = self._settled = 0
        self._polled_ns = 0
        self._reported = -1
        self._queue: SubmissionQueue[_Submission | _Transfer] = SubmissionQueue("PyTorch's all-reduces")
        self._spare = SpareTensors()
        self._last: torch.Tensor | None = None
        self._thread = threading.Thread(target=self._run, name="millrace-allreduce", daemon=True)
        self._thread.start()

    @property
    def is_by_ring(self) -> bool:
        """True if gloo's ring adds up."""
        return self._ring is not None

    def add_up(
        self, tensor: torch.Tensor, *, mean: bool, future: torch.futures.Future[torch.Tensor], call: Call
    ) -> None:
        """Add a tensor up over all workers, in place unless it is sparse; `future` gets it, or an error."""
        values = on_host(tensor)
        with self._submitting:
            submission = _Submission(self._submitted, tensor, values, mean, future, call)
            self._flight_recorder.scheduled(submission.number, submission.call)
            failure = self._queue.put(submission)
            self._submitted += failure is None
        if failure is not None:
            future.set_exception(failure)

    def transfer(self, call: Callable[[Poll], bytes]) -> Future[bytes]:
        """Run a transfer, which calls what it is given while it waits; raise AllReduceError once closed."""
        future: Future[bytes] = Future()
        with self._submitting:
            transfer = _Transfer(self._submitted, call, future)
            failure = self._queue.put(transfer)
            self._submitted += failure is None
        if failure is not None:
            raise failure
        return future

    def close(self) -> None:
        """Finish what was started."""
        self._queue.close(AllReduceError("the state is closed"))
        self._thread.join()
        self._stop_returning()

    def abandon(self) -> None:
        """End without finishing: all-reduces without a result fail."""
        self._fail(AllReduceError("the state was closed before there was a result"))
        self._thread.join(_ABANDON_S)
        self._stop_returning()

    def _stop_returning(self) -> None:
        if self._returning is not None:
            self._returning.stop()

    def _run(self) -> None:
        try:
            while True:
                self._add_up_by_switch()
                if self._ring is None:
                    return
                self._add_up_by_ring()
                if self._ring is not None:
                    return
        except AllReduceError as error:
            self._fail(error)
        except Exception as error:  # whatever it is: no caller may wait for a thread that has ended
            logger.exception("all-reduce %d", self._settled)
            self._fail(AllReduceError(f"all-reduce {self._settled}: {error!r}"))

    def _add_up_by_switch(self) -> None:
        """Add up until all is done or the switch is left, watching also while idle."""
        while self._ring is None:
            submission = self._queue.first(POLL_S)
            if self._queue.is_over():
                return
            try:
                self._poll()
                if isinstance(submission, _Transfer):
                    self._carry_out(submission)
                elif submission is not None:
                    self._finish(submission, self._sums(submission))
            except RemovedError:
                raise
            except AllReduceError as error:
                if self._queue.is_over():
                    return
                self._leave(error)

    def _carry_out(self, transfer: _Transfer) -> None:
        """Run a transfer; without it, no worker continues."""
        try:
            result = transfer.call(self._poll)
        except AllReduceError as error:
            if not self._queue.is_over():
                self._fail(error)
            return
        if self._queue.settle(transfer):
            self._settled += 1
            transfer.future.set_result(result)

    def _sums(self, submission: _Submission) -> torch.Tensor:
        """Return the switch's sums, in the tensor's format."""
        if self._reducer is None:
            raise AllReduceError(self._reason)
        begun_ns = self._clock.now_ns()
        until_ns = begun_ns + int(self._deadline_s * NS_PER_S)
        self._flight_recorder.started(submission.number)

        def poll() -> None:
            now_ns = self._clock.now_ns()
            if now_ns >= until_ns:
                raise AllReduceError(
                    f"waited {self._deadline_s:g} s for the switch's result of all-reduce {submission.number}"
                )
            if now_ns >= begun_ns + int(_REPORT_S * NS_PER_S):
                self._report(submission)
            self._poll()

        values = submission.values.reshape(-1)
        sums = self._spare.take(values)
        try:
            self._reducer.reduce(as_array(values), as_array(sums), mean=submission.mean, poll=poll)
        except SaturatedError:
            return torch.full((values.numel(),), BEYOND)
        return sums

    def _poll(self) -> None:
        """Raise _CalledError if another worker has left the switch, even if results still arrive.

        Some results may arrive without that worker.
        """
        now_ns = self._clock.now_ns()
        if self._agreement is None or now_ns < self._polled_ns + int(POLL_S * NS_PER_S):
            return
        self._polled_ns = now_ns
        called = self._agreement.called()
        if called is not None:
            raise _CalledError(called)
        asked = self._agreement.asked_for_record(self._reported)
        if asked is not None:
            self._write_record(asked)

    def _report(self, submission: _Submission) -> None:
        """Say once that a result is late, and have all workers write their flight records."""
        if submission.number <= self._reported:
            return
        logger.warning("all-reduce %d (%s) has had no result for %g s", submission.number, submission.call, _REPORT_S)
        if self._agreement is not None:
            self._agreement.ask_for_record(submission.number)
        self._write_record(submission.number)

    def _write_record(self, number: int) -> None:
        self._reported = number
        try:
            path = self._flight_recorder.write()
        except OSError as error:
            logger.warning("flight record: %s", error)
            return
        if path is not None:
            logger.warning("flight record %s: written for all-reduce %d", path, number)

    def _add_up_by_ring(self) -> None:
        started: deque[Started] = deque()
        while self._ring is not None and (submission := self._queue.first()) is not None:
            if not started and self._is_return_due(submission.number):
                self._return(submission.number)
                return
            if isinstance(submission, _Transfer):
                raise AllReduceError(f"all-reduce {submission.number}: gloo's ring cannot reach the main server")
            ahead = itertools.takewhile(lambda each: isinstance(each, _Submission), self._queue.ahead(LEAD))
            for each in list(ahead)[len(started) :]:
                assert isinstance(each, _Submission)
                if started and self._is_return_due(each.number):
                    break
                self._flight_recorder.started(each.number)
                started.append(self._ring.start(each.values, mean=each.mean))
            self._finish(submission, started.popleft().result(submission.number, self._deadline_s))

    def _is_return_due(self, number: int) -> bool:
        """Return whether the switch adds up from this all-reduce on."""
        first = None if self._returning is None else self._returning.at(number)
        return first is not None and number >= first

    def _return(self, number: int) -> None:
        """Continue by the switch: every worker has all results before this all-reduce, or will have by the ring."""
        assert self._returning is not None
        member, self._agreement = self._returning.take()
        self._ring, self._last = None, None
        self._on_return(member)
        try:
            self._reducer = member.membership.engine
        except AllReduceError as error:
            self._reducer, self._reason = None, str(error)
        logger.warning("from all-reduce %d on the switch is used again, in job %s", number, member.membership.job)

    def _finish(self, submission: _Submission, result: torch.Tensor) -> None:
        if self._ring is None:
            self._last = result
        target = submission.values
        has_left = target.dtype == torch.int32 and is_beyond(result)
        if not has_left and result.data_ptr() != target.data_ptr():
            target.copy_(result.view(target.shape))
        filled = submission.tensor if has_left else back(target, submission.tensor)
        if not self._queue.settle(submission):
            return
        self._settled += 1
        self._flight_recorder.completed(submission.number)
        if submission.mean:
            self._on_mean(submission.tensor, filled)
        if has_left:
            submission.future.set_exception(SaturatedError(f"sums of all-reduce {submission.number} overflowed int32"))
        else:
            submission.future.set_result(filled)

    def _leave(self, error: AllReduceError) -> None:
        """Continue by the ring from the first result that no worker has."""
        if self._agreement is None:
            raise AllReduceError(f"{error}; and there is no process group with a ring")
        self.is_leaving = True
        if self._reducer is not None:
            self._reducer.close()
        decision = self._agreement.settle(self._settled, str(error), called=isinstance(error, _CalledError))
        least, most = min(decision.results), max(decision.results)
        logger.warning(
            "from all-reduce %d on gloo's ring of workers %s is used, not the switch: %s",
            most,
            listed(decision.ranks),
            decision.reason,
        )
        if most - least > 1:
            raise AllReduceError(f"{decision.reason}; and a worker is {most - least} results behind another")
        ring = Ring(decision.ranks, self._deadline_s)
        self._on_leave()
        if most != least:
            self._catch_up(ring, decision.source, most - 1)
        self._ring, self.is_leaving = ring, False
        if self._returning is not None:
            self._returning.begin(decision.ranks)

    def _catch_up(self, ring: Ring, source: int, number: int) -> None:
        """Pass the last result to workers that lack it, or receive it."""
        if number < self._settled:
            assert self._last is not None
            ring.broadcast(carried(self._last), source)
            return
        submission = self._queue.first(self._deadline_s)  # others may continue without a worker presumed dead
        if submission is None:
            raise AllReduceError(
                f"waited {self._deadline_s:g} s for all-reduce {number} to start, whose result others have"
            )
        if isinstance(submission, _Transfer):
            raise AllReduceError(f"all-reduce {number}: gloo's ring cannot reach the main server")
        result = torch.zeros(submission.values.numel(), dtype=carrier(submission.values.dtype))
        ring.broadcast(result, source)
        self._finish(submission, result)

    def _fail(self, error: AllReduceError) -> None:
        for submission in self._queue.drain(error):
            submission.future.set_exception(error)
        if self._reducer is not None:
            self._reducer.close()
