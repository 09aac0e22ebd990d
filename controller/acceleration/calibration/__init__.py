"""How fast machines do operators: measured, fitted, kept in a file; what nobody knows is said to be unknown."""

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
