"""Default and maximum resources of pods; pure."""

from __future__ import annotations

from dataclasses import dataclass

from controller.apiserver.resources import Pod
from controller.workloads.nodes.runtimes.errors import OrderError


@dataclass(frozen=True, slots=True)
class PodLimits:
    """Limits of each pod of a node: `memory_bytes` is the default memory; `most_memory_bytes` None means unlimited.

    `disk_bytes` limits the bytes that its containers write to their own layers, `processes` counts threads, too.
    """

    memory_bytes: int = 2 << 30
    most_memory_bytes: int | None = None
    processes: int = 4096
    disk_bytes: int = 10 << 30

    def memory_of(self, pod: Pod) -> int:
        """Return the memory that a pod's containers may use together; raise OrderError if it asks for too much."""
        wanted, most = pod.spec.request.memory_bytes, self.most_memory_bytes
        if most is not None and wanted > most:
            raise OrderError(
                f"pod {pod.metadata.name}: memory: it requests {wanted} bytes, this node allows at most {most}"
            )
        return wanted or (self.memory_bytes if most is None else min(self.memory_bytes, most))
