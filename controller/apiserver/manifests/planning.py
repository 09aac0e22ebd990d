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


def step_of(scripted: Scripted, current: Pod | PodGroup | None) -> Step:
    """Return the step for a resource of a manifest, given its current state; None if it does not exist."""
    wanted = scripted.resource
    if current is None:
        return Step(scripted, Action.CREATE, wanted)
    changes = _changes(current, wanted)
    refusal = _refusal(current, wanted, changes)
    if refusal:
        return Step(scripted, Action.REFUSE, wanted, changes, refusal)
    if not changes:
        return Step(scripted, Action.LEAVE, current)
    metadata = replace(current.metadata, labels=wanted.metadata.labels)
    return Step(scripted, Action.CHANGE, replace(current, metadata=metadata, spec=wanted.spec), changes)


def _changes(current: Pod | PodGroup, wanted: Pod | PodGroup) -> tuple[str, ...]:
    if isinstance(current, Pod) and isinstance(wanted, Pod):
        parts = changed_parts(current.spec, wanted.spec)
    else:
        names = (field.name for field in msgspec.structs.fields(wanted.spec))
        parts = tuple(name for name in names if getattr(current.spec, name) != getattr(wanted.spec, name))
    return parts if current.metadata.labels == wanted.metadata.labels else (*parts, "labels")


def _refusal(current: Pod | PodGroup, wanted: Pod | PodGroup, changes: tuple[str, ...]) -> str:
    """Return why a resource cannot be changed as wanted; empty if it can."""
    name = current.metadata.name
    if current.metadata.deleting_ns is not None:
        return "it is being deleted: apply again once it is gone"
    if not changes:
        return ""
    if isinstance(current, PodGroup):
        ended = current.status.phase in GROUP_ENDED
        return f"it has {current.status.phase}: delete it first (millrace delete podgroup {name})" if ended else ""
    assert isinstance(wanted, Pod)
    if _OF_TEMPLATE in current.metadata.labels:
        return f"it is created from the template of group {current.metadata.labels[_OF_TEMPLATE]}: change that"
    if current.status.phase in POD_ENDED:
        return f"it has {current.status.phase}: delete it first (millrace pod delete {name})"
    fixed = fixed_changes(current.spec, wanted.spec)
    if current.status.node is not None and fixed:
        what = " and ".join(fixed)
        return (
            f"its {what} cannot change while it is on node {current.status.node}, which was chosen on that basis: "
            f"delete it first (millrace pod delete {name})"
        )
    return ""
