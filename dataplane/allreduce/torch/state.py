"""All-reduces of tensors in order: by the switch as long as it goes, then by gloo's ring.

A worker has at most `in_flight` all-reduces at the switch at once. Whoever has a result of n knows that every worker
has begun n, so has the results up to n - in_flight. Each keeps its last `in_flight` results: when the workers leave the
switch, what one has is never more than in_flight ahead of another, and those behind get it from one who is ahead. So a
result that anybody trains on is everybody's; what nobody has is added up by the ring from the values that are still in
their buckets.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import itertools
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

import torch
import torch.distributed as dist

from dataplane.allreduce.errors import RemovedError, SaturatedError
from dataplane.allreduce.membership import Membership
from dataplane.allreduce.reducer import Reducer
from dataplane.allreduce.torch.agreement import Agreement, Voters, listed
from dataplane.allreduce.torch.job_membership import Place
from dataplane.allreduce.torch.results import BEYOND, carried, carrier, is_beyond
from dataplane.allreduce.torch.ring import Ring, Started
from dataplane.allreduce.torch.staging import DEVICES, LAYOUTS, back, future_of, on_host
from dataplane.clock import Clock, MonotonicClock
from dataplane.errors import AllReduceError, MillraceError

logger = logging.getLogger("millrace.allreduce")

FORMATS: Final = (torch.float32, torch.float16, torch.bfloat16, torch.int32)
_LOOK_S: Final = 0.25
"""How often a worker looks whether another has left the switch."""
_ABANDON_S: Final = 2.0
"""How long an end in a hurry waits for the thread."""
_numbers = itertools.count()
_Running = concurrent.futures.Future[Any]


class _CalledError(AllReduceError):
    """Another worker has left the switch."""


@dataclass(slots=True)
class _Wanted:
    """An all-reduce whose result is not there; `values` are the tensor's on the host; `running` once it has begun."""

    number: int
    tensor: torch.Tensor
    values: torch.Tensor
    mean: bool
    future: torch.futures.Future[torch.Tensor]
    running: _Running | Started | None = None


