"""Usage of what quotas limit, by account: each project, and each owner without one; pure."""

from __future__ import annotations

from typing import Final

from controller.apiserver.registry.tenancy.tenants import account_of
from controller.apiserver.resources import Pod, PodGroup, ProbeKernel, ProbeTask, Resource, Task
from controller.apiserver.resources.hardware import Request
from controller.apiserver.resources.pod import Phase
from controller.apiserver.resources.pod_group import GroupPhase
from controller.apiserver.resources.project import Quota, Usage
from controller.apiserver.resources.task import TASK_ENDED, TaskPhase

NOTHING: Final = Usage()
_COUNTED: Final = (Pod, PodGroup, Task, ProbeTask, ProbeKernel)
_PODS_ENDED: Final = (Phase.SUCCEEDED, Phase.FAILED)
_GROUPS_ENDED: Final = (GroupPhase.FINISHED, GroupPhase.FAILED)
_PARTS: Final = Usage.__struct_fields__


class UsageBook:
    """Usage of each account, tracked per resource."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[str, Usage]] = {}
        self._totals: dict[str, Usage] = {}

    def put(self, key: str, resource: Resource | None, nbytes: int) -> None:
        """Record what is stored under a key, and its size; None: deleted."""
        before = self._entries.pop(key, None)
        if before is not None:
            self._add(before[0], minus(NOTHING, before[1]))
        if isinstance(resource, _COUNTED):
            entry = account_of(resource.metadata), usage_of(resource, nbytes)
            self._entries[key] = entry
            self._add(*entry)

    def of(self, account: str) -> Usage:
        """Return an account's usage."""
        return self._totals.get(account, NOTHING)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._totals.clear()

    def _add(self, account: str, usage: Usage) -> None:
        total = plus(self.of(account), usage)
        if total == NOTHING:
            self._totals.pop(account, None)
        else:
            self._totals[account] = total


def usage_of(resource: Resource, nbytes: int) -> Usage:
    """Return a resource's usage; a pod that follows a template is counted with its group."""
    if isinstance(resource, Pod):
        phase = resource.status.phase
        if resource.metadata.part_of is not None or phase in _PODS_ENDED:
            return Usage(objects=1, bytes=nbytes)
        return _of_pods(resource.spec.request, 1, int(phase is Phase.PENDING), nbytes)
    if isinstance(resource, PodGroup):
        template, stage = resource.spec.template, resource.status.phase
        if template is None or stage in _GROUPS_ENDED:
            return Usage(objects=1, bytes=nbytes)
        size = resource.spec.size
        return _of_pods(template.request, size, size if stage is GroupPhase.PENDING else 0, nbytes)
    if isinstance(resource, Task) and resource.status.phase not in TASK_ENDED:
        waits = resource.status.phase in (TaskPhase.PENDING, TaskPhase.PROBING)
        units = max(resource.spec.units, default=1)
        return Usage(tasks=1, pending=int(waits), units=units, objects=1, bytes=nbytes)
    return Usage(objects=1, bytes=nbytes)


def priority_of(resource: Resource) -> int | None:
    """Return the highest priority that a resource asks for, None if its kind has none."""
    if isinstance(resource, PodGroup):
        template = resource.spec.template
        return max(resource.spec.priority, resource.spec.priority if template is None else template.priority)
    return resource.spec.priority if isinstance(resource, Pod | Task) else None


def plus(one: Usage, other: Usage) -> Usage:
    """Return the sum of two usages."""
    return Usage(**{part: getattr(one, part) + getattr(other, part) for part in _PARTS})


def minus(one: Usage, other: Usage) -> Usage:
    """Return the difference of two usages; parts of it may be negative."""
    return Usage(**{part: getattr(one, part) - getattr(other, part) for part in _PARTS})


def excess(quota: Quota, had: Usage, added: Usage) -> str | None:
    """Return which part of a quota an addition would exceed, None if it fits.

    Parts that do not grow are ignored: usage above a lowered quota may shrink.
    """
    for part in _PARTS:
        most, more = getattr(quota, part), getattr(added, part)
        total = getattr(had, part) + more
        if most is not None and more > 0 and total > most:
            return f"{part}: {total}, at most {most}"
    return None


def _of_pods(request: Request, count: int, pending: int, nbytes: int) -> Usage:
    return Usage(
        pods=count,
        pending=pending,
        cpu_milli=count * request.cpu_milli,
        memory_bytes=count * request.memory_bytes,
        device_thousandths=count * sum(need.count * need.thousandths for need in request.devices),
        objects=1,
        bytes=nbytes,
    )
