"""Errors of estimates."""

from __future__ import annotations

from controller.common.errors import ControllerError


class EstimateError(ControllerError):
    """An invalid estimate, or estimates that cannot be compared or combined as requested."""
