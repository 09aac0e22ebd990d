"""The learner: training network, optimiser and buffer, fed one experience at a time.

A learner is deterministic under its seed, on one processor with one number of threads: the same experiences in the same
order give the same weights. The learner has its own PyTorch random state (dropout) and leaves the process's untouched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from controller.learning.agent.batches import Batch, Seen, batch_of
from controller.learning.agent.buffer import Buffer
from controller.learning.agent.network import load, network, weights_of
from controller.learning.agent.settings import AgentSettings, Loss, TrainingSettings
from controller.learning.agent.weights import WeightSet
from controller.learning.errors import LearningError
from controller.learning.values import Experience

Tensor = Any
"""A tensor: torch's own types are not followed."""


class Optimiser:
    """Moves parameters by their gradients; its memory of each is saved and restored as bytes."""

    def __init__(self, settings: TrainingSettings, parameters: list[Tensor]) -> None:
        self._settings = settings
        self.learning_rate = settings.learning_rate
        self._parameters = parameters
        self._momenta = self._zeros() if settings.optimiser == "adam" or settings.momentum else []
        self._squares = self._zeros() if settings.optimiser == "adam" else []
        self._steps = [torch.tensor(0.0) for _ in parameters] if settings.optimiser == "adam" else []

    def step(self) -> None:
        """Take one step, and clear the gradients."""
        settings = self._settings
        if settings.clip:
            torch.nn.utils.clip_grad_norm_(self._parameters, settings.clip)
        gradients = [parameter.grad for parameter in self._parameters]
        with torch.no_grad():
            if settings.optimiser == "adam":
                self._adam(gradients)
            else:
                self._sgd(gradients)
        for parameter in self._parameters:
            parameter.grad = None

    def state(self) -> tuple[bytes, ...]:
        """Return its memory, float32."""
        return tuple(tensor.cpu().numpy().tobytes() for tensor in self._remembered())

    def restore(self, state: tuple[bytes, ...]) -> None:
        """Restore its memory; raise LearningError if that is of another optimiser or network."""
        held = self._remembered()
        sizes = [4 * tensor.numel() for tensor in held]
        if [len(data) for data in state] != sizes:
            raise LearningError(f"a state of {len(state)} parts does not fit {self._settings.optimiser} here")
        for tensor, data in zip(held, state, strict=True):
            tensor.copy_(torch.from_numpy(np.frombuffer(data, np.float32).copy()).reshape(tensor.shape))

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
        return [torch.zeros_like(parameter, requires_grad=False) for parameter in self._parameters]


"""A tensor: torch's own types are not followed."""


def criticality(error: Tensor, *, through: bool) -> Tensor:
    """Return |p - h| * c, c = log(1 + exp(-|p - h|)), for each error: the specification's formula.

    Its text has c as another ratio, of run times under the best schedule and the current one; the formula is used here.
    c is a factor without a gradient. With `through` it has one; then errors beyond 1.15 cost less the larger they are,
    because |p - h| * c falls there, and training drives them further away.
    """
    size = error.abs()
    factor = functional.softplus(-size)
    return size * (factor if through else factor.detach())


def cost(loss: Loss | None, error: Tensor) -> Tensor:
    """Return the cost of each error."""
    if loss == "huber":
        return functional.huber_loss(error, torch.zeros_like(error), reduction="none")
    if loss == "squared":
        return error.square()
    return criticality(error, through=loss == "criticality-through")


def quantile_cost(loss: Loss | None, predicted: Tensor, measured: Tensor) -> Tensor:
    """Return the cost of predicted quantiles [batch, q] for measured values [batch, m], for each of the batch.

    The cost of each pair's error is that of `loss`, weighted by the quantile if it is too low and by the rest if it is
    too high (quantile regression: Dabney and others, 2018).
    """
    count = predicted.shape[1]
    # Quantiles stand at the middle of equal parts (Dabney and others, 2018).
    share = (torch.arange(count, device=predicted.device, dtype=predicted.dtype) + 0.5) / count
    error = predicted[:, :, None] - measured[:, None, :]
    # Detached: which side an error is on is a constant of the loss.
    weight = (share[None, :, None] - (error.detach() > 0).to(predicted.dtype)).abs()
    return (weight * cost(loss, error)).mean(dim=2).sum(dim=1)


