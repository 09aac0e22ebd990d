"""All-reduces of tensors in order: by the switch as long as it works, then by gloo's ring.

One thread runs them, each by the switch until there is a result, before the next one starts. A worker with the result
of n knows that every worker has started n, so has the results up to n - 1. Each keeps its last result: when the workers
leave the switch, none is more than one result ahead of another, and those behind get it from one that is ahead. So a
result that one worker trains on reaches all; one that none has is added up by the ring from the values that are still
in the buckets.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

import torch
import torch.distributed as dist

from dataplane.allreduce.engine import TransportName
from dataplane.allreduce.errors import RemovedError, SaturatedError
from dataplane.allreduce.job_engine import JobEngine
from dataplane.allreduce.jobs.convergence import Convergence
from dataplane.allreduce.membership import Membership
from dataplane.allreduce.submission_queue import SubmissionQueue
from dataplane.allreduce.torch.agreement import Agreement, Voters, listed
from dataplane.allreduce.torch.flight_recorder import Call, FlightRecorder, GroupName
from dataplane.allreduce.torch.job_membership import JobMember
from dataplane.allreduce.torch.reducer import Reducer
from dataplane.allreduce.torch.results import BEYOND, SpareTensors, as_array, carried, carrier, is_beyond
from dataplane.allreduce.torch.ring import Ring, Started
from dataplane.allreduce.torch.staging import DEVICES, LAYOUTS, back, future_of, on_host
from dataplane.allreduce.torch.training_end import TrainingEnd
from dataplane.allreduce.torch.transferred import joined, split
from dataplane.allreduce.transfers import flattened
from dataplane.allreduce.turns import POLL_S, Poll
from dataplane.clock import NS_PER_S, Clock, MonotonicClock
from dataplane.errors import AllReduceError

logger = logging.getLogger("millrace.allreduce")

FORMATS: Final = (torch.float32, torch.float16, torch.bfloat16, torch.int32)
_BY_RING: Final = 4
"""Maximum number of concurrent all-reduces of gloo's ring."""
_ABANDON_S: Final = 2.0
"""Maximum wait for the thread when abandoning."""
_REPORT_S: Final = 5.0
"""Time without a result after which the log says so, and the flight record is written."""
_states_of: Counter[str] = Counter()
"""Number of states made of each group; by its name, as workers may make those of different groups in any order."""


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
    call: Callable[[], bytes]
    future: Future[bytes]


