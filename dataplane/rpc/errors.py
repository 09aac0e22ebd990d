"""What a service of ours answers instead of a message, with gRPC's code.

MillraceError
└── CallError             a call is refused: the code and one line for who called
    └── MessageError        INVALID_ARGUMENT: the request does not decode, or says what cannot be
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
    """A message is not what its .proto and our limits say; the text names the field."""

    def __init__(self, text: str) -> None:
        super().__init__(grpc.StatusCode.INVALID_ARGUMENT, text)
