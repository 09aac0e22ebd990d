"""Errors of `millrace up`."""

from __future__ import annotations

from controller.common.errors import ControllerError


class UpError(ControllerError):
    """The supervisor cannot run, or cannot be reached; one line that names the obstacle."""
