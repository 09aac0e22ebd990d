"""Errors of workloads."""

from __future__ import annotations

from controller.common.errors import ControllerError


class WorkloadError(ControllerError):
    """An invalid workload; the text names the file and the line, if there is one."""
