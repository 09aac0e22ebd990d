"""Errors of the main controller.

ControllerError
└── PlacementError    the main controller cannot run as its settings say
"""

from __future__ import annotations

from controller.common.errors import ControllerError


class PlacementError(ControllerError):
    """The main controller cannot run as its settings say."""
