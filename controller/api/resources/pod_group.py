"""PodGroup: pods that are placed together or not at all."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta

from controller.api.resources.base import Count, Kind, Lines, Name, Priority, Resource, Seconds
from dataplane.config import Strict

MOST_PODS = 50
"""All of a group are bound in one transaction of the storage."""


class PodGroupSpec(Strict, frozen=True):
    """How many pods name it as their group before any of them is placed."""

    size: Annotated[int, Meta(ge=1, le=MOST_PODS)]
    priority: Priority = 0
    wait_s: Seconds | None = None
    """A group that is not placed after so long has failed."""


class GroupPhase(StrEnum):
    """Where a group is in its life."""

    PENDING = "pending"
    BOUND = "bound"
    FAILED = "failed"
    FINISHED = "finished"


class PodGroupStatus(Strict, frozen=True):
    """What became of it."""

    phase: GroupPhase = GroupPhase.PENDING
    bound: Count = 0
    decision: Name | None = None
    reasons: Lines = ()


class PodGroup(Resource, frozen=True):
    """Pods that are placed together or not at all."""

    spec: PodGroupSpec
    status: PodGroupStatus = PodGroupStatus()
    kind: Literal["PodGroup"] = "PodGroup"


POD_GROUP = Kind("PodGroup", "podgroups", PodGroup, fields={"phase": lambda group: group.status.phase.value})
