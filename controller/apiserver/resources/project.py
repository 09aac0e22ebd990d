"""Project: users who share what they create, what all of it may be together, and its part of what is scarce."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from controller.apiserver.resources.base import Count, Kind, Priority, Resource
from dataplane.config import Strict


class Quota(Strict, frozen=True):
    """The most that a project, or a user without one, may have at a time; null: any number.

    What has ended counts for `objects` and `bytes` alone. A group with a template counts as all of its pods.
    """

    highest_priority: Priority | None = 0
    """Of its pods, groups and tasks: of a higher priority they go before those of others, and may have them evicted."""
    pods: Count | None = 1_000
    tasks: Count | None = 2_000
    pending: Count | None = 2_000
    """Pods and tasks that wait for a place."""
    units: Count | None = None
    """Of compute centres, asked for by tasks."""
    cpu_milli: Count | None = None
    memory_bytes: Count | None = None
    device_thousandths: Count | None = None
    """A whole device is 1,000."""
    objects: Count | None = 20_000
    """Pods, groups, tasks, probe tasks and probe kernels that are stored."""
    bytes: Count | None = 64 << 20
    """That those have as they are stored."""


class Usage(Strict, frozen=True):
    """What a project has of each that a quota bounds."""

    pods: Count = 0
    tasks: Count = 0
    pending: Count = 0
    units: Count = 0
    cpu_milli: Count = 0
    memory_bytes: Count = 0
    device_thousandths: Count = 0
    objects: Count = 0
    bytes: Count = 0


class ProjectSpec(Strict, frozen=True):
    """What it may have."""

    quota: Quota = Quota()
    weight: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    """Of what projects compete for, each gets a part in proportion to it; what one leaves, others borrow."""


class ProjectStatus(Strict, frozen=True):
    """What it has, as the server knows when it is asked."""

    used: Usage = Usage()


class Project(Resource, frozen=True):
    """Users who share what they create; who is in it is in their tokens and certificates."""

    spec: ProjectSpec = ProjectSpec()
    status: ProjectStatus = ProjectStatus()
    kind: Literal["Project"] = "Project"


PROJECT = Kind("Project", "projects", Project)
