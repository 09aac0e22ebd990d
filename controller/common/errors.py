"""Errors of the controller's side.

MillraceError
└── ControllerError
    ├── SessionError       a P4Runtime session to a switch failed: names switch, what was done, code and cause
    ├── UnservedError      a switch does not support the request
    ├── PathError          the path server cannot carry out a request
    │   ├── NoSuchPathError    a given path is not one of the flow's, or what to drain does not exist
    │   ├── StaleDrainsError   the drains have changed since the revision that a request names
    │   └── DeadPathError      a flow cannot be pinned to a path with a dead or drained link
    ├── AltoError          the ALTO server cannot answer a request
    ├── CostMapError       costs between hosts are unknown
    ├── JobError           the job service cannot carry out a request
    ├── LostLeaseError     a daemon of a pair is not, or no longer, the active one
    ├── HardwareError      a node, a request or a share is invalid (controller/cluster/hardware/errors.py)
    ├── EstimateError      times cannot be compared or combined (controller/cluster/estimates/errors.py)
    ├── OperatorError      an operator or an operator graph is invalid (controller/cluster/operators/errors.py)
    ├── ContainerError     a container runtime cannot carry out a call (controller/workloads/nodes/runtimes/errors.py)
    ├── CentreError        a centre's agent or its engine failed
    ├── WorkloadError      a workload's file or values are invalid (controller/cluster/workloads/errors.py)
    ├── PlacementError     the workload controller cannot run with its settings
    ├── SchedulerError     a scheduler failed; errors of probing, acceleration and learning derive from it
    ├── BalanceError       balancing failed (controller/balance/errors.py)
    ├── StorageError       the API server's storage failed
    │   ├── ConflictError      a key is not at the expected revision
    │   ├── CompactedError     a revision was compacted
    │   └── LeaseError         a lease has ended
    └── ApiError           the API server refused a request, or failed
        ├── InvalidError       the request is invalid
        ├── UnauthorizedError  the token is missing or invalid
        ├── ForbiddenError     the caller may not do this
        ├── NotFoundError      the resource does not exist
        ├── StaleError         a resource has changed, or the request does not fit
        ├── GoneError          a revision was compacted: list again
        ├── TooLargeError      a request is too large
        ├── TooManyError       a caller exceeds its share
        └── UnavailableError   the API server, or its storage, is unavailable
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from dataplane.errors import MillraceError

_LONGEST: Final = 400


class ControllerError(MillraceError):
    """Root of the controller's errors."""


class SessionError(ControllerError):
    """A P4Runtime session failed; the text names the switch, what was being done, the gRPC code and the cause.

    `refused` are the positions of refused updates in the written batch; the others took effect. It is empty if the call
    itself failed: then the outcome of all updates is unknown.
    """

    def __init__(
        self, switch: str, doing: str, cause: str, *, code: str | None = None, refused: Sequence[int] = ()
    ) -> None:
        self.switch, self.doing, self.cause, self.code, self.refused = switch, doing, cause, code, tuple(refused)
        super().__init__(f"switch {switch}: {doing}: {code}: {cause}" if code else f"switch {switch}: {doing}: {cause}")


class UnservedError(ControllerError):
    """A switch does not support a request, whoever sends it: bmv2 has no gNMI."""


class PathError(ControllerError):
    """The path server cannot carry out a request."""


class NoSuchPathError(PathError):
    """A given path does not lead from one end of the flow to the other; the text says why."""


class StaleDrainsError(PathError):
    """The set of drained elements has changed since the revision that a request names."""


class DeadPathError(PathError):
    """A link of the path that a flow was to be pinned to is dead; the text names it."""


class AltoError(ControllerError):
    """A request to the ALTO server cannot be answered; `code` is one of RFC 7285's, `field` the path of a member."""

    def __init__(
        self, code: str, *, field: str | None = None, value: str | None = None, syntax_error: str | None = None
    ) -> None:
        self.code, self.field, self.value, self.syntax_error = code, field, value, syntax_error
        parts = (code, field, None if value is None else repr(value), syntax_error)
        super().__init__(": ".join(part for part in parts if part is not None))


class CostMapError(ControllerError):
    """Costs between hosts are unknown: none have arrived, or they are too old or of another topology."""


class JobError(ControllerError):
    """The job service cannot carry out a request."""


class LostLeaseError(ControllerError):
    """A daemon of a pair is not the active one, or no longer: it must not write."""


class SchedulerError(ControllerError):
    """A scheduler failed; the text names the policy, profile, task or node concerned."""


class StorageError(ControllerError):
    """The API server's storage failed."""


class ConflictError(StorageError):
    """A key has changed since the writer read it; nothing was written.

    `expected` and `found` are the revisions of its last modification, 0 if it does not exist; `found` is None if the
    storage does not report it.
    """

    def __init__(self, key: str, expected: int, found: int | None) -> None:
        self.key, self.expected, self.found = key, expected, found
        problem = "already exists" if expected == 0 else f"is no longer at revision {expected}"
        now = "" if found is None else ", it does not exist" if found == 0 else f", it is at revision {found}"
        super().__init__(f"{key}: {problem}{now}")


class CompactedError(StorageError):
    """A revision has been compacted; `oldest` is the oldest that can still be requested, None if unknown."""

    def __init__(self, revision: int, oldest: int | None) -> None:
        self.revision, self.oldest = revision, oldest
        kept = "" if oldest is None else f", the oldest kept is {oldest}"
        super().__init__(f"revision {revision} has been compacted{kept}")


class LeaseError(StorageError):
    """A lease has ended or does not exist."""

    def __init__(self, lease: int) -> None:
        self.lease = lease
        super().__init__(f"lease {lease:x} has ended")


class ApiError(ControllerError):
    """The API server refused a request, or failed; `status` is the HTTP status."""

    status: ClassVar[int] = 500


class InvalidError(ApiError):
    """A request is invalid; the text names the key."""

    status = 400


class UnauthorizedError(ApiError):
    """The token is missing, invalid, revoked or expired."""

    status = 401


class ForbiddenError(ApiError):
    """The caller may not do this."""

    status = 403


class NotFoundError(ApiError):
    """The resource does not exist."""

    status = 404


class StaleError(ApiError):
    """A resource has changed, or the request does not fit: nothing was done."""

    status = 409


class GoneError(ApiError):
    """A revision was compacted: list again, and watch from there."""

    status = 410


class TooLargeError(ApiError):
    """A request is too large."""

    status = 413


class TooManyError(ApiError):
    """A caller exceeds its share; `wait_s` is the time after which to retry."""

    status = 429

    def __init__(self, text: str, wait_s: float = 1.0) -> None:
        self.wait_s = wait_s
        super().__init__(text)


class UnavailableError(ApiError):
    """The API server cannot be reached, or its storage is unavailable."""

    status = 503


def reason_of(error: BaseException) -> str:
    """Return an error as one printable line, preceded by its type if the error was unforeseen."""
    text = str(error) if isinstance(error, ControllerError) else f"{type(error).__name__}: {error}"
    line = " ".join(text.split())
    return "".join(letter if letter.isprintable() else "?" for letter in line)[:_LONGEST]
