"""Errors of calibrations.

AccelerationError
└── CalibrationError  measured runs are insufficient, or a calibration is invalid
"""

from __future__ import annotations

from controller.acceleration.errors import AccelerationError


class CalibrationError(AccelerationError):
    """A calibration cannot be made or is invalid; the text names the device, the kind and the figure."""
