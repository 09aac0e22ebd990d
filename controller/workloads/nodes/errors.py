"""Errors of a node's manager."""

from __future__ import annotations

from controller.common.errors import ControllerError


class NodeError(ControllerError):
    """A node's manager cannot run with its settings; one line that names the node, the file or the key."""
