"""Errors of estimates."""

from __future__ import annotations

from controller.common.errors import ControllerError


class EstimateError(ControllerError):
    """An estimate cannot be as it was given, or cannot be compared or combined as was asked."""
