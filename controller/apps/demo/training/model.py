"""Model that the demo trains: a small transformer that learns to count, with unmodified DistributedDataParallel."""

from __future__ import annotations

import hashlib
import time
from typing import Final

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORDS: Final = 16
WIDTH: Final = 32
LENGTH: Final = 12
BATCH: Final = 8


class Transformer(nn.Module):  # type: ignore[misc]
    """Predicts the next word at each position of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.said = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) / 10)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return, for each position, the logits of the next word."""
        return self.said(self.layers(self.words(words) + self.places, mask=self.mask, is_causal=True))


def batch(chance: torch.Generator) -> torch.Tensor:
    """Return sequences that count up, each with its own step."""
    first = torch.randint(0, WORDS, (BATCH, 1), generator=chance)
    step = torch.randint(1, 4, (BATCH, 1), generator=chance)
    return (first + step * torch.arange(LENGTH + 1)) % WORDS


class Training:
    """A model and its training state; equal ranks see equal data. `ended_s` are the ends of the steps."""

    def __init__(self, rank: int) -> None:
        torch.manual_seed(0)
        self.net = Transformer()
        self.model = DistributedDataParallel(self.net, bucket_cap_mb=0.02, forward_sync_buffers=False)
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self._chance = torch.Generator().manual_seed(100 + rank)
        self.done = torch.zeros(1, dtype=torch.int64)
        self.losses: list[float] = []
        self.ended_s: list[float] = []

    def step(self) -> None:
        """Train on one batch."""
        words = batch(self._chance)
        loss = nn.functional.cross_entropy(self.model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.losses.append(loss.item())
        self.ended_s.append(time.monotonic())
        self.done += 1

    def shared(self) -> list[torch.Tensor]:
        """Return the state that the next step depends on, except the data."""
        momentum = [self.optimiser.state[part]["momentum_buffer"] for part in self.net.parameters()]
        return [self.done, *self.net.parameters(), *momentum]

    def digest(self) -> str:
        """Return a hash of all parameters, to the bit."""
        whole = torch.cat([part.detach().reshape(-1) for part in self.net.parameters()])
        return hashlib.sha256(whole.numpy().tobytes()).hexdigest()