class MillraceState:
    """What the hook needs of one job. All workers make their states in the same order, as they do with groups.

    The reducer is the state's from here on. Without one, and once the switch does not answer, gloo's ring adds up over
    the members of `process_group` (the default group if None) that are left, and the log says why, once.
    """

    def __init__(
        self,
        reducer: Reducer | None,
        process_group: dist.ProcessGroup | None = None,
        *,
        deadline_s: float = 600.0,
        agreement_s: float = 60.0,
        in_flight: int = 4,
        reason: str = "there is no reducer",
        place: Place | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Start; `reason` is why there is no reducer, and `place` the worker's in a job that a service looks after.

        `deadline_s` bounds each wait for a result, and `agreement_s` the one for those who shall go on by the ring.
        """
        self._reducer, self._reason, self._place = reducer, reason, place
        self._deadline_s, self._in_flight, self._clock = deadline_s, in_flight, clock or MonotonicClock()
        self._agreement = _agreement(process_group, place, agreement_s, self._clock)
        self._ring: Ring | None = None
        self._is_leaving = False
        self._is_closed = False
        self._failure: AllReduceError | None = None
        self._submitted = self._settled = 0
        self._looked_ns = 0
        self._wanted: deque[_Wanted] = deque()
        self._last: deque[object] = deque(maxlen=in_flight)
        self._changed = threading.Condition()
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
    ) -> Self:
        """Meet the workers of a job at the service's `address`; whoever is refused goes by the ring, and logs why.

        `host` is this machine's name in the topology, `workers` how many make the job. The others are waited for up to
        `join_s`; who is slow, as with a checkpoint, may be so for `patience_s` before the switch is given up: dead
        workers and switches are noticed by the service, much sooner. See Membership.join for the rest.
        Raises AllReduceError if the job is refused and there is no process group for a ring either.
        """
        make = partial(cls, process_group=process_group, deadline_s=deadline_s, agreement_s=agreement_s)
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
            )
        except AllReduceError as error:
            if process_group is None and not dist.is_initialized():
                raise
            return make(None, reason=str(error))
        try:
            return make(membership.reducer, place=Place(membership, host))
        except BaseException:
            membership.close()
            raise

    @property
    def is_by_ring(self) -> bool:
        """Whether gloo's ring adds up."""
        return self._ring is not None

    def submit(self, tensor: torch.Tensor, *, mean: bool) -> torch.futures.Future[torch.Tensor]:
        """Begin an all-reduce, in place unless the tensor is sparse; wait for nobody else."""
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
        with self._changed:
            failure = self._failure or (AllReduceError("the state is closed") if self._is_closed else None)
            if failure is None:
                self._wanted.append(_Wanted(self._submitted, tensor, values, mean, future))
                self._submitted += 1
                self._begin()
                self._changed.notify()
        if failure is not None:
            future.set_exception(failure)
        return future

    def boundary(self) -> bool:
        """Say that a step is over, in a job that others may join; return whether somebody comes in here.

        If so, all must make their models the same: see `share`. Raises AllReduceError if the job goes on without this
        worker; other failures are met by the next all-reduce.
        """
        if self._place is None or self._is_leaving or self._ring is not None:
            return False
        return self._place.boundary()

    def share(self, tensors: Iterable[torch.Tensor]) -> None:
        """Give all workers the tensors of one that was there before the newest, bit by bit.

        To be called by all after `boundary` has returned True, with tensors of the same shapes and types.
        """
        if self._place is None:
            raise AllReduceError("there is nobody to share with: the job has no service")
        self._place.share(tensors)

    def close(self) -> None:
        """Finish what was begun, then let the reducer go."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()
        self._let_go()

    def abandon(self) -> None:
        """Let everything go without finishing it: all-reduces without a result fail."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._fail(AllReduceError("the state was closed before there was a result"))
        self._thread.join(_ABANDON_S)
        self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Finish what was begun, unless an exception has ended the training."""
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _let_go(self) -> None:
        _open_states.discard(self)
        if self._place is not None:
            self._place.membership.close()
        elif self._reducer is not None:
            self._reducer.close()

    def _begin(self) -> None:
        """Begin as many as may be under way; the caller holds the lock."""
        if self._is_leaving:
            return
        for wanted in itertools.islice(self._wanted, self._in_flight):
            if wanted.running is None:
                wanted.running = self._start(wanted)

    def _start(self, wanted: _Wanted) -> _Running | Started:
        if self._ring is not None:
            return self._ring.start(wanted.values, mean=wanted.mean)
        failed: _Running = concurrent.futures.Future()
        if self._reducer is None:
            failed.set_exception(AllReduceError(self._reason))
            return failed
        try:
            values = wanted.values.reshape(-1)
            values = values if values.dtype == torch.int32 else values.to(torch.float32)
            return self._reducer.all_reduce(values.numpy(), mean=wanted.mean)
        except MillraceError as error:
            failed.set_exception(error)
            return failed

    def _run(self) -> None:
        try:
            while (wanted := self._first()) is not None:
                self._settle(wanted)
        except AllReduceError as error:
            self._fail(error)
        except Exception as error:  # whatever it is: nobody may wait for a thread that has ended
            logger.exception("all-reduce %d", self._settled)
            self._fail(AllReduceError(f"all-reduce {self._settled}: {error!r}"))

    def _first(self) -> _Wanted | None:
        """Return the oldest all-reduce; whoever has none leaves the switch, too, once another has."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._is_closed, timeout=_LOOK_S)
                if self._wanted or self._is_closed:
                    return self._wanted[0] if self._wanted else None
            try:
                self._look()
            except _CalledError as error:
                self._leave(error)

    def _settle(self, wanted: _Wanted) -> None:
        try:
            value = self._wait(wanted)
        except RemovedError:
            raise
        except AllReduceError as error:
            if self._ring is not None or self._failure is not None:
                raise
            self._leave(error)
        else:
            self._finish(wanted, value)

    def _wait(self, wanted: _Wanted) -> object:
        assert wanted.running is not None
        if isinstance(wanted.running, Started):
            return wanted.running.result(wanted.number, self._deadline_s)
        running, until_ns = wanted.running, self._clock.now_ns() + int(self._deadline_s * 1e9)
        self._look()
        while not concurrent.futures.wait([running], timeout=_LOOK_S).done:
            if self._clock.now_ns() >= until_ns:
                raise AllReduceError(
                    f"waited {self._deadline_s:g} s for the switch's result of all-reduce {wanted.number}"
                )
            self._look()
        failure = running.exception()
        if failure is None:
            return running.result()
        if isinstance(failure, SaturatedError):
            return torch.full((wanted.values.numel(),), BEYOND)
        raise failure if isinstance(failure, AllReduceError) else AllReduceError(repr(failure)) from failure

    def _look(self) -> None:
        """Raise _CalledError if another has left the switch, also where results still come: some may without it."""
        now_ns = self._clock.now_ns()
        if self._agreement is None or self._ring is not None or now_ns < self._looked_ns + int(_LOOK_S * 1e9):
            return
        self._looked_ns = now_ns
        called = self._agreement.called()
        if called is not None:
            raise _CalledError(called)

    def _finish(self, wanted: _Wanted, value: object) -> None:
        result = torch.as_tensor(value)
        if self._ring is None:
            self._last.append(result)
        target = wanted.values
        has_left = target.dtype == torch.int32 and is_beyond(carried(result))
        if not has_left and result.data_ptr() != target.data_ptr():
            target.copy_(result.view(target.shape))
        filled = wanted.tensor if has_left else back(target, wanted.tensor)
        with self._changed:
            if self._failure is not None:
                return
            self._wanted.popleft()
            self._settled += 1
            self._begin()
        if has_left:
            wanted.future.set_exception(SaturatedError(f"sums of all-reduce {wanted.number} left int32"))
        else:
            wanted.future.set_result(filled)

    def _leave(self, error: AllReduceError) -> None:
        """Go on by the ring from the first result on that nobody has."""
        if self._agreement is None:
            raise AllReduceError(f"{error}; and there is no process group whose ring could add up")
        with self._changed:
            self._is_leaving = True
        if self._reducer is not None:
            self._reducer.close()
        decision = self._agreement.settle(self._settled, str(error), called=isinstance(error, _CalledError))
        least, most = min(decision.results), max(decision.results)
        logger.warning(
            "all-reduce %d and those that follow go by gloo's ring of workers %s, without the switch: %s",
            most,
            listed(decision.ranks),
            decision.reason,
        )
        if most - least > self._in_flight:
            raise AllReduceError(f"{decision.reason}; and a worker is {most - least} results behind another")
        ring = Ring(decision.ranks, self._deadline_s)
        if self._place is not None:
            self._place.membership.close()
        self._catch_up(ring, decision.source, least, most)
        with self._changed:
            self._ring, self._is_leaving = ring, False
            for wanted in self._wanted:
                wanted.running = None
            self._begin()

    def _catch_up(self, ring: Ring, source: int, least: int, most: int) -> None:
        settled = self._settled
        for number in range(least, most):
            if number < settled:
                ring.broadcast(carried(self._last[number - settled]), source)
                continue
            wanted = self._begun(number)
            result = torch.zeros(wanted.values.numel(), dtype=carrier(wanted.values.dtype))
            ring.broadcast(result, source)
            self._finish(wanted, result)

    def _begun(self, number: int) -> _Wanted:
        """Return the oldest all-reduce, which others could do without this worker if it had been taken for dead."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._wanted, self._deadline_s):
                raise AllReduceError(
                    f"waited {self._deadline_s:g} s for all-reduce {number} to begin, whose result others have"
                )
            return self._wanted[0]

    def _fail(self, error: AllReduceError) -> None:
        with self._changed:
            self._failure = self._failure or error
            wanted = list(self._wanted)
            self._wanted.clear()
        for one in wanted:
            one.future.set_exception(error)
        if self._reducer is not None:
            self._reducer.close()


def _agreement(
    group: dist.ProcessGroup | None, place: Place | None, deadline_s: float, clock: Clock
) -> Agreement | None:
    if group is None:
        if not dist.is_initialized():
            return None
        group = dist.group.WORLD
    store, rank, ranks = group.get_group_store(), dist.get_rank(), tuple(dist.get_process_group_ranks(group))
    name = f"millrace/{next(_numbers)}"
    voters: Callable[[], Voters] = partial(Voters, ranks, len(ranks))
    if place is not None:
        voters = place.roster(store, name, rank, ranks).voters
    return Agreement(store, name, rank, voters, deadline_s=deadline_s, clock=clock)


_open_states: weakref.WeakSet[MillraceState] = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    """Let go of what a training has left open: threads in machine code must not outlive the interpreter."""
    for state in list(_open_states):
        state.abandon()
