"""The one error that the gNMI service answers with.

GnmiError (a SwitchError)
└── carries a gRPC status code and one line of text (gNMI, sections 3.3.4, 3.4.7 and 3.5.2.4)
"""

from __future__ import annotations

import grpc

from dataplane.errors import SwitchError


class GnmiError(SwitchError):
    """A request is refused: code and one line of text."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(f"{code.name}: {message}")


def invalid(message: str) -> GnmiError:
    """Return an INVALID_ARGUMENT error: the request itself is invalid."""
    return GnmiError(grpc.StatusCode.INVALID_ARGUMENT, message)


def unimplemented(message: str) -> GnmiError:
    """Return an UNIMPLEMENTED error: the request may be valid, but is not supported here."""
    return GnmiError(grpc.StatusCode.UNIMPLEMENTED, message)


def not_found(message: str) -> GnmiError:
    """Return a NOT_FOUND error: there is no such node at present."""
    return GnmiError(grpc.StatusCode.NOT_FOUND, message)


def exhausted(message: str) -> GnmiError:
    """Return a RESOURCE_EXHAUSTED error: a limit was reached."""
    return GnmiError(grpc.StatusCode.RESOURCE_EXHAUSTED, message)
