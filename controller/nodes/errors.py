"""Errors of a node's manager."""

from __future__ import annotations

from controller.errors import ControllerError


class NodeError(ControllerError):
    """A node's manager cannot run as it is set; one line that names the node, the file or the key."""
