"""Containers by runc, each under a conmon that keeps its log and its exit code: no daemon."""

from __future__ import annotations

from controller.workloads.nodes.runtimes.runc.runtime import RuncRuntime

__all__ = ["RuncRuntime"]
