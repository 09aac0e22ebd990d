"""Errors of the controller's side.

MillraceError
└── ControllerError
    ├── SessionError       a P4Runtime session to a switch failed: names switch, table and gRPC code
    └── PathError          the path server cannot do what was asked
"""

from __future__ import annotations

from dataplane.errors import MillraceError


class ControllerError(MillraceError):
    """Root of the controller's errors."""


class SessionError(ControllerError):
    """A P4Runtime session failed; the text names the switch and what was being done."""


class PathError(ControllerError):
    """The path server cannot do what was asked."""
