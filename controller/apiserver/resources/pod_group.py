"""PodGroup: pods that are placed together or not at all."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta

from controller.apiserver.resources.base import (
    MAX_NAME,
    Count,
    Kind,
    Line,
    Lines,
    Name,
    Priority,
    Resource,
    Seconds,
    TimeNs,
)
from controller.apiserver.resources.pod import PodSpec
from dataplane.config import Strict

MOST_PODS = 50
"""All of a group are bound in one transaction of the storage."""


class AllReduce(Strict, frozen=True):
    """A job of in-network aggregation: each pod is one of its workers, on a host of its own."""

    service: Line | None = None
    """Address of the job service for pods: unix:PATH or HOST:PORT; null: as the workload controller's settings say."""
    job: Name | None = None
    """The job's name; null: the group's."""


class PodGroupSpec(Strict, frozen=True):
    """How many pods name it as their group before any of them is placed; with a template they are made from it."""

    size: Annotated[int, Meta(ge=1, le=MOST_PODS)]
    priority: Priority = 0
    wait_s: Seconds | None = None
    """A group that is not placed after so long has failed."""
    template: PodSpec | None = None
    """What its pods are like, which are made, replaced and removed with it; null: users write pods that name it."""
    allreduce: AllReduce | None = None
    """Its pods are the workers of a job that switches add up for."""

    def __post_init__(self) -> None:
        if self.template is not None and self.template.group is not None:
            raise ValueError("template: the group of its pods is this one")
        if self.allreduce is not None and self.template is None:
            raise ValueError("allreduce: workers are told of their job by a template")


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
    finished_ns: TimeNs | None = None
    """When it had finished or failed, by the server's clock."""
    reasons: Lines = ()


class PodGroup(Resource, frozen=True):
    """Pods that are placed together or not at all."""

    spec: PodGroupSpec
    status: PodGroupStatus = PodGroupStatus()
    kind: Literal["PodGroup"] = "PodGroup"

    def __post_init__(self) -> None:
        if self.spec.template is not None and len(self.metadata.name) > MAX_NAME - len(f"-{MOST_PODS}"):
            raise ValueError(f"metadata.name: with the numbers of its pods it has more than {MAX_NAME} characters")

    @property
    def needed(self) -> int:
        """How many of its pods are bound at once at least: first the whole, then any that it has lost; 0: none may."""
        if self.status.phase is GroupPhase.PENDING:
            return max(self.spec.size - self.status.bound, 1)
        return 1 if self.status.phase is GroupPhase.BOUND else 0


POD_GROUP = Kind("PodGroup", "podgroups", PodGroup, fields={"phase": lambda group: group.status.phase.value})
