"""Errors of hardware."""

from __future__ import annotations

from controller.common.errors import ControllerError


class HardwareError(ControllerError):
    """An invalid node, request or share; the text names the node and the resource."""
