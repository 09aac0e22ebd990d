"""Errors of the controller's side.

MillraceError
└── ControllerError
    ├── SessionError       a P4Runtime session to a switch failed: names switch, what was done, code and cause
    ├── UnservedError      a switch does not serve what was asked for
    ├── PathError          the path server cannot do what was asked
    │   ├── NoSuchPathError    a flow cannot take what was called a path
    │   └── DeadPathError      a flow cannot be pinned to a path with a dead link
    ├── AltoError          a request to the ALTO server is not one that it can answer
    ├── CostMapError       what lies between hosts is not known now
    ├── JobError           the job service cannot do what was asked
    ├── HardwareError      a node, a request or a share is not what it can be (controller/cluster/hardware/errors.py)
    ├── EstimateError      times cannot be compared or combined (controller/cluster/estimates/errors.py)
    ├── OperatorError      an operator or a graph of them is wrong (controller/cluster/operators/errors.py)
    ├── ContainerError     a container runtime cannot do what was asked (controller/workloads/nodes/runtimes/errors.py)
    ├── CentreError        a centre's agent or its engine cannot do what was asked
    ├── WorkloadError      a workload's file or values are wrong (controller/cluster/workloads/errors.py)
    ├── PlacementError     the workload controller cannot run as its settings say
    ├── SchedulerError     a scheduler cannot do what was asked; probing, acceleration, learning have errors below it
    ├── BalanceError       balancing cannot do what was asked (controller/balance/errors.py)
    ├── StorageError       the storage of schedulers cannot do what was asked
    │   ├── ConflictError      a key is not as the writer believed
    │   ├── CompactedError     a revision is forgotten
    │   └── LeaseError         a lease has ended
    └── ApiError           the API server cannot do what was asked, or refuses it
        ├── InvalidError       the request is not what it should be
        ├── UnauthorizedError  there is no token, or it is none that counts
        ├── ForbiddenError     whoever asks may not do this
        ├── NotFoundError      there is no such resource
        ├── StaleError         a resource is not as the writer believed, or what is asked for does not fit
        ├── GoneError          a revision is forgotten: list again
        ├── TooLargeError      a request has more bytes than are taken
        ├── TooManyError       somebody asks for more than his share
        └── UnavailableError   the API server, or its storage, is away
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

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


class UnservedError(ControllerError):
    """A switch does not support what was asked for, whoever asks: bmv2 has no gNMI."""


class PathError(ControllerError):
    """The path server cannot do what was asked."""


class NoSuchPathError(PathError):
    """A given path does not lead from one end of the flow to the other; the text says why."""


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
    """The job service cannot do what was asked."""


class SchedulerError(ControllerError):
    """A scheduler cannot do what was asked; the text names the policy, profile, task or node that it is about."""


class StorageError(ControllerError):
    """The storage of schedulers cannot do what was asked."""


class ConflictError(StorageError):
    """A key has changed since the writer read it; nothing was written.

    `expected` and `found` are the revisions at which it was modified last, 0 if it does not exist; None for a `found`
    that the storage does not report.
    """

    def __init__(self, key: str, expected: int, found: int | None) -> None:
        self.key, self.expected, self.found = key, expected, found
        wanted = "exists already" if expected == 0 else f"is not at revision {expected}"
        now = "" if found is None else ", it does not exist" if found == 0 else f", it is at revision {found}"
        super().__init__(f"{key}: {wanted}{now}" if expected == 0 else f"{key}: {wanted} any more{now}")


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
    """The API server cannot do what was asked; `status` is HTTP's code for it."""

    status: ClassVar[int] = 500


class InvalidError(ApiError):
    """A request is not what it should be; the text names the key."""

    status = 400


class UnauthorizedError(ApiError):
    """There is no token, or it is none that counts (any more)."""

    status = 401


class ForbiddenError(ApiError):
    """Whoever asks may not do this."""

    status = 403


class NotFoundError(ApiError):
    """There is no such resource."""

    status = 404


class StaleError(ApiError):
    """A resource is not as the writer believed, or what is asked for does not fit: nothing was done."""

    status = 409


class GoneError(ApiError):
    """A revision is forgotten: list again, and watch from there."""

    status = 410


class TooLargeError(ApiError):
    """A request has more bytes than are taken."""

    status = 413


class TooManyError(ApiError):
    """A caller exceeds its share; `wait_s` is the time after which to retry."""

    status = 429

    def __init__(self, text: str, wait_s: float = 1.0) -> None:
        self.wait_s = wait_s
        super().__init__(text)


class UnavailableError(ApiError):
    """The API server cannot be reached, or its storage is away."""

    status = 503
