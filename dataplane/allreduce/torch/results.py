"""Memory and formats of results, from the switch or from other workers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

BEYOND: Final = 2**31
"""Marks a sum that has overflowed int32 and whose value the switch has not reported."""


def carrier(kind: torch.dtype) -> torch.dtype:
    """Return the format in which results of tensors of a format are passed on."""
    return torch.float32 if kind.is_floating_point else torch.int64


def carried(result: torch.Tensor) -> torch.Tensor:
    """Return a result in that format."""
    return result.to(carrier(result.dtype))


def is_beyond(sums: torch.Tensor) -> bool:
    """Return whether a sum of integers has overflowed int32."""
    return sums.dtype == torch.int64 and bool(((sums >= BEYOND) | (sums < -BEYOND)).any())


def as_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a contiguous tensor's values without a copy; for bfloat16, their bits in uint16."""
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16)).view(np.uint16)
    return np.asarray(tensor)


class SpareTensors:
    """Memory for successive results: each stays valid until the next but one."""

    def __init__(self) -> None:
        self._one = self._other = torch.empty(0, dtype=torch.int8)

    def take(self, like: torch.Tensor) -> torch.Tensor:
        """Return a flat tensor of the same length and format."""
        nbytes = like.numel() * like.itemsize
        if self._one.numel() < nbytes:
            self._one = torch.empty(nbytes, dtype=torch.int8)
        self._one, self._other = self._other, self._one
        return self._other[:nbytes].view(like.dtype)
