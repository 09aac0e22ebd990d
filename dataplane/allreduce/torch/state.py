"""State of PyTorch's hook for one job: what a training calls, over all-reduces in order (ordered.py)."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Self

import torch
import torch.distributed as dist

from dataplane.allreduce.engine import TransportName
from dataplane.allreduce.job_engine import JobEngine
from dataplane.allreduce.jobs.convergence import Convergence
from dataplane.allreduce.membership import Membership
from dataplane.allreduce.torch.agreement import Agreement, Voters
from dataplane.allreduce.torch.flight_recorder import Call, FlightRecorder, GroupName
from dataplane.allreduce.torch.job_membership import JobMember
from dataplane.allreduce.torch.ordered import OrderedAllReduces
from dataplane.allreduce.torch.reducer import Reducer
from dataplane.allreduce.torch.returning import Rejoin, Returning
from dataplane.allreduce.torch.staging import DEVICES, LAYOUTS, future_of
from dataplane.allreduce.torch.training_end import TrainingEnd
from dataplane.allreduce.torch.transferred import joined, split
from dataplane.allreduce.transfers import flattened
from dataplane.allreduce.turns import Poll
from dataplane.clock import Clock, MonotonicClock
from dataplane.errors import AllReduceError

logger = logging.getLogger("millrace.allreduce")

FORMATS: Final = (torch.float32, torch.float16, torch.bfloat16, torch.int32)
_states_of: Counter[str] = Counter()
"""Number of states made of each group; by its name, as workers may make those of different groups in any order."""


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
        rejoin: Rejoin | None = None,
    ) -> None:
        """Start; `reason` is why there is no reducer, and `member` the worker's membership in a managed job.

        `deadline_s` bounds each wait for a result, and `agreement_s` the one for the workers that will continue by the
        ring. `convergence`: what ends the training, the same at all workers. `rejoin`: how workers on the ring join a
        job again; without it they stay there.
        """
        self._end = TrainingEnd(convergence)
        self._reducer, self._reason, self._member = reducer, reason, member
        clock = clock or MonotonicClock()
        group = process_group if process_group is not None or not dist.is_initialized() else dist.group.WORLD
        self._agreement = returning = None
        if group is not None:
            made = _Agreements(group, agreement_s, clock)
            self._agreement = made.first(member)
            returning = None if rejoin is None else made.returning(rejoin)
        self.flight_recorder = _flight_recorder(group, deadline_s)
        self._all_reduces = OrderedAllReduces(
            reducer,
            self._agreement,
            self.flight_recorder,
            reason=reason,
            deadline_s=deadline_s,
            clock=clock,
            on_mean=self._end.add,
            on_leave=self._leave_job,
            on_return=self._return_to_job,
            returning=returning,
        )
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
        return_s: float | None = 10.0,
    ) -> Self:
        """Meet the workers of a job at the service's `address`; a refused worker uses the ring, and logs why.

        `host` is this machine's name in the topology, `workers` the number that form the job. The others are waited for
        up to `join_s`; a worker may be slow, as with a checkpoint, for `patience_s` before the switch is given up: the
        service notices dead workers and switches much sooner. `transport` is "auto" for queues that this node's manager
        grants, else UDP sockets, or "udp", "rings" or "xdp". `server` is the host of the job's main server, which is
        awaited, or its host and UDP port. `convergence` ends the training: see `has_converged`. Workers on the ring try
        to return to the switches after `return_s`, then after ever longer waits; None, or `boundaries`: they stay. See
        Membership.join for the rest. Raises AllReduceError if the job is refused and there is no process group for a
        ring either.
        """
        join = partial(
            Membership.join,
            address,
            job=job,
            host=host,
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
        # Where steps are bounded by `boundary`, a return between two all-reduces would be in the middle of one.
        stays = return_s is None or boundaries
        make = partial(
            cls,
            process_group=process_group,
            deadline_s=deadline_s,
            agreement_s=agreement_s,
            convergence=convergence,
            rejoin=None if stays else Rejoin(lambda count: join(workers=count), host, return_s or 0.0),
        )
        try:
            membership = join(workers=workers)
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
        return self._all_reduces.is_by_ring

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
        self._all_reduces.add_up(tensor, mean=mean, future=future, call=call or Call.all_reduce(tensor))
        return future

    def boundary(self) -> bool:
        """End a step, in a job that others may join; return whether a worker joins here.

        If so, all must synchronise their models: see `share`. Raises AllReduceError if the job continues without this
        worker; other failures surface in the next all-reduce.
        """
        if self._member is None or self._all_reduces.is_leaving or self._all_reduces.is_by_ring:
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
        if member is None or self._all_reduces.is_by_ring:
            raise AllReduceError(
                "a transfer from or to the main server needs the job's switches; "
                + (self._reason if member is None else "gloo's ring is used instead")
            )
        membership = member.membership
        membership.check_main_server()

        def carry_out(poll_switch: Poll) -> bytes:
            def poll() -> None:
                membership.check_main_server()
                poll_switch()

            return call(membership.engine, poll)

        return self._all_reduces.transfer(carry_out).result()

    def close(self) -> None:
        """Finish what was started, then close the reducer."""
        self._all_reduces.close()
        self._release()

    def abandon(self) -> None:
        """Close everything without finishing: all-reduces without a result fail."""
        self._all_reduces.abandon()
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Finish what was started, unless an exception has ended the training."""
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _leave_job(self) -> None:
        if self._member is not None:
            self._member.membership.close()

    def _return_to_job(self, member: JobMember) -> None:
        self._member, self._reducer = member, None

    def _release(self) -> None:
        _open_states.discard(self)
        if self._member is not None:
            self._member.membership.close()
        elif self._reducer is not None:
            self._reducer.close()


class _Agreements:
    """Agreements of one state's workers, through their group's store."""

    def __init__(self, group: dist.ProcessGroup, deadline_s: float, clock: Clock) -> None:
        self._store, self._deadline_s, self._clock = group.get_group_store(), deadline_s, clock
        self._rank, self._ranks = dist.get_rank(), tuple(dist.get_process_group_ranks(group))
        self._name = f"millrace/{_states_of[group.group_name]}"
        _states_of[group.group_name] += 1

    def first(self, member: JobMember | None) -> Agreement:
        """Return the agreement to leave the job that the state begins with."""
        return self._agreement(self._name, member)

    def returning(self, rejoin: Rejoin) -> Returning:
        """Return what takes the workers back to a job."""
        return Returning(rejoin, self._agreement, self._store, f"{self._name}/return", self._rank)

    def _agreement(self, name: str, member: JobMember | None) -> Agreement:
        voters: Callable[[], Voters] = partial(Voters, self._ranks, len(self._ranks))
        if member is not None:
            voters = member.roster(self._store, name, self._rank, self._ranks).voters
        return Agreement(self._store, name, self._rank, voters, deadline_s=self._deadline_s, clock=self._clock)


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
