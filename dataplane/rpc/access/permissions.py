"""Permissions of the network's services, gRPC and P4Runtime, by role; pure.

| role | permissions |
| --- | --- |
| user | read; with the right `change` change as well, with `operate` all three |
| service, admin | all |
| worker | attend, for its own host |
| any other | none: they call the API server only |
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from dataplane.errors import AccessError
from dataplane.rpc.access.values import Principal, Right, Role


class Permission(StrEnum):
    """Permission that a call requires."""

    READ = "read"
    """Read a service's state."""
    CHANGE = "change"
    """Report to a service, or write tables."""
    OPERATE = "operate"
    """Control a service: end jobs, replace rules and programs, take ports out of use."""
    ATTEND = "attend"
    """Take part in a job as a worker."""


_ALL: Final = frozenset(Permission)
_OF_USERS: Final = {
    Right.CHANGE: frozenset({Permission.CHANGE}),
    Right.OPERATE: frozenset({Permission.CHANGE, Permission.OPERATE}),
}


def permissions_of(principal: Principal) -> frozenset[Permission]:
    """Return a principal's permissions."""
    match principal.role:
        case Role.SERVICE | Role.ADMIN:
            return _ALL
        case Role.VIEWER:
            return frozenset({Permission.READ})
        case Role.WORKER:
            return frozenset({Permission.ATTEND})
        case Role.USER:
            return frozenset({Permission.READ}).union(*(_OF_USERS.get(right, ()) for right in principal.rights))
    return frozenset()


def check(principal: Principal, needed: Permission, what: str) -> None:
    """Raise AccessError if the principal may not call `what`."""
    if needed not in permissions_of(principal):
        raise AccessError(f"{principal} may not call {what}: that needs the permission to {needed.value}")


def check_host(principal: Principal, host: str) -> None:
    """Raise AccessError for a worker that claims another host than its certificate or token proves."""
    if principal.role is Role.WORKER and principal.subject != host:
        raise AccessError(f"{principal} may not attend as host {host}")
