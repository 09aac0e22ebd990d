"""Layouts of collectives that are no sums as vectors of int32 whose sum over all workers is their result.

Each worker fills in its own part and leaves zeros elsewhere, so that the sum is exact whatever the format. One more
word for each part is 1 if its worker has contributed: a dead worker's zeros are never taken for its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dataplane.allreduce.torch.agreement import listed
from dataplane.allreduce.torch.staging import on_host
from dataplane.errors import AllReduceError

_WORD = 4


@dataclass(frozen=True, slots=True)
class Parts:
    """A vector of one part of `nbytes` for each of these ranks."""

    ranks: tuple[int, ...]
    nbytes: int

    @property
    def _words(self) -> int:
        return -(-self.nbytes // _WORD)

    def pack(self, rank: int, values: torch.Tensor) -> torch.Tensor:
        """Return the vector of a rank: its values, if it has a part, and zeros elsewhere."""
        count = len(self.ranks)
        vector = torch.zeros(count * self._words + count, dtype=torch.int32)
        if rank in self.ranks:
            at = self.ranks.index(rank)
            part = vector[at * self._words : (at + 1) * self._words].view(torch.uint8)
            part[: self.nbytes] = as_bytes(values)
            vector[count * self._words + at] = 1
        return vector

    def unpack(self, vector: torch.Tensor, targets: Sequence[torch.Tensor]) -> None:
        """Copy the parts of a summed vector to the targets; raise AllReduceError naming ranks that gave none."""
        count = len(self.ranks)
        silent = [
            rank for rank, given in zip(self.ranks, vector[count * self._words :].tolist(), strict=True) if not given
        ]
        if silent:
            raise AllReduceError(f"worker {listed(silent)} of the group left the job before it gave its values")
        for at, target in enumerate(targets):
            part = vector[at * self._words : (at + 1) * self._words].view(torch.uint8)[: self.nbytes]
            if self.nbytes:
                target.detach().copy_(part.clone().view(target.dtype).view(target.shape))


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bytes in host memory, in the order of its elements."""
    return on_host(tensor).contiguous().reshape(-1).view(torch.uint8)


def nbytes_of(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's elements."""
    return int(tensor.numel() * tensor.itemsize)
