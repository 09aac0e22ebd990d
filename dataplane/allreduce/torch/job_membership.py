"""A PyTorch worker's membership in a job managed by a service."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from dataplane.allreduce.errors import RemovedError
from dataplane.allreduce.membership import Membership
from dataplane.allreduce.torch.roster import Roster
from dataplane.errors import AllReduceError


@dataclass(frozen=True, slots=True)
class JobMember:
    """A membership under its host's name."""

    membership: Membership
    host: str

    def roster(self, store: dist.Store, name: str, rank: int, ranks: tuple[int, ...]) -> Roster:
        """Return the roster of a process group's ranks in the job."""
        return Roster(store, name, rank, ranks, host=self.host, members=lambda: self.membership.members)

    def boundary(self) -> bool:
        """End a step; return whether a worker joins here.

        Raises RemovedError if the job continues without this worker; other failures surface in the next all-reduce.
        """
        try:
            return self.membership.boundary()
        except RemovedError:
            raise
        except AllReduceError:
            return False

    def share(self, tensors: Iterable[torch.Tensor], add_up: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Copy the tensors of a worker that was there before the newest to all workers, bit by bit.

        `add_up` returns sums of int32 over all workers.
        """
        for tensor in tensors:
            values = tensor.detach()
            if values.numel():
                own = values.cpu().contiguous().view(-1).view(torch.uint8).numpy()
                shared = self.membership.share(own, lambda words: add_up(torch.from_numpy(words)).numpy())
                values.copy_(torch.from_numpy(shared).view(values.dtype).view(values.shape))
