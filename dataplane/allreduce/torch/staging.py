"""Staging of tensors for a reducer: dense, and in host memory. Copies are complete when the call returns.

A sparse tensor is laid out densely: blocks that are zero at all workers are not sent, and cost only their exponents.
"""

from __future__ import annotations

from typing import Final

import torch

DEVICES: Final = ("cpu", "cuda")
LAYOUTS: Final = (torch.strided, torch.sparse_coo)


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor itself, or a dense copy on the host, in pinned memory if it is a GPU's.

    Waits for pending writes to the tensor.
    """
    values = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
    if _is_on_host(tensor):
        return values
    copy = _empty_on_host(values)
    copy.copy_(values)
    return copy


def back(host: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, filled from the (since changed) result of `on_host` for it.

    For a sparse one, return a new tensor with the rows that are not zero.
    """
    if tensor.is_sparse:
        return host.to_sparse(tensor.sparse_dim()).to(tensor.device)
    if not _is_on_host(tensor):
        tensor.detach().copy_(host)
    return tensor


def future_of(tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """Return a future for a tensor: a waiter for a GPU's tensor waits on its own streams."""
    if tensor.device.type == "cpu":
        return torch.futures.Future()
    return torch.futures.Future(devices=[tensor.device])


def _is_on_host(tensor: torch.Tensor) -> bool:
    return bool(tensor.device.type == "cpu")


def _empty_on_host(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
