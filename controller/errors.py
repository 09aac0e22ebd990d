"""Errors of the controller's side.

MillraceError
└── ControllerError
    ├── SessionError       a P4Runtime session to a switch failed: names switch, what was done, code and cause
    ├── PathError          the path server cannot do what was asked
    └── JobError           the job service cannot do what was asked
"""

from __future__ import annotations

from collections.abc import Sequence

from dataplane.errors import MillraceError


class ControllerError(MillraceError):
    """Root of the controller's errors."""


class SessionError(ControllerError):
    """A P4Runtime session failed; the text names the switch, what was being done, the gRPC code and the cause.

    `refused` are the positions, within the batch that was written, of the updates that the switch refused; the others
    of that batch took effect. Empty, and nothing is known of any of them, where the call itself failed.
    """

    def __init__(
        self, switch: str, doing: str, cause: str, *, code: str | None = None, refused: Sequence[int] = ()
    ) -> None:
        self.switch, self.doing, self.cause, self.code, self.refused = switch, doing, cause, code, tuple(refused)
        super().__init__(f"switch {switch}: {doing}: {code}: {cause}" if code else f"switch {switch}: {doing}: {cause}")


class PathError(ControllerError):
    """The path server cannot do what was asked."""


class JobError(ControllerError):
    """The job service cannot do what was asked."""
