"""Protocol of a forecaster."""

from __future__ import annotations

from typing import Protocol


class Forecaster(Protocol):
    """Prediction of the next measurement; streaming, deterministic, of bounded memory."""

    @property
    def name(self) -> str:
        """Human-readable name."""

    def next(self, time_s: float) -> float | None:
        """Return the prediction of a measurement at a time after all that were seen; None if there is none."""

    def see(self, time_s: float, value: float) -> None:
        """Take a measurement, later than all before."""
