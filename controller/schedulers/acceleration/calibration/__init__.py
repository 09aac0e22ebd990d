"""How fast machines do operators: measured, fitted, kept in a file; what nobody knows is said to be unknown."""

from __future__ import annotations

from controller.schedulers.acceleration.calibration.calibration import Calibration, Side
from controller.schedulers.acceleration.calibration.default import DEFAULT
from controller.schedulers.acceleration.calibration.errors import CalibrationError
from controller.schedulers.acceleration.calibration.files import dumps, load, loads, save
from controller.schedulers.acceleration.calibration.values import Figure, Fit, Rates, Run

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
