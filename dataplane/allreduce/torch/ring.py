"""Gloo's ring: what adds up when the switch does not."""

from __future__ import annotations

import concurrent.futures
from datetime import timedelta

import torch
import torch.distributed as dist

from dataplane.allreduce.torch.agreement import listed
from dataplane.errors import AllReduceError


class Ring:
    """A gloo group of its own of the survivors, so that nobody who is gone is waited for, nor old messages are met."""

    def __init__(self, ranks: tuple[int, ...], deadline_s: float) -> None:
        """Join the group; raise AllReduceError if not all have within the deadline."""
        self._ranks = ranks
        try:
            self._group = dist.new_group(
                list(ranks), timedelta(seconds=deadline_s), backend="gloo", use_local_synchronization=True
            )
        except RuntimeError as error:
            raise AllReduceError(f"no ring of workers {listed(ranks)} within {deadline_s:g} s: {error}") from error

    def start(self, tensor: torch.Tensor, *, mean: bool) -> concurrent.futures.Future[torch.Tensor]:
        """Begin to add up a tensor in its own format, as DistributedDataParallel does: a mean divides first.

        Of int32 the sums are int64.
        """
        flat = tensor.detach().reshape(-1)
        flat = flat.to(torch.int64) if tensor.dtype == torch.int32 else flat
        if mean:
            flat.div_(len(self._ranks))
        running: concurrent.futures.Future[torch.Tensor] = concurrent.futures.Future()

        def done(future: torch.futures.Future[list[torch.Tensor]]) -> None:
            try:
                future.wait()
            except RuntimeError as error:
                running.set_exception(AllReduceError(f"the ring of workers {listed(self._ranks)} broke: {error}"))
            else:
                running.set_result(flat)

        try:
            dist.all_reduce(flat, group=self._group, async_op=True).get_future().add_done_callback(done)
        except RuntimeError as error:
            running.set_exception(AllReduceError(f"the ring of workers {listed(self._ranks)} broke: {error}"))
        return running

    def broadcast(self, tensor: torch.Tensor, source: int) -> None:
        """Fill `tensor` with that of the rank `source`."""
        try:
            dist.broadcast(tensor, source, group=self._group)
        except RuntimeError as error:
            raise AllReduceError(f"waited for a result that worker {source} has: {error}") from error
