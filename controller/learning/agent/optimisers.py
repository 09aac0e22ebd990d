"""SGD and Adam by PyTorch's functions: its classes load a compiler first, seconds of a process that starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from controller.learning.agent.settings import TrainingSettings
from controller.learning.errors import LearningError

Tensor = Any
"""A tensor: torch's own types are not followed."""


class Optimiser:
    """Moves parameters by their gradients; what it remembers of each is told and taken back as bytes."""

    def __init__(self, settings: TrainingSettings, parameters: list[Tensor]) -> None:
        self._settings = settings
        self.learning_rate = settings.learning_rate
        self._parameters = parameters
        self._momenta = self._zeros() if settings.optimiser == "adam" or settings.momentum else []
        self._squares = self._zeros() if settings.optimiser == "adam" else []
        self._steps = [torch.tensor(0.0) for _ in parameters] if settings.optimiser == "adam" else []

    def step(self) -> None:
        """Take one step, and forget the gradients."""
        settings = self._settings
        if settings.clip:
            torch.nn.utils.clip_grad_norm_(self._parameters, settings.clip)
        gradients = [one.grad for one in self._parameters]
        with torch.no_grad():
            if settings.optimiser == "adam":
                self._adam(gradients)
            else:
                self._sgd(gradients)
        for one in self._parameters:
            one.grad = None

    def state(self) -> tuple[bytes, ...]:
        """Return what is remembered, float32."""
        return tuple(one.cpu().numpy().tobytes() for one in self._remembered())

    def restore(self, state: tuple[bytes, ...]) -> None:
        """Remember what a checkpoint had; raise LearningError where it is of another optimiser or network."""
        held = self._remembered()
        sizes = [4 * one.numel() for one in held]
        if [len(data) for data in state] != sizes:
            raise LearningError(f"a state of {len(state)} parts is not that of {self._settings.optimiser} here")
        for one, data in zip(held, state, strict=True):
            one.copy_(torch.from_numpy(np.frombuffer(data, np.float32).copy()).reshape(one.shape))

    def _sgd(self, gradients: list[Tensor]) -> None:
        momenta = self._momenta or [None] * len(gradients)
        sgd(
            self._parameters,
            gradients,
            momenta,
            foreach=False,
            weight_decay=0.0,
            momentum=self._settings.momentum,
            lr=self.learning_rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )

    def _adam(self, gradients: list[Tensor]) -> None:
        adam(
            self._parameters,
            gradients,
            self._momenta,
            self._squares,
            [],
            self._steps,
            foreach=False,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.learning_rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )

    def _remembered(self) -> list[Tensor]:
        return [*self._momenta, *self._squares, *self._steps]

    def _zeros(self) -> list[Tensor]:
        return [torch.zeros_like(one, requires_grad=False) for one in self._parameters]
