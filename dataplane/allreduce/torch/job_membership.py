"""A PyTorch worker's place in a job that a service looks after."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from dataplane.allreduce.errors import RemovedError
from dataplane.allreduce.membership import Membership
from dataplane.allreduce.torch.roster import Roster
from dataplane.errors import AllReduceError


@dataclass(frozen=True, slots=True)
class Place:
    """A membership, as the host of that name."""

    membership: Membership
    host: str

    def roster(self, store: dist.Store, name: str, rank: int, ranks: tuple[int, ...]) -> Roster:
        """Return who of a process group is in the job."""
        return Roster(store, name, rank, ranks, host=self.host, members=lambda: self.membership.members)

    def boundary(self) -> bool:
        """Say that a step is over; return whether somebody comes in here.

        Raises RemovedError if the job goes on without this worker; other failures are met by the next all-reduce.
        """
        try:
            return self.membership.boundary()
        except RemovedError:
            raise
        except AllReduceError:
            return False

    def share(self, tensors: Iterable[torch.Tensor]) -> None:
        """Give all workers the tensors of one that was there before the newest, bit by bit."""
        for tensor in tensors:
            values = tensor.detach()
            if values.numel():
                own = values.cpu().contiguous().view(-1).view(torch.uint8).numpy()
                found = torch.from_numpy(self.membership.share(own))
                values.copy_(found.view(values.dtype).view(values.shape))
