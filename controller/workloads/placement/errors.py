"""Errors of the workload controller.

ControllerError
└── PlacementError    the workload controller cannot run with its settings
"""

from __future__ import annotations

from controller.common.errors import ControllerError


class PlacementError(ControllerError):
    """The workload controller cannot run with its settings."""
