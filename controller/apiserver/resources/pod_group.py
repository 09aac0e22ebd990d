"""PodGroup: pods that are placed together or not at all."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from msgspec import Meta

from controller.apiserver.resources.base import (
    MAX_NAME,
    Count,
    Line,
    Lines,
    Name,
    Priority,
    Resource,
    Seconds,
    TimeNs,
)
from controller.apiserver.resources.kind import Kind, Rights, Server, Strategy, Usage, Verb, check_secrets
from controller.apiserver.resources.pod import PodSpec, check_containers, usage_of_pods, with_end
from dataplane.config import Strict
from dataplane.rpc.access import Principal, Role

MOST_PODS = 50
"""All pods of a group are bound in one transaction of the storage."""


class AllReduce(Strict, frozen=True):
    """A job of in-network aggregation: each pod is one of its workers, on a separate host."""

    service: Line | None = None
    """Address of the job service for pods: unix:PATH or HOST:PORT; null: from the workload controller's settings."""
    job: Name | None = None
    """Name of the job; null: the group's."""


class OnFailure(StrEnum):
    """Part of a group that starts again when a pod fails, restarts or is lost with its node."""

    POD = "pod"
    """That pod alone."""
    GROUP = "group"
    """All pods of the group, together: for programs whose processes cannot go on without each other."""


class PodGroupSpec(Strict, frozen=True):
    """Number of pods that must name the group before any is placed; with a template they are created from it."""

    size: Annotated[int, Meta(ge=1, le=MOST_PODS)]
    priority: Priority = 0
    wait_s: Seconds | None = None
    """A group that is not placed within this time fails."""
    template: PodSpec | None = None
    """Template of its pods, which are created, replaced and deleted with it; null: users write pods that name it."""
    allreduce: AllReduce | None = None
    """Its pods are the workers of a job with in-network aggregation."""
    on_failure: OnFailure = OnFailure.POD
    """Part that starts again when one of its pods fails; `group` requires a template."""

    def __post_init__(self) -> None:
        if self.template is not None and self.template.group is not None:
            raise ValueError("template: its pods must belong to this group")
        if self.allreduce is not None and self.template is None:
            raise ValueError("allreduce: a template is required, which tells workers their job")
        if self.on_failure is OnFailure.GROUP and self.template is None:
            raise ValueError("on_failure: a template is required, from which all pods are created again")


class GroupPhase(StrEnum):
    """Phase in the life of a group."""

    PENDING = "pending"
    BOUND = "bound"
    FAILED = "failed"
    FINISHED = "finished"


GROUP_ENDED: Final = (GroupPhase.FINISHED, GroupPhase.FAILED)


class PodGroupStatus(Strict, frozen=True):
    """State of the group."""

    phase: GroupPhase = GroupPhase.PENDING
    bound: Count = 0
    decision: Name | None = None
    finished_ns: TimeNs | None = None
    """Time at which it finished or failed, by the server's clock."""
    reasons: Lines = ()
    starts_again: Count = 0
    """Number of times that all of its pods were created again after a failure of one."""


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
        """Fewest pods to bind at once: first the missing part of the group, later any lost pod; 0: none."""
        if self.status.phase is GroupPhase.PENDING:
            return max(self.spec.size - self.status.bound, 1)
        return 1 if self.status.phase is GroupPhase.BOUND else 0


class PodGroupStrategy(Strategy[PodGroup]):
    """Groups: with a template, one counts as all of its pods."""

    def validate(self, current: PodGroup | None, wanted: PodGroup) -> None:
        """Refuse secrets without a project, and containers that cannot start."""
        template = wanted.spec.template
        check_secrets("PodGroup", wanted.metadata, named=template is not None and template.names_secrets)
        if template is not None:
            before = None if current is None else current.spec.template
            check_containers("PodGroup", wanted.metadata.name, before, template)

    def prepare_status(self, current: PodGroup, wanted: PodGroup, principal: Principal, server: Server) -> PodGroup:
        """Stamp the end."""
        return with_end(wanted, has_ended=wanted.status.phase in GROUP_ENDED, now_ns=server.now_ns)

    def usage(self, resource: PodGroup) -> Usage:
        """Count the pods of a template until the group has ended."""
        template, phase, size = resource.spec.template, resource.status.phase, resource.spec.size
        if template is None or phase in GROUP_ENDED:
            return Usage()
        return usage_of_pods(template.requested, size, size if phase is GroupPhase.PENDING else 0)

    def priority(self, resource: PodGroup) -> int:
        """Return the higher of the group's and its pods' priority."""
        spec = resource.spec
        return spec.priority if spec.template is None else max(spec.priority, spec.template.priority)


POD_GROUP = Kind(
    "PodGroup",
    "podgroups",
    PodGroup,
    fields={"phase": lambda group: group.status.phase.value},
    columns={
        "phase": lambda group: group.status.phase.value,
        "bound": lambda group: f"{group.status.bound}/{group.spec.size}",
    },
    rights=Rights(is_private=True, users_write=True, roles={Role.PLACEMENT: frozenset({Verb.READ, Verb.STATUS})}),
    strategy=PodGroupStrategy(),
    is_subject=True,
)
