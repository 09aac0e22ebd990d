"""Loss functions: the specification's, and those that depart from it. Errors are predicted minus measured."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from controller.learning.agent.settings import Loss

Tensor = Any
"""A tensor: torch's own types are not followed."""


def criticality(error: Tensor, *, through: bool) -> Tensor:
    """Return |p - h| * c, c = log(1 + exp(-|p - h|)), for each error: the specification's formula.

    Its words have c as another ratio, of run times under the best schedule and the current one: the formula stands
    here. c is a factor: no gradient goes through it. With `through` one does; then errors beyond 1.15 cost less the
    greater they are, as |p - h| * c falls there, and training drives them further away.
    """
    size = error.abs()
    factor = functional.softplus(-size)
    return size * (factor if through else factor.detach())


def cost(loss: Loss, error: Tensor) -> Tensor:
    """Return what each error costs."""
    if loss == "huber":
        return functional.huber_loss(error, torch.zeros_like(error), reduction="none")
    if loss == "squared":
        return error.square()
    return criticality(error, through=loss == "criticality-through")


def quantile_cost(loss: Loss, predicted: Tensor, measured: Tensor) -> Tensor:
    """Return what predicted quantiles [batch, q] of measured values [batch, m] cost, for each of the batch.

    Each pair's error costs as `loss` says, weighted by the quantile where it is too low and by the rest where it is
    too high (quantile regression: Dabney and others, 2018).
    """
    count = predicted.shape[1]
    share = (torch.arange(count, device=predicted.device, dtype=predicted.dtype) + 0.5) / count
    error = predicted[:, :, None] - measured[:, None, :]
    weight = (share[None, :, None] - (error.detach() > 0).to(predicted.dtype)).abs()
    return (weight * cost(loss, error)).mean(dim=2).sum(dim=1)
