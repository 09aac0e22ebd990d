"""Tensors as the bytes that a main server distributes or takes: theirs, in their order, without a header."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from dataplane.errors import AllReduceError


def joined(tensors: Iterable[torch.Tensor]) -> bytes:
    """Return the bytes of tensors."""
    return b"".join(_flat(tensor).numpy().tobytes() for tensor in tensors)


def split(data: bytes, tensors: Sequence[torch.Tensor]) -> None:
    """Fill tensors with their bytes; raise AllReduceError, and change none, if they are not as many."""
    expected = sum(tensor.numel() * tensor.itemsize for tensor in tensors)
    if len(data) != expected:
        raise AllReduceError(f"the main server has sent {len(data)} bytes, not the {expected} of these tensors")
    at = 0
    for tensor in tensors:
        size = tensor.numel() * tensor.itemsize
        if size:
            part = torch.frombuffer(bytearray(data[at : at + size]), dtype=torch.uint8)
            with torch.no_grad():
                tensor.copy_(part.view(tensor.dtype).view(tensor.shape))
        at += size


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
