"""Containers by podman's REST service."""

from __future__ import annotations

from controller.workloads.nodes.runtimes.podman.runtime import PodmanRuntime

__all__ = ["PodmanRuntime"]
