"""Operator speeds of machines: measured, fitted, and kept in a file; unknown values are reported as unknown."""

from __future__ import annotations

from controller.acceleration.calibration.calibration import Calibration, Side
from controller.acceleration.calibration.default import DEFAULT
from controller.acceleration.calibration.errors import CalibrationError
from controller.acceleration.calibration.files import dumps, load, loads, save
from controller.acceleration.calibration.values import Figure, Fit, Rates, Run

__all__ = [
    "DEFAULT",
    "Calibration",
    "CalibrationError",
    "Figure",
    "Fit",
    "Rates",
    "Run",
    "Side",
    "dumps",
    "load",
    "loads",
    "save",
]
