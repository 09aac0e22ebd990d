"""Measures a machine for its calibration: rates, and operators at several sizes."""

from __future__ import annotations

from controller.acceleration.calibration.measuring.measure import measure

__all__ = ["measure"]
