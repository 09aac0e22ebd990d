"""Results: where the switch's go, and how workers give them to each other, in formats that hold all others."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

BEYOND: Final = 2**31
"""Stands for a sum that has left int32 where the switch has not said what it is."""


def carrier(kind: torch.dtype) -> torch.dtype:
    """Return the format in which results of tensors of a format are given."""
    return torch.float32 if kind.is_floating_point else torch.int64


def carried(result: torch.Tensor) -> torch.Tensor:
    """Return a result in that format."""
    return result.to(carrier(result.dtype))


def is_beyond(sums: torch.Tensor) -> bool:
    """Return whether a sum of integers has left int32."""
    return sums.dtype == torch.int64 and bool(((sums >= BEYOND) | (sums < -BEYOND)).any())


def as_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a contiguous tensor's values where they are; of bfloat16, their bits in uint16."""
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16)).view(np.uint16)
    return np.asarray(tensor)


class SpareTensors:
    """Memory for one result after the other: each stays as it is until there is the next but one."""

    def __init__(self) -> None:
        self._one = self._other = torch.empty(0, dtype=torch.int8)

    def take(self, like: torch.Tensor) -> torch.Tensor:
        """Return a flat tensor as long as this one, of the same format."""
        nbytes = like.numel() * like.itemsize
        if self._one.numel() < nbytes:
            self._one = torch.empty(nbytes, dtype=torch.int8)
        self._one, self._other = self._other, self._one
        return self._other[:nbytes].view(like.dtype)
