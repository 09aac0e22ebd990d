"""Randomness of a link in one direction: frames lost, and the delay of each of the others."""

from __future__ import annotations

import random

from dataplane.topology.units import PPB
from dataplane.topology.values import DirectedLink


class Chance:
    """Draws for one direction of a link; equal seeds draw the same, and a link without loss and jitter draws nothing.

    Losses and jitter use separate generators: a file with another jitter loses the same frames.
    """

    def __init__(self, link: DirectedLink, seed: str) -> None:
        self._link = link
        self._loss = random.Random(f"{seed}/loss/{link.key}") if link.loss_ppb else None
        self._jitter = random.Random(f"{seed}/jitter/{link.key}") if link.jitter_ns else None
        self._last_ns = 0

    def loses(self) -> bool:
        """Return whether the next frame is lost."""
        return self._loss is not None and self._loss.randrange(PPB) < self._link.loss_ppb

    def arrival_ns(self, departs_ns: int) -> int:
        """Return the arrival time of a frame that departs at a time: never before the one returned last."""
        link = self._link
        if self._jitter is None:
            return departs_ns + link.delay_ns
        drawn_ns = link.delay_ns + self._jitter.randint(-link.jitter_ns, link.jitter_ns)
        self._last_ns = max(self._last_ns, departs_ns + drawn_ns)
        return self._last_ns
