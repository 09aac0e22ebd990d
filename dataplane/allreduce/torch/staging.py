"""Tensors as a reducer takes them: dense, and in the host's memory. What is copied is finished when the call returns.

A sparse tensor is laid out densely: blocks that are zero at all workers are not sent at all, and cost nothing but
their exponents.
"""

from __future__ import annotations

from typing import Final

import torch

DEVICES: Final = ("cpu", "cuda")
LAYOUTS: Final = (torch.strided, torch.sparse_coo)


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor itself, or a dense copy on the host, in pinned memory if it is a GPU's.

    Waits for what is to fill the tensor.
    """
    values = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
    if _is_on_host(tensor):
        return values
    copy = _empty_on_host(values)
    copy.copy_(values)
    return copy


def back(host: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, filled with what `on_host` returned for it and has been changed since.

    Instead of a sparse one it is a new one, with those rows that are not zero.
    """
    if tensor.is_sparse:
        return host.to_sparse(tensor.sparse_dim()).to(tensor.device)
    if not _is_on_host(tensor):
        tensor.detach().copy_(host)
    return tensor


def future_of(tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """Return a future for a tensor: who waits for a GPU's waits on the streams of its own."""
    if tensor.device.type == "cpu":
        return torch.futures.Future()
    return torch.futures.Future(devices=[tensor.device])


def _is_on_host(tensor: torch.Tensor) -> bool:
    return bool(tensor.device.type == "cpu")


def _empty_on_host(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
