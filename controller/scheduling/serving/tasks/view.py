"""The task scheduler's view of centres, tasks, probe tasks and results, from watches, ready for decisions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from controller.apiserver.resources import Centre, ProbeKernel, ProbeResult, ProbeTask, ScoringPolicy, Task
from controller.apiserver.resources.base import Resource
from controller.apiserver.resources.task import TASK_ENDED, TaskPhase
from controller.probing import files, kernel_files, values
from controller.probing.errors import ProbeError
from controller.scheduling.fairness import Weights
from controller.scheduling.tasks.names import type_of
from dataplane.clock import NS_PER_S

R = TypeVar("R", bound=Resource)
KINDS: Final[tuple[type[Resource], ...]] = (Centre, Task, ProbeResult, ProbeTask, ProbeKernel, ScoringPolicy)
WAITING: Final = (TaskPhase.PENDING, TaskPhase.PROBING)


@dataclass(slots=True)
class Heard:
    """Time when a centre was last heard, by the local clock: the centre's own may be wrong."""

    heartbeat_ns: int | None
    at_ns: int


@dataclass(slots=True)
class TasksView:
    """Resources by name; versions older than the known ones are ignored."""

    centres: dict[str, Centre] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)
    results: dict[str, ProbeResult] = field(default_factory=dict)
    probes: dict[str, ProbeTask] = field(default_factory=dict)
    probe_kernels: dict[str, ProbeKernel] = field(default_factory=dict)
    policies: dict[str, ScoringPolicy] = field(default_factory=dict)
    heard: dict[str, Heard] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    """Probe tasks and kernels that cannot be read, and why."""
    versions: dict[type[Resource], int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    """Counters of relevant changes by kind; a centre's heartbeat alone does not count."""
    ended_version: int = 0
    """Incremented when a task has ended, or an ended one is deleted."""
    weights: Weights = field(default_factory=Weights)
    """Weights of projects."""
    _types: dict[str, str] = field(default_factory=dict)
    _values: dict[str, values.ProbeTask] = field(default_factory=dict)
    _kernels: dict[str, values.ProbeKernel] = field(default_factory=dict)

    def take_all(self, kind: type[R], resources: Iterable[R], now_ns: int) -> None:
        """Replace all known resources of a kind."""
        by_name = {resource.metadata.name: resource for resource in resources}
        table = self.table(kind)
        for name in set(table) - set(by_name):
            self.remove(kind, name)
        for resource in by_name.values():
            self.take(resource, now_ns)

    def take(self, resource: Resource, now_ns: int) -> bool:
        """Take a resource's current state; return whether it has changed in a way that matters to decisions."""
        kind, name = type(resource), resource.metadata.name
        table = self.table(kind)
        before = table.get(name)
        is_same = before is not None and before.metadata.uid == resource.metadata.uid
        # Own writes are taken at once, and the watch shows them again later.
        if before is not None and is_same and before.metadata.revision >= resource.metadata.revision:
            return False
        if isinstance(resource, Centre) and isinstance(before, Centre) and is_same:
            resource = _with_newer_shares(resource, before)
        table[name] = resource
        if isinstance(resource, Centre):
            self._hear(resource, now_ns)
            if isinstance(before, Centre) and _is_same_centre(before, resource):
                return False
        if isinstance(resource, Task):
            if not is_same:
                self._types[name] = type_of(resource)
            had_ended = isinstance(before, Task) and is_same and has_ended(before)
            self.ended_version += has_ended(resource) is not had_ended
        if isinstance(resource, ProbeTask):
            self._read(resource)
        if isinstance(resource, ProbeKernel):
            self._read_kernel(resource)
        self.versions[kind] += 1
        return True

    def assume_shares(self, centre: Centre) -> None:
        """Take written shares of a centre before the watch shows them; everything else stays as watched."""
        current = self.centres.get(centre.metadata.name)
        if current is not None and current.metadata.uid == centre.metadata.uid:
            self.centres[centre.metadata.name] = _with_newer_shares(current, centre)
            self.versions[Centre] += 1

    def remove(self, kind: type[Resource], name: str) -> None:
        """Remove a resource."""
        gone = self.table(kind).pop(name, None)
        self.ended_version += isinstance(gone, Task) and has_ended(gone)
        self.heard.pop(name, None) if kind is Centre else None
        if kind is Task:
            self._types.pop(name, None)
        if kind is ProbeTask:
            self._values.pop(name, None)
            self.problems.pop(name, None)
        if kind is ProbeKernel:
            self._kernels.pop(name, None)
            self.problems.pop(name, None)
        self.versions[kind] += 1

    def table(self, kind: type[Resource]) -> dict[str, Any]:
        """Return the resources of a kind by name."""
        tables: Mapping[type[Resource], dict[str, Any]] = {
            Centre: self.centres,
            Task: self.tasks,
            ProbeResult: self.results,
            ProbeTask: self.probes,
            ProbeKernel: self.probe_kernels,
            ScoringPolicy: self.policies,
        }
        return tables[kind]

    def type_of(self, task: Task) -> str:
        """Return a task's type."""
        return self._types.get(task.metadata.name) or type_of(task)

    def probe(self, name: str) -> values.ProbeTask | None:
        """Return a probe task as a value, None if no readable one exists."""
        return self._values.get(name)

    def probes_of(self, task_type: str) -> tuple[values.ProbeTask, ...]:
        """Return the probe tasks of a type, in order of name."""
        probes = (probe for probe in self._values.values() if probe.task_type == task_type)
        return tuple(sorted(probes, key=lambda probe: probe.name))

    def kernels(self) -> tuple[values.ProbeKernel, ...]:
        """Return the stored probe kernels; unreadable ones are left out, and `problems` says why."""
        return tuple(self._kernels.values())

    @property
    def kernels_version(self) -> int:
        """Counter that changes with the stored kernels."""
        return self.versions[ProbeKernel]

    def types_with_probes(self) -> set[str]:
        """Return the types that have a probe task."""
        return {probe.task_type for probe in self._values.values() if probe.task_type}

    def waiting(self) -> Iterable[Task]:
        """Return tasks to dispatch, including probes."""
        return (
            task for task in self.tasks.values() if task.status.phase in WAITING and task.metadata.deleting_ns is None
        )

    def held_by(self) -> Mapping[str, tuple[Task, ...]]:
        """Return the tasks that hold something, by centre."""
        held: defaultdict[str, list[Task]] = defaultdict(list)
        for task in self.tasks.values():
            for centre in task.held_units:
                held[centre].append(task)
        return {centre: tuple(tasks) for centre, tasks in held.items()}

    def problem_of(self, centre: Centre, now_ns: int) -> str:
        """Return why a centre takes no tasks, '' if it does."""
        if centre.metadata.deleting_ns is not None:
            return "it is being deleted"
        if centre.spec.unschedulable:
            return "it is unschedulable"
        if self.is_silent(centre, now_ns):
            return f"it has been silent for longer than its lease of {centre.spec.lease_s:g} s"
        if not centre.status.ready:
            return f"it is not ready: {centre.status.reason or 'it has not reported'}"
        return ""

    def is_silent(self, centre: Centre, now_ns: int) -> bool:
        """Return whether a centre has not been heard for the length of its lease."""
        heard = self.heard.get(centre.metadata.name)
        return heard is None or now_ns > heard.at_ns + round(centre.spec.lease_s * NS_PER_S)

    def _hear(self, centre: Centre, now_ns: int) -> None:
        name, heartbeat_ns = centre.metadata.name, centre.status.heartbeat_ns
        before = self.heard.get(name)
        # Timed on arrival by the local clock, as the server's may differ.
        if before is None or before.heartbeat_ns != heartbeat_ns:
            self.heard[name] = Heard(heartbeat_ns, now_ns)

    def _read_kernel(self, kernel: ProbeKernel) -> None:
        name = kernel.metadata.name
        try:
            self._kernels[name] = kernel_files.of_spec(kernel.spec)
            self.problems.pop(name, None)
        except ProbeError as error:
            self._kernels.pop(name, None)
            self.problems[name] = str(error)

    def _read(self, probe: ProbeTask) -> None:
        name = probe.metadata.name
        try:
            self._values[name] = files.of_spec(name, probe.spec)
            self.problems.pop(name, None)
        except ProbeError as error:
            self._values.pop(name, None)
            self.problems[name] = str(error)


def has_ended(task: Task) -> bool:
    """Return whether a task has run to its end, successfully or not."""
    return task.status.phase in TASK_ENDED


def _with_newer_shares(centre: Centre, other: Centre) -> Centre:
    """Return a centre with the shares of another version of it, if these are newer."""
    if centre.shares_version >= other.shares_version:
        return centre
    return replace(centre, shares=other.shares, shares_version=other.shares_version)


def _is_same_centre(before: Centre, now: Centre) -> bool:
    """Return whether only heartbeat and load have changed."""
    plain = {"heartbeat_ns": None, "load": None}
    parts = [name for name in before.status.__struct_fields__ if name not in plain]
    return (
        before.spec == now.spec
        and before.shares == now.shares
        and before.metadata.deleting_ns == now.metadata.deleting_ns
        and all(getattr(before.status, part) == getattr(now.status, part) for part in parts)
    )
