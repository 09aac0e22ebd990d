"""Steps that bring the API server's resources in line with a manifest; pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from controller.apiserver.manifests.values import Scripted
from controller.apiserver.resources import Pod, PodGroup
from controller.apiserver.resources.pod import POD_ENDED, changed_parts, fixed_changes
from controller.apiserver.resources.pod_group import GROUP_ENDED

_OF_TEMPLATE: Final = "millrace/group"


class Action(StrEnum):
    """Action of a step."""

    CREATE = "create"
    CHANGE = "change"
    LEAVE = "leave"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Step:
    """One resource of a manifest: the action, the parts that change, and the reason for a refusal."""

    scripted: Scripted
    action: Action
    resource: Pod | PodGroup
    changes: tuple[str, ...] = ()
    reason: str = ""


def step_of(scripted: Scripted, found: Pod | PodGroup | None) -> Step:
    """Return the step for a resource of a manifest, given its current state; None if it does not exist."""
    wanted = scripted.resource
    if found is None:
        return Step(scripted, Action.CREATE, wanted)
    changes = _changes(found, wanted)
    refusal = _refusal(found, wanted, changes)
    if refusal:
        return Step(scripted, Action.REFUSE, wanted, changes, refusal)
    if not changes:
        return Step(scripted, Action.LEAVE, found)
    metadata = replace(found.metadata, labels=wanted.metadata.labels)
    return Step(scripted, Action.CHANGE, replace(found, metadata=metadata, spec=wanted.spec), changes)


def _changes(found: Pod | PodGroup, wanted: Pod | PodGroup) -> tuple[str, ...]:
    if isinstance(found, Pod) and isinstance(wanted, Pod):
        parts = changed_parts(found.spec, wanted.spec)
    else:
        names = (field.name for field in msgspec.structs.fields(wanted.spec))
        parts = tuple(name for name in names if getattr(found.spec, name) != getattr(wanted.spec, name))
    return parts if found.metadata.labels == wanted.metadata.labels else (*parts, "labels")


def _refusal(found: Pod | PodGroup, wanted: Pod | PodGroup, changes: tuple[str, ...]) -> str:
    """Return why a resource cannot be changed as wanted; empty if it can."""
    name = found.metadata.name
    if found.metadata.deleting_ns is not None:
        return "it is being deleted: apply again once it is gone"
    if not changes:
        return ""
    if isinstance(found, PodGroup):
        ended = found.status.phase in GROUP_ENDED
        return f"it has {found.status.phase}: delete it first (millrace delete podgroup {name})" if ended else ""
    assert isinstance(wanted, Pod)
    if _OF_TEMPLATE in found.metadata.labels:
        return f"it is created from the template of group {found.metadata.labels[_OF_TEMPLATE]}: change that"
    if found.status.phase in POD_ENDED:
        return f"it has {found.status.phase}: delete it first (millrace pod delete {name})"
    fixed = fixed_changes(found.spec, wanted.spec)
    if found.status.node is not None and fixed:
        what = " and ".join(fixed)
        return (
            f"its {what} cannot change while it is on node {found.status.node}, which was chosen on that basis: "
            f"delete it first (millrace pod delete {name})"
        )
    return ""
