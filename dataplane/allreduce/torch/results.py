"""Results as workers give them to each other: in one format for floats and one for integers, which hold any."""

from __future__ import annotations

from typing import Final

import torch

BEYOND: Final = 2**31
"""Stands for a sum that has left int32 where the switch has not said what it is."""


def carrier(kind: torch.dtype) -> torch.dtype:
    """Return the format in which results of tensors of a format are given."""
    return torch.float32 if kind.is_floating_point else torch.int64


def carried(result: object) -> torch.Tensor:
    """Return a result in that format."""
    tensor = torch.as_tensor(result)
    return tensor.to(carrier(tensor.dtype))


def is_beyond(sums: torch.Tensor) -> bool:
    """Return whether a sum of integers has left int32."""
    return bool(((sums >= BEYOND) | (sums < -BEYOND)).any())
