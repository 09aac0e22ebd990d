"""Jobs as containers: pods that placement puts on nodes, created at the API server."""

from __future__ import annotations

from controller.workloads.centres.engines.containers.engine import ContainersEngine
from controller.workloads.centres.engines.containers.settings import ContainersSettings

__all__ = ["ContainersEngine", "ContainersSettings"]
