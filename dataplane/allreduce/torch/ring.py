"""Gloo's ring: the fallback for sums when the switch is unavailable."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from dataplane.allreduce.torch.agreement import listed
from dataplane.errors import AllReduceError


@dataclass(frozen=True, slots=True)
class Started:
    """An all-reduce that has started, or failed to.

    One of our threads waits for it. A callback in gloo's thread could be the last to release the group, whose
    destructor joins all of gloo's threads: the process would abort.
    """

    work: dist.Work | None
    tensor: torch.Tensor
    ranks: tuple[int, ...]
    problem: str = ""

    def result(self, number: int, deadline_s: float) -> torch.Tensor:
        """Wait for the sums; at the deadline raise AllReduceError naming the all-reduce."""
        what = f"all-reduce {number} by the ring of workers {listed(self.ranks)}"
        if self.work is None:
            raise AllReduceError(f"{what} could not start: {self.problem}")
        try:
            self.work.wait(timedelta(seconds=deadline_s))
        except RuntimeError as error:
            raise AllReduceError(f"{what} has no result within {deadline_s:g} s: {error}") from error
        return self.tensor


class Ring:
    """A new gloo group of the survivors, so that none waits for a lost worker or receives old messages."""

    def __init__(self, ranks: tuple[int, ...], deadline_s: float) -> None:
        """Join the group; raise AllReduceError if not all have joined by the deadline."""
        self._ranks = ranks
        try:
            self._group = dist.new_group(
                list(ranks), timedelta(seconds=deadline_s), backend="gloo", use_local_synchronization=True
            )
        except RuntimeError as error:
            raise AllReduceError(f"no ring of workers {listed(ranks)} within {deadline_s:g} s: {error}") from error

    def start(self, tensor: torch.Tensor, *, mean: bool) -> Started:
        """Start adding up a tensor in its own format, as DistributedDataParallel does: a mean divides first.

        Sums of int32 are int64.
        """
        flat = tensor.detach().reshape(-1)
        flat = flat.to(torch.int64) if tensor.dtype == torch.int32 else flat
        if mean:
            flat.div_(len(self._ranks))
        try:
            return Started(dist.all_reduce(flat, group=self._group, async_op=True), flat, self._ranks)
        except RuntimeError as error:
            return Started(None, flat, self._ranks, str(error))

    def broadcast(self, tensor: torch.Tensor, source: int) -> None:
        """Fill `tensor` with that of the rank `source`."""
        try:
            dist.broadcast(tensor, source, group=self._group)
        except RuntimeError as error:
            raise AllReduceError(f"waited for a result that worker {source} has: {error}") from error
