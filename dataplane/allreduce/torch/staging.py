"""Tensors of GPUs: copied to the host and back. Both copies are finished when the call returns, whatever the stream."""

from __future__ import annotations

from typing import Final

import torch

DEVICES: Final = ("cpu", "cuda")


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor itself, or a copy of a GPU's in pinned memory; waits for what is to fill the tensor."""
    if _is_on_host(tensor):
        return tensor.detach()
    copy = _empty_on_host(tensor)
    copy.copy_(tensor.detach())
    return copy


def back(host: torch.Tensor, tensor: torch.Tensor) -> None:
    """Fill the tensor with what `on_host` returned for it, and has been changed since."""
    if not _is_on_host(tensor):
        tensor.detach().copy_(host)


def future_of(tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """Return a future for a tensor: who waits for a GPU's waits on the streams of its own."""
    if tensor.device.type == "cpu":
        return torch.futures.Future()
    return torch.futures.Future(devices=[tensor.device])


def _is_on_host(tensor: torch.Tensor) -> bool:
    return bool(tensor.device.type == "cpu")


def _empty_on_host(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
