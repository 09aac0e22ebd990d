"""Jobs by Ray, from outside: its jobs' REST interface; nothing of Ray is loaded here."""

from __future__ import annotations

from controller.workloads.centres.engines.ray.engine import RayEngine
from controller.workloads.centres.engines.ray.settings import RaySettings

__all__ = ["RayEngine", "RaySettings"]
