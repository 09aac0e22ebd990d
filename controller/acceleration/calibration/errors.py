"""Errors of calibrations.

AccelerationError
└── CalibrationError  measured runs say too little, or a calibration is not what it can be
"""

from __future__ import annotations

from controller.acceleration.errors import AccelerationError


class CalibrationError(AccelerationError):
    """A calibration cannot be made or is wrong; the text names the device, the kind and the figure."""
