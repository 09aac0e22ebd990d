"""Errors that our services return instead of a message, with gRPC's code.

MillraceError
└── CallError             a call is refused: the code and one line for the caller
    └── MessageError        INVALID_ARGUMENT: the request does not decode or is invalid
"""

from __future__ import annotations

import grpc

from dataplane.errors import MillraceError


class CallError(MillraceError):
    """A call is refused; its caller gets the code and the text."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        self.code = code
        super().__init__(text)


class MessageError(CallError):
    """A message violates its .proto or our limits; the text names the field."""

    def __init__(self, text: str) -> None:
        super().__init__(grpc.StatusCode.INVALID_ARGUMENT, text)
