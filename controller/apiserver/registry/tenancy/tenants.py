"""Ownership of resources: a user's and their project's, as known to the server at creation; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from controller.apiserver.resources import Metadata, Pod, PodGroup
from controller.apiserver.resources.kind import owner_of
from controller.common.errors import ForbiddenError, InvalidError, StaleError
from dataplane.rpc.access import Principal, Role

_RESERVED: Final = ("millrace.", "millrace/")
_FOR_OTHERS: Final = (Role.ADMIN, Role.SERVICE, Role.PLACEMENT)
"""Roles that create resources for somebody else: the pods of a user's group."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A user, who owns what they created and what belongs to their projects."""

    name: str
    projects: tuple[str, ...] = ()

    def has(self, metadata: Metadata) -> bool:
        """Return whether a resource belongs to this user or one of their projects."""
        return metadata.owner == self.name or metadata.project in self.projects


def tenant_of(principal: Principal) -> Tenant | None:
    """Return the tenant of a user, None for other roles, which are not restricted."""
    return Tenant(principal.name, principal.projects) if principal.role is Role.USER else None


def owned(principal: Principal, metadata: Metadata) -> Metadata:
    """Return the metadata of a new resource with its owner and project.

    Raise ForbiddenError for a project that is not the caller's, InvalidError for another owner.
    """
    if principal.role in _FOR_OTHERS:
        return replace(metadata, owner=metadata.owner or owner_of(principal))
    if metadata.owner not in ("", owner_of(principal)):
        raise InvalidError("metadata.owner: the server sets the owner of a new resource")
    if metadata.part_of is not None:
        raise InvalidError("metadata.part_of: the server sets the group that a pod follows")
    if metadata.project and metadata.project not in principal.projects:
        raise ForbiddenError(f"{principal} is not a member of project {metadata.project}")
    project = metadata.project or next(iter(principal.projects), "")
    return replace(metadata, owner=owner_of(principal), project=project)


def check_labels(principal: Principal, before: Metadata | None, wanted: Metadata) -> None:
    """Raise InvalidError if a user sets, changes or removes a label by which services recognise their resources."""
    if principal.role is not Role.USER:
        return
    had = {} if before is None else before.labels
    changed = {name for name in had.keys() | wanted.labels.keys() if had.get(name) != wanted.labels.get(name)}
    for name in sorted(changed):
        if name.startswith(_RESERVED):
            raise InvalidError(
                f"metadata.labels: {name}: names that begin with millrace. or millrace/ are reserved for services"
            )


def check_group(pod: Pod, group: PodGroup) -> None:
    """Raise StaleError for a pod that names a group of another project or owner."""
    if pod.metadata.account != group.metadata.account:
        raise StaleError(
            f"Pod {pod.metadata.name} belongs to {pod.metadata.account}, its PodGroup {group.metadata.name} does not"
        )