class MillraceState:
    """State of the hook for one job. All workers create their states in the same order, as they do groups.

    The state owns the reducer from here on. Without one, and once the switch does not answer, gloo's ring adds up over
    the remaining members of `process_group` (the default group if None), and logs why, once.
    """

    def __init__(
        self,
        reducer: Reducer | None,
        process_group: dist.ProcessGroup | None = None,
        *,
        deadline_s: float = 600.0,
        agreement_s: float = 60.0,
        reason: str = "there is no reducer",
        member: JobMember | None = None,
        convergence: Convergence | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Start; `reason` is why there is no reducer, and `member` the worker's membership in a managed job.

        `deadline_s` bounds each wait for a result, and `agreement_s` the one for the workers that will continue by the
        ring. `convergence`: what ends the training, the same at all workers.
        """
        self._end = TrainingEnd(convergence)
        self._reducer, self._reason, self._member = reducer, reason, member
        self._deadline_s, self._clock = deadline_s, clock or MonotonicClock()
        group = process_group if process_group is not None or not dist.is_initialized() else dist.group.WORLD
        self._agreement = None if group is None else _agreement(group, member, agreement_s, self._clock)
        self.flight_recorder = _flight_recorder(group, deadline_s)
        self._ring: Ring | None = None
        self._is_leaving = False
        self._submitting = threading.Lock()
        self._submitted = self._settled = 0
        self._polled_ns = 0
        self._reported = -1
        self._queue: SubmissionQueue[_Submission | _Transfer] = SubmissionQueue("PyTorch's all-reduces")
        self._spare = SpareTensors()
        self._last: torch.Tensor | None = None
        self._thread = threading.Thread(target=self._run, name="millrace-allreduce", daemon=True)
        self._thread.start()
        _open_states.add(self)

    @classmethod
    def connect(
        cls,
        address: str,
        *,
        job: str,
        host: str,
        workers: int,
        process_group: dist.ProcessGroup | None = None,
        boundaries: bool = False,
        window: int | None = None,
        capacity: int | None = None,
        local_address: str = "",
        join_s: float = 60.0,
        patience_s: float = 300.0,
        deadline_s: float = 600.0,
        agreement_s: float = 60.0,
        transport: TransportName = "auto",
        server: tuple[str, int] | str | None = None,
        convergence: Convergence | None = None,
    ) -> Self:
        """Meet the workers of a job at the service's `address`; a refused worker uses the ring, and logs why.

        `host` is this machine's name in the topology, `workers` the number that form the job. The others are waited for
        up to `join_s`; a worker may be slow, as with a checkpoint, for `patience_s` before the switch is given up: the
        service notices dead workers and switches much sooner. `transport` is "auto" for queues that this node's manager
        grants, else UDP sockets, or "udp", "rings" or "xdp". `server` is the host of the job's main server, which is
        awaited, or its host and UDP port. `convergence` ends the training: see `has_converged`. See Membership.join for
        the rest. Raises AllReduceError if the job is refused and there is no process group for a ring either.
        """
        make = partial(
            cls,
            process_group=process_group,
            deadline_s=deadline_s,
            agreement_s=agreement_s,
            convergence=convergence,
        )
        try:
            membership = Membership.join(
                address,
                job=job,
                host=host,
                workers=workers,
                deadline_s=join_s,
                window=window,
                capacity=capacity,
                boundaries=boundaries,
                local_address=local_address,
                patience_s=patience_s,
                make=JobEngine,
                transport=transport,
                server=server,
                convergence=convergence,
            )
        except AllReduceError as error:
            if process_group is None and not dist.is_initialized():
                raise
            return make(None, reason=str(error))
        try:
            return make(membership.engine, member=JobMember(membership, host))
        except BaseException:
            membership.close()
            raise

    @property
    def is_by_ring(self) -> bool:
        """True if gloo's ring adds up."""
        return self._ring is not None

    def submit(
        self, tensor: torch.Tensor, *, mean: bool, call: Call | None = None
    ) -> torch.futures.Future[torch.Tensor]:
        """Start an all-reduce, in place unless the tensor is sparse; return without waiting for others.

        `call` is the collective that it is part of, for the flight record.
        """
        if tensor.dtype not in FORMATS or tensor.device.type not in DEVICES or tensor.layout not in LAYOUTS:
            raise AllReduceError(
                f"a tensor of {tensor.dtype} on {tensor.device}, {tensor.layout}: only float32, float16, bfloat16 and "
                "int32 on cpu or cuda, strided or sparse_coo, are added up"
            )
        if mean and tensor.dtype == torch.int32:
            raise AllReduceError("integers have a sum but no mean")
        future = future_of(tensor)
        if not tensor.numel():
            future.set_result(tensor)
            return future
        values = on_host(tensor)
        with self._submitting:
            submission = _Submission(self._submitted, tensor, values, mean, future, call or Call.all_reduce(tensor))
            self.flight_recorder.scheduled(submission.number, submission.call)
            failure = self._queue.put(submission)
            self._submitted += failure is None
        if failure is not None:
            future.set_exception(failure)
        return future

    def boundary(self) -> bool:
        """End a step, in a job that others may join; return whether a worker joins here.

        If so, all must synchronise their models: see `share`. Raises AllReduceError if the job continues without this
        worker; other failures surface in the next all-reduce.
        """
        if self._member is None or self._is_leaving or self._ring is not None:
            return False
        return self._member.boundary()

    def share(self, tensors: Iterable[torch.Tensor]) -> None:
        """Copy the tensors of a worker that was there before the newest to all workers, bit by bit.

        All must call it after `boundary` has returned True, with tensors of the same shapes and types.
        """
        if self._member is None:
            raise AllReduceError("share needs a job service: there are no other workers to share with")
        progress = self._end.progress
        self._member.share([*tensors, progress], lambda values: self.submit(values, mean=False).wait())
        self._end.restore(progress)

    def receive(self) -> bytes:
        """Return what the job's main server distributes; all workers call it at the same place in their order.

        Raises AllReduceError without a main server, or if it is lost meanwhile: there is no ring for this.
        """
        return self._transfer(lambda engine, poll: engine.receive(poll).tobytes())

    def receive_into(self, tensors: Iterable[torch.Tensor]) -> None:
        """Fill tensors, of any types, with what the main server distributes; see `receive`.

        Raises AllReduceError, and leaves them as they are, unless it sends exactly their bytes, in their order.
        """
        split(self.receive(), list(tensors))

    def deliver(self, tensors: Iterable[torch.Tensor]) -> None:
        """Send the bytes of tensors, the same at all workers, to the main server, which takes them; see `receive`."""
        data, member = flattened(joined(tensors)), self._member

        def give(engine: JobEngine, poll: Poll) -> bytes:
            assert member is not None
            engine.deliver(data, member.membership.givers(), poll)
            return b""

        self._transfer(give)

    def has_converged(self, loss: torch.Tensor | float | None = None) -> bool:
        """End a step; return whether the training has converged, at the same step at all workers.

        `loss` is this worker's, if the job ends by the mean loss. One value of each worker is added up for it. Raises
        AllReduceError.
        """
        value = self._end.value(loss)
        return self._end.note(self.submit(value, mean=True).wait())

    def _transfer(self, call: Callable[[JobEngine, Poll], bytes]) -> bytes:
        member = self._member
        if member is None or self._ring is not None:
            raise AllReduceError(
                "a transfer from or to the main server needs the job's switches; "
                + (self._reason if member is None else "gloo's ring is used instead")
            )
        membership = member.membership
        membership.check_main_server()

        def poll() -> None:
            membership.check_main_server()
            self._poll()

        future: Future[bytes] = Future()
        with self._submitting:
            transfer = _Transfer(self._submitted, lambda: call(membership.engine, poll), future)
            failure = self._queue.put(transfer)
            self._submitted += failure is None
        if failure is not None:
            raise failure
        return future.result()

    def close(self) -> None:
        """Finish what was started, then close the reducer."""
        self._queue.close(AllReduceError("the state is closed"))
        self._thread.join()
        self._release()

    def abandon(self) -> None:
        """Close everything without finishing: all-reduces without a result fail."""
        self._fail(AllReduceError("the state was closed before there was a result"))
        self._thread.join(_ABANDON_S)
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Finish what was started, unless an exception has ended the training."""
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _release(self) -> None:
        _open_states.discard(self)
        if self._member is not None:
            self._member.membership.close()
        elif self._reducer is not None:
            self._reducer.close()

    def _run(self) -> None:
        try:
            self._add_up_by_switch()
            self._add_up_by_ring()
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
            result = transfer.call()
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
        self.flight_recorder.started(submission.number)

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
            path = self.flight_recorder.write()
        except OSError as error:
            logger.warning("flight record: %s", error)
            return
        if path is not None:
            logger.warning("flight record %s: written for all-reduce %d", path, number)

    def _add_up_by_ring(self) -> None:
        started: deque[Started] = deque()
        while self._ring is not None and (submission := self._queue.first()) is not None:
            if isinstance(submission, _Transfer):
                raise AllReduceError(f"all-reduce {submission.number}: gloo's ring cannot reach the main server")
            ahead = itertools.takewhile(lambda each: isinstance(each, _Submission), self._queue.ahead(_BY_RING))
            for each in list(ahead)[len(started) :]:
                assert isinstance(each, _Submission)
                self.flight_recorder.started(each.number)
                started.append(self._ring.start(each.values, mean=each.mean))
            self._finish(submission, started.popleft().result(submission.number, self._deadline_s))

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
        self.flight_recorder.completed(submission.number)
        if submission.mean:
            self._end.add(submission.tensor, filled)
        if has_left:
            submission.future.set_exception(SaturatedError(f"sums of all-reduce {submission.number} overflowed int32"))
        else:
            submission.future.set_result(filled)

    def _leave(self, error: AllReduceError) -> None:
        """Continue by the ring from the first result that no worker has."""
        if self._agreement is None:
            raise AllReduceError(f"{error}; and there is no process group with a ring")
        self._is_leaving = True
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
        if self._member is not None:
            self._member.membership.close()
        if most != least:
            self._catch_up(ring, decision.source, most - 1)
        self._ring, self._is_leaving = ring, False

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


def _agreement(group: dist.ProcessGroup, member: JobMember | None, deadline_s: float, clock: Clock) -> Agreement:
    store, rank, ranks = group.get_group_store(), dist.get_rank(), tuple(dist.get_process_group_ranks(group))
    name = f"millrace/{_states_of[group.group_name]}"
    _states_of[group.group_name] += 1
    voters: Callable[[], Voters] = partial(Voters, ranks, len(ranks))
    if member is not None:
        voters = member.roster(store, name, rank, ranks).voters
    return Agreement(store, name, rank, voters, deadline_s=deadline_s, clock=clock)


def _flight_recorder(group: dist.ProcessGroup | None, timeout_s: float) -> FlightRecorder:
    name, rank = GroupName("millrace", "millrace", (0,)), 0
    if group is not None:
        ranks, rank = tuple(dist.get_process_group_ranks(group)), dist.get_rank()
        name = GroupName(f"{group.group_name}:millrace", group.group_desc, ranks)
    return FlightRecorder.from_environment(os.environ, name, rank, timeout_s)


_open_states: weakref.WeakSet[MillraceState] = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    """Abandon unclosed states of a training: threads in machine code must not outlive the interpreter."""
    for state in list(_open_states):
        state.abandon()
