"""Errors of workloads."""

from __future__ import annotations

from controller.common.errors import ControllerError


class WorkloadError(ControllerError):
    """A workload is not what it should be; the text names the file and the line, where there is one."""