"""A tensor: torch's own types are not followed."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Result of one training step: decisions so far, experiences used, mean loss and mean error."""

    decisions: int
    steps: int
    experiences: int
    loss: float
    error: float


def has_fast_bfloat16() -> bool:
    """Return whether this processor has native bfloat16 multiplication."""
    return bool(torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001


class Learner:
    """Trains on experience; publishes a copy of the weights every so many decisions."""

    def __init__(self, settings: AgentSettings, start: WeightSet, device: str = "cpu") -> None:
        settings.check()
        self.settings = settings
        self.shape = start.shape
        self.buffer = Buffer(settings.training.buffer)
        self.published = start
        self.decisions = self.steps = self.refused = 0
        self.generator = np.random.default_rng([settings.seed, 1])
        self.progress: Progress | None = None
        self.is_ending = False
        """Set by another thread to end a step after its current batch."""
        self._device = device
        try:
            self._is_half = settings.training.precision == "bfloat16" and (
                torch.device(device).type != "cpu" or has_fast_bfloat16()
            )
            self._trained = network(start, settings.network.dropout, device, noise=settings.network.noise).train()
            self._fixed = network(start, settings.network.dropout, device).eval().requires_grad_(False)
        except (RuntimeError, AssertionError) as error:
            because = str(error).splitlines()[0]
            raise LearningError(f"training.device: {device!r}: {because}", at="training.device") from error
        self.optimiser = self._new_optimiser()
        self.torch_state = torch.Generator().manual_seed(settings.seed).get_state()

    def take(self, experience: Experience) -> WeightSet | None:
        """Take an experience, train if it is time, and return the weights to publish after this decision, if any.

        An experience with figures that are not finite, or with observations that do not fit the network, is counted in
        `refused` and not learned from; it still counts as a decision.
        """
        self.decisions += 1
        if self._fits(experience):
            self.buffer.add(experience)
        else:
            self.refused += 1
        if self._is_due():
            self.progress = self.train()
        training = self.settings.training
        is_time = self.decisions % training.publish_every == 0 and self.decisions >= training.first_publish
        return self.publish() if is_time else None

    def train(self) -> Progress:
        """Do one training step: up to `batches` batches from the buffer."""
        settings = self.settings.training
        if settings.drop_duplicates:
            self.buffer.drop_duplicates()
        if settings.half_steps:
            self.optimiser.learning_rate = settings.learning_rate * 0.5 ** (self.steps / settings.half_steps)
        drawn = self.buffer.draw(
            self.generator,
            settings.batch,
            settings.batches,
            power=settings.prioritised,
            importance=settings.importance,
        )
        losses: list[float] = []
        errors: dict[int, float] = {}
        with self._own_random_numbers():
            for draw in drawn:
                if self.is_ending:
                    break
                batch = batch_of(
                    draw.experiences, self.shape, settings.discount, settings.discount_time_ns, self._device
                )
                loss, batch_errors = self._fit(batch, draw.importance)
                losses.append(loss)
                errors |= dict(zip(draw.numbers, batch_errors, strict=True))
        if settings.remove_sampled:
            self.buffer.remove(set(errors))
        elif settings.prioritised:
            self.buffer.remember_errors(errors)
        self.steps += 1
        return Progress(
            self.decisions, self.steps, len(errors), _mean(losses), _mean([abs(error) for error in errors.values()])
        )

    def publish(self) -> WeightSet | None:
        """Return a copy of the weights with the next version; None if nothing was learned since the last, or for NaN.

        Weights that are not finite are never published: training continues from the last published ones.
        """
        if self.steps == 0:
            return None
        weights = self.weights(self.published.version + 1)
        if not weights.is_finite:
            self.refused += 1
            load(self._trained, self.published)
            self.optimiser = self._new_optimiser()
            return None
        self.published = weights
        load(self._fixed, weights)
        return weights

    def weights(self, version: int) -> WeightSet:
        """Return a copy of the training network's weights."""
        return weights_of(self._trained, self.shape, version)

    def restore_networks(self, trained: WeightSet, published: WeightSet, optimiser: tuple[bytes, ...]) -> None:
        """Restore both networks from a checkpoint."""
        load(self._trained, trained)
        load(self._fixed, published)
        self.published = published
        self.optimiser.restore(optimiser)

    def measured(self, batch: Batch) -> Tensor:
        """Return h for each experience of a batch, [batch, quantiles]: the reward and the following value, if any.

        The reward is the mean over identical experiences; the following value is the best candidate's, by published
        weights.
        """
        if batch.following is None:
            return batch.rewards[:, None].expand(-1, self.shape.quantiles)
        with torch.no_grad(), self._precision():
            values = self._fixed(batch.following.tokens, batch.following.absent)
            judge = values
            if self.settings.training.double:
                judge = self._evaluated(batch.following)
            best = judge.mean(dim=2).masked_fill(~batch.following.candidates, -torch.inf).argmax(dim=1)
            follows = _chosen(values, best).float()
            return batch.rewards[:, None] + batch.keep[:, None] * follows

    def _fit(self, batch: Batch, importance: tuple[float, ...]) -> tuple[float, list[float]]:
        """Take one step of the optimiser on a batch; return its loss and each experience's error."""
        measured = self.measured(batch)
        if self._trained.range is not None:
            self._trained.range.widen(batch.seen)
        with self._precision():
            predicted = self._trained.forward_chosen(batch.seen.tokens, batch.seen.absent, batch.actions)
        predicted = predicted.float()
        kind = self.settings.training.loss
        if predicted.shape[1] == 1:
            each = cost(kind, predicted - measured)[:, 0]
        else:
            each = quantile_cost(kind, predicted, measured)
        weights = torch.tensor(importance, dtype=each.dtype, device=each.device)
        loss = (each * weights).mean()
        loss.backward()
        self.optimiser.step()
        error = (predicted.detach() - measured).mean(dim=1).abs()
        return float(loss.detach()), [float(value) for value in error.tolist()]

    def _new_optimiser(self) -> Optimiser:
        return Optimiser(self.settings.training, list(self._trained.parameters()))

    def _evaluated(self, seen: Seen) -> Tensor:
        """Return the training network's values without dropout."""
        self._trained.eval()
        try:
            return self._trained(seen.tokens, seen.absent)
        finally:
            self._trained.train()

    def _is_due(self) -> bool:
        settings = self.settings.training
        if len(self.buffer) < (settings.start or self.buffer.capacity):
            return False
        return settings.remove_sampled or self.decisions % settings.train_every == 0

    def _fits(self, experience: Experience) -> bool:
        seen = [
            observation for observation in (experience.observation, experience.following) if observation is not None
        ]
        return (
            math.isfinite(experience.reward)
            and 0 <= experience.action < experience.observation.actions
            and all(self.shape.fits(observation) and np.isfinite(observation.row).all() for observation in seen)
        )

    def _precision(self) -> Tensor:
        """Return a context in which matrix products have the requested precision, if that is fast here."""
        return torch.autocast(torch.device(self._device).type, torch.bfloat16, enabled=self._is_half)

    @contextmanager
    def _own_random_numbers(self) -> Iterator[None]:
        """Have PyTorch draw from the learner's random state, and leave the process's untouched."""
        before = torch.get_rng_state()
        torch.set_rng_state(self.torch_state)
        try:
            yield
        finally:
            self.torch_state = torch.get_rng_state()
            torch.set_rng_state(before)


def _chosen(values: Tensor, actions: Tensor) -> Tensor:
    """Return the quantiles [batch, quantiles] of one action each, of [batch, actions, quantiles]."""
    return values.gather(1, actions[:, None, None].expand(-1, 1, values.shape[2]))[:, 0]


def _mean(figures: list[float]) -> float:
    return float(np.mean(figures)) if figures else 0.0
