"""Errors of hardware."""

from __future__ import annotations

from controller.common.errors import ControllerError


class HardwareError(ControllerError):
    """A node, a request or what is held of a node is not what it can be; the text names the node and the resource."""
