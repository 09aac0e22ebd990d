"""Errors of probing.

SchedulerError
└── ProbeError            a probe task, a use of a kernel, or a result is invalid
    └── ProbeKernelError  a probe kernel is missing, cannot run here, or is invalid
        └── ProbeMemoryError  it needs more memory than there is
"""

from __future__ import annotations

from controller.common.errors import SchedulerError


class ProbeError(SchedulerError):
    """A probe task cannot be built, read or run; the text names the probe task, the use and the remedy.

    `at` is the place of the error in a file (`uses[2].sizes`), '' if unknown.
    """

    def __init__(self, problem: str, *, at: str = "") -> None:
        self.problem, self.at = problem, at
        super().__init__(problem)


class ProbeKernelError(ProbeError):
    """A probe kernel is missing, cannot run here, or is invalid; the text names kernel and version."""


class ProbeMemoryError(ProbeKernelError):
    """A probe kernel needs more memory than there is; the text names it and its sizes."""
