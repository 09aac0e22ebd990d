"""Project: users who share what they create, with a quota and a weight for scarce resources."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from controller.apiserver.resources.base import Count, Kind, Priority, Resource
from dataplane.config import Strict


class Quota(Strict, frozen=True):
    """Limits of a project, or of a user without one, at any time; null: unlimited.

    Ended pods, groups and tasks count only for `objects` and `bytes`. A group with a template counts as all of its
    pods.
    """

    highest_priority: Priority | None = 0
    """For its pods, groups and tasks: higher priorities go first, and may evict pods of lower ones."""
    pods: Count | None = 1_000
    tasks: Count | None = 2_000
    pending: Count | None = 2_000
    """Pods and tasks waiting for placement."""
    units: Count | None = None
    """Units of compute centres requested by tasks."""
    cpu_milli: Count | None = None
    memory_bytes: Count | None = None
    device_thousandths: Count | None = None
    """A whole device is 1,000."""
    objects: Count | None = 20_000
    """Stored pods, groups, tasks, probe tasks and probe kernels."""
    bytes: Count | None = 64 << 20
    """Total stored size of these objects."""


class Usage(Strict, frozen=True):
    """Usage of each resource that a quota limits."""

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
    """Quota and weight."""

    quota: Quota = Quota()
    weight: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    """Share of contended resources, in proportion to the weights; others may borrow unused shares."""


class ProjectStatus(Strict, frozen=True):
    """Current usage, computed by the server on read."""

    used: Usage = Usage()


class Project(Resource, frozen=True):
    """Users who share what they create; tokens and certificates name the members."""

    spec: ProjectSpec = ProjectSpec()
    status: ProjectStatus = ProjectStatus()
    kind: Literal["Project"] = "Project"


PROJECT = Kind("Project", "projects", Project)
