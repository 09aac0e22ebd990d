"""Objective of a search: a smooth stand-in for the maximum utilisation, plus a little of the traffic's delay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.network.paths.engineering.values import FloatArray


@dataclass(frozen=True, slots=True)
class Potential:
    """The soft maximum of all utilisations over `scale`, plus delay; arrays are by link, loads in the rates' unit.

    soft maximum = 1 + log(sum of exp(sharpness * (utilisation / scale - 1))) / sharpness: the sharper, the nearer to
    the maximum itself, and the fewer links have a price.
    """

    rates: FloatArray
    delay_costs: FloatArray
    """Delay cost of a unit of load on each link."""
    sharpness: float
    scale: float

    def value(self, loads: FloatArray) -> float:
        """Return the potential of loads."""
        exponents = self.sharpness * (loads / self.rates / self.scale - 1.0)
        most = float(exponents.max())
        soft = 1.0 + (most + float(np.log(np.exp(exponents - most).sum()))) / self.sharpness
        return soft + float(loads @ self.delay_costs)

    def congestion_prices(self, loads: FloatArray) -> FloatArray:
        """Return how fast the soft maximum grows with each link's load."""
        exponents = self.sharpness * (loads / self.rates / self.scale)
        powers = np.exp(exponents - exponents.max())
        return np.asarray(powers / powers.sum() / self.rates / self.scale)

    def prices(self, loads: FloatArray) -> FloatArray:
        """Return how fast the potential grows with each link's load."""
        return self.congestion_prices(loads) + self.delay_costs
