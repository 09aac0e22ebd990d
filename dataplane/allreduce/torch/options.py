"""The job of a process group: what `init_process_group("millrace", pg_options=...)` takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import torch.distributed as dist

from dataplane.allreduce.torch.state import MillraceState
from dataplane.errors import AllReduceError

_VARIABLES = ("MILLRACE_JOB_SERVICE", "MILLRACE_JOB", "MILLRACE_NODE")


@dataclass(frozen=True, slots=True)
class JobOptions:
    """A job whose workers are exactly a process group's members.

    Every member passes its own, with the same service and job. A group without options has no job, except the default
    group, which reads the environment.
    """

    service: str
    """Address of the job service: HOST:PORT, plain:HOST:PORT or unix:PATH."""
    job: str
    """Name of the job, the same for all members, and of this group alone."""
    host: str
    """This machine's name in the topology."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of MillraceState.connect, such as `transport`."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Return the job named by MILLRACE_JOB_SERVICE, MILLRACE_JOB and MILLRACE_NODE, which a pod group's pods get.

        Raises AllReduceError naming those that are missing.
        """
        missing = [name for name in _VARIABLES if not environment.get(name)]
        if missing:
            raise AllReduceError(
                f'init_process_group("millrace"): no job: neither pg_options=JobOptions(...) nor {", ".join(missing)} '
                "in the environment"
            )
        service, job, host = (environment[name] for name in _VARIABLES)
        return cls(service, job, host)

    def connect(self, group: dist.ProcessGroup) -> MillraceState:
        """Join the job as this group's member; without it the state is by gloo's ring, and logs why."""
        return MillraceState.connect(
            self.service, job=self.job, host=self.host, workers=group.size(), process_group=group, **self.more
        )


Connect = Callable[[dist.ProcessGroup], MillraceState]
"""Makes a group's state; what `pg_options` may also be, for a job without a service."""
