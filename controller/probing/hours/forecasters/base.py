"""What a forecaster is."""

from __future__ import annotations

from typing import Protocol


class Forecaster(Protocol):
    """One way to say what the next measurement will be; streaming, deterministic, of bounded memory."""

    @property
    def name(self) -> str:
        """What it is called, for people."""

    def next(self, time_s: float) -> float | None:
        """Return what a measurement at a time after all that were seen will be; None where it cannot say."""

    def see(self, time_s: float, value: float) -> None:
        """Take a measurement, later than all before."""
