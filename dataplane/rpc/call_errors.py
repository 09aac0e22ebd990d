"""Readable reasons for failed gRPC calls; gRPC's own texts begin with library internals."""

from __future__ import annotations

from typing import Final

import grpc
import grpc.aio

PERMANENT: Final = frozenset(
    {
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    }
)
"""Codes for which waiting does not help."""

_UNREACHABLE: Final = "last error:"
_HANDSHAKE: Final = "Tls handshake failed"
_HUNG_UP: Final = "Socket closed"
_NO_NAME: Final = "errors resolving "
_ANSWERED: Final = frozenset(
    {
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    }
)
"""Codes that our servers return, each with a sentence."""


def reason_of(error: grpc.aio.AioRpcError | grpc.Call) -> str:
    """Return why a call of one of our services failed, in one line."""
    details = " ".join((error.details() or "").split())
    match error.code():
        case code if code in _ANSWERED and details:
            return details
        case grpc.StatusCode.UNAVAILABLE if _HANDSHAKE in details:
            return f"{_HANDSHAKE}: the server has no certificate of our authority for this address"
        case grpc.StatusCode.UNAVAILABLE if _UNREACHABLE in details and details.endswith(_HUNG_UP):
            return "it hangs up at once: it takes TLS, or no TLS, or a certificate of another authority"
        case grpc.StatusCode.UNAVAILABLE if _UNREACHABLE in details:
            return f"cannot connect: {details.rpartition(': ')[2]}"
        case grpc.StatusCode.UNAVAILABLE if details.startswith(_NO_NAME):
            return f"there is no host {details.removeprefix(_NO_NAME).partition(': ')[0]}"
        case grpc.StatusCode.UNIMPLEMENTED:
            return "another service answers there, or another version"
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return "no answer in time"
        case code:
            return f"{code.name}: {details}"
