"""What may be asked of the network's services, gRPC and P4Runtime, and who may ask it; pure.

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
    """What a call needs."""

    READ = "read"
    """To see what a service knows."""
    CHANGE = "change"
    """To tell it something, or to write tables."""
    OPERATE = "operate"
    """To decide about it: end jobs, replace rules and programs, take ports out of use."""
    ATTEND = "attend"
    """To be a worker of a job."""


_ALL: Final = frozenset(Permission)
_OF_USERS: Final = {
    Right.CHANGE: frozenset({Permission.CHANGE}),
    Right.OPERATE: frozenset({Permission.CHANGE, Permission.OPERATE}),
}


def permissions_of(principal: Principal) -> frozenset[Permission]:
    """Return what somebody may ask."""
    match principal.role:
        case Role.SERVICE | Role.ADMIN:
            return _ALL
        case Role.WORKER:
            return frozenset({Permission.ATTEND})
        case Role.USER:
            return frozenset({Permission.READ}).union(*(_OF_USERS.get(right, ()) for right in principal.rights))
    return frozenset()


def check(principal: Principal, needed: Permission, what: str) -> None:
    """Raise AccessError for who may not ask `what`."""
    if needed not in permissions_of(principal):
        raise AccessError(f"{principal} may not call {what}: that needs the permission to {needed.value}")


def check_host(principal: Principal, host: str) -> None:
    """Raise AccessError for a worker that says it is on another host than its certificate or token proves."""
    if principal.role is Role.WORKER and principal.subject != host:
        raise AccessError(f"{principal} may not attend as host {host}")
