"""Jobs by Ray, from outside: through its jobs' REST interface, without loading Ray."""

from __future__ import annotations

from controller.workloads.centres.engines.ray.engine import RayEngine
from controller.workloads.centres.engines.ray.settings import RaySettings

__all__ = ["RayEngine", "RaySettings"]
