"""The one error that the P4Runtime service answers with.

P4RuntimeError (a SwitchError)
└── carries a canonical code, a message and, for batches, one p4.v1.Error an update (P4Runtime, section 10)
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from finsy.proto import p4r, rpc_status

from dataplane.errors import EntryError, EntryFault, SwitchError


class Code(IntEnum):
    """Canonical codes (google/rpc/code.proto); gRPC's status codes have the same numbers."""

    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class P4RuntimeError(SwitchError):
    """A request is refused: code, one line of text, and for batches what became of each element, in order."""

    def __init__(self, code: Code, message: str, details: Sequence[p4r.Error] = ()) -> None:
        self.code, self.message, self.details = code, message, tuple(details)
        super().__init__(f"{code.name}: {message}")

    def to_error(self) -> p4r.Error:
        """Return the error of one element of a batch."""
        return p4r.Error(canonical_code=self.code, message=self.message)

    def to_status(self) -> rpc_status.Status:
        """Return the google.rpc.Status that goes into the trailer `grpc-status-details-bin`."""
        status = rpc_status.Status(code=self.code, message=self.message)
        for detail in self.details:
            status.details.add().Pack(detail)
        return status


_CODES = {
    EntryFault.INVALID: Code.INVALID_ARGUMENT,
    EntryFault.NOT_FOUND: Code.NOT_FOUND,
    EntryFault.EXISTS: Code.ALREADY_EXISTS,
    EntryFault.FULL: Code.RESOURCE_EXHAUSTED,
    EntryFault.OUT_OF_RANGE: Code.OUT_OF_RANGE,
    EntryFault.CONST: Code.PERMISSION_DENIED,
    EntryFault.IN_USE: Code.FAILED_PRECONDITION,
}


def from_entry_error(error: EntryError) -> P4RuntimeError:
    """Return the refusal that P4Runtime prescribes for a fault in the tables."""
    return P4RuntimeError(_CODES[error.fault], str(error))


def invalid(message: str) -> P4RuntimeError:
    """Return an INVALID_ARGUMENT error, by far the most common one."""
    return P4RuntimeError(Code.INVALID_ARGUMENT, message)


def unimplemented(what: str) -> P4RuntimeError:
    """Return an UNIMPLEMENTED error."""
    return P4RuntimeError(Code.UNIMPLEMENTED, f"{what}: not supported by this switch")
