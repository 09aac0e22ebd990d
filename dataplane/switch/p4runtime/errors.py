"""The one error that the P4Runtime service answers with.

P4RuntimeError (a SwitchError)
└── carries a canonical code, a message and, for batches, one p4.v1.Error an update (P4Runtime, section 10)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import IntEnum

from finsy.proto import p4r, rpc_status

from dataplane.errors import EntryError, EntryFault, SwitchError

ERROR_SPACE = "millrace"
"""The space of the numbers in p4.v1.Error.code: 101 and up for faults in the tables, else the canonical code."""

LARGEST_STATUS_BYTES = 8_000
"""Fits the metadata that a gRPC client accepts by default (8 KB)."""


class Code(IntEnum):
    """Canonical codes (google/rpc/code.proto); gRPC's status codes have the same numbers."""

    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class P4RuntimeError(SwitchError):
    """A request is refused: code, one line of text, and for batches the result of each element, in order."""

    def __init__(
        self, code: Code, message: str, details: Sequence[p4r.Error] = (), fault: EntryFault | None = None
    ) -> None:
        self.code, self.message, self.details, self.fault = code, message, tuple(details), fault
        super().__init__(f"{code.name}: {message}")

    def to_error(self) -> p4r.Error:
        """Return the error of one element of a batch; `code` in our space distinguishes faults in the tables."""
        number = self.code if self.fault is None else _FAULT_NUMBERS[self.fault]
        return p4r.Error(canonical_code=self.code, message=self.message, space=ERROR_SPACE, code=number)

    def to_status(self, largest_bytes: int = LARGEST_STATUS_BYTES) -> rpc_status.Status:
        """Return the google.rpc.Status for the trailer `grpc-status-details-bin`.

        A client refuses a trailer that is too long, and then learns nothing. So if the whole would be too long, the
        details keep only their codes; if those are, too, only the message tells which ones failed.
        """
        status = self._status(self.details)
        if status.ByteSize() > largest_bytes:
            status = self._status([p4r.Error(canonical_code=detail.canonical_code) for detail in self.details])
        if status.ByteSize() > largest_bytes:
            status = self._status(())
        return status

    def _status(self, details: Iterable[p4r.Error]) -> rpc_status.Status:
        status = rpc_status.Status(code=self.code, message=self.message)
        for detail in details:
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
_FAULT_NUMBERS = {fault: 101 + index for index, fault in enumerate(EntryFault)}


def from_entry_error(error: EntryError) -> P4RuntimeError:
    """Return the refusal that P4Runtime prescribes for a fault in the tables."""
    return P4RuntimeError(_CODES[error.fault], str(error), fault=error.fault)


def invalid(message: str) -> P4RuntimeError:
    """Return an INVALID_ARGUMENT error, by far the most common one."""
    return P4RuntimeError(Code.INVALID_ARGUMENT, message)


def unimplemented(what: str) -> P4RuntimeError:
    """Return an UNIMPLEMENTED error."""
    return P4RuntimeError(Code.UNIMPLEMENTED, f"{what}: not supported by this switch")


def wrong_device(asked: int, ours: int) -> P4RuntimeError:
    """Return the refusal of a request for another device; `told_device` reads ours from it."""
    return P4RuntimeError(Code.NOT_FOUND, f"there is no device {asked} here: this is device {ours}")


def told_device(message: str) -> int | None:
    """Return the device id that a refusal of `wrong_device` tells, None for another message."""
    told = re.search(r"this is device (\d+)$", message)
    return None if told is None else int(told[1])
