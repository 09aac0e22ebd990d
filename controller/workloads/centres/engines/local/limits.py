"""Limits of jobs: a control group for each below the centre's; without them only cores and rlimits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.workloads.centres.engines.base import Usage
from controller.workloads.centres.errors import EngineError
from controller.workloads.centres.settings import ControlGroups, LocalSettings
from dataplane.cgroup_limits import limit, make_group, remove_empty
from dataplane.cgroups import group_at, usage_in
from dataplane.clock import NS_PER_S


@dataclass(frozen=True, slots=True)
class JobLimits:
    """A job's control group: the files for joining it, and those that count out-of-memory kills."""

    group: str | None = None
    group_files: tuple[str, ...] = ()
    oom_files: tuple[str, ...] = ()
    resource_limits: Mapping[str, int] = field(default_factory=dict)
    """By name in the module `resource`."""


class Groups:
    """The control groups of a centre below `top`, a path such as /millrace/centres/C."""

    def __init__(self, top: str, settings: LocalSettings) -> None:
        self._top, self._settings = top, settings
        self._problem = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Limits that do not hold, and why."""
        return (self._problem,) if self._problem else ()

    def prepare(self) -> None:
        """Create the centre's own group with its limits; raise EngineError if it is required and that fails."""
        settings = self._settings
        if settings.control_groups is ControlGroups.NEVER:
            self._problem = "no control groups, as the settings say: only cores and rlimits limit jobs"
            return
        try:
            if not make_group(self._top).folders:
                raise OSError(0, "the machine mounts none")
            limit(self._top, settings.cpu_milli, settings.memory_bytes)
        except OSError as error:
            why = error.strerror or str(error)
            if settings.control_groups is ControlGroups.ALWAYS:
                raise EngineError("local", f"control group {self._top}: {why}") from None
            self._problem = f"no control groups ({why}): only cores and rlimits limit jobs"

    def reload(self, settings: LocalSettings) -> None:
        """Apply new limits of all jobs together."""
        self._settings, self._problem = settings, ""
        self.prepare()

    def make(self, job: str, cpu_milli: int | None, memory_bytes: int | None) -> JobLimits:
        """Create a job's group with these limits; raise OSError."""
        resource_limits = {"RLIMIT_CORE": 0}
        if self._problem:
            # Much address space is reserved and never used: limit data instead.
            more = {} if memory_bytes is None else {"RLIMIT_DATA": memory_bytes}
            return JobLimits(resource_limits=resource_limits | more)
        path, most = self.path(job), self._settings.cpu_milli
        assert path is not None
        if cpu_milli is not None and most is not None:
            cpu_milli = min(cpu_milli, most)  # version 1 refuses more than the group above has
        group = make_group(path)
        limit(path, cpu_milli, memory_bytes, processes=self._settings.processes)
        folders = sorted({str(folder) for folder in group.folders.values()})
        memory = group.folders.get("memory")
        name = "memory.events" if "memory" in group.unified else "memory.oom_control"
        return JobLimits(
            path,
            tuple(f"{folder}/cgroup.procs" for folder in folders),
            () if memory is None else (f"{memory}/{name}",),
            resource_limits,
        )

    def path(self, job: str) -> str | None:
        """Return a job's control group, None without groups."""
        return None if self._problem else f"{self._top}/{job}"

    def remove(self, job: str) -> None:
        """Remove a job's group, once nothing runs in it."""
        path = self.path(job)
        if path is not None:
            remove_empty(path)

    def remove_all(self) -> None:
        """Remove the centre's own group, once nothing runs in it."""
        if not self._problem:
            remove_empty(self._top)

    def usage(self, job: str) -> Usage | None:
        """Return the resources used by a job's group; None if not counted."""
        path = self.path(job)
        if path is None:
            return None
        used = usage_in(group_at(path))
        return None if used.cpu_ns is None else Usage(used.cpu_ns / NS_PER_S, used.memory_bytes)
