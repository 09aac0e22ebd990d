"""Project: users who share what they create, with a quota and a weight for scarce resources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from controller.apiserver.resources.base import Count, Priority, Resource
from controller.apiserver.resources.kind import Kind, Rights, Server, Strategy, Usage, owner_of
from dataplane.config import Strict
from dataplane.rpc.access import Principal


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


class ProjectStrategy(Strategy[Project]):
    """Projects: each belongs to itself, so that its members see it, and shows its current usage."""

    def prepare(self, new: Project, principal: Principal, server: Server) -> Project:
        """Make the project its own."""
        metadata = replace(new.metadata, owner=owner_of(principal), project=new.metadata.name)
        return replace(new, metadata=metadata)

    def shown(self, resource: Project, server: Server) -> Project:
        """Add the current usage."""
        return replace(resource, status=ProjectStatus(used=server.used(resource.metadata.account)))


def _column(part: str, per: int = 1) -> Callable[[Project], str]:
    """Return a column with a project's usage and limit of a part, in units of `per`."""

    def read(project: Project) -> str:
        most = getattr(project.spec.quota, part)
        return f"{getattr(project.status.used, part) / per:g}/{'any' if most is None else f'{most / per:g}'}"

    return read


PROJECT = Kind(
    "Project",
    "projects",
    Project,
    columns={
        "weight": lambda project: project.spec.weight,
        "pods": _column("pods"),
        "tasks": _column("tasks"),
        "waiting": _column("pending"),
        "devices": _column("device_thousandths", 1_000),
        "cores": _column("cpu_milli", 1_000),
    },
    rights=Rights(is_private=True),
    strategy=ProjectStrategy(),
)
