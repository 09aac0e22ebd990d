"""Errors of probing.

SchedulerError
└── ProbeError            a probe task, a use of a kernel, or a result is not what it can be
    └── ProbeKernelError  a probe kernel is not there, cannot run here, or is not what it can be
        └── ProbeMemoryError  it has less memory than it takes
"""

from __future__ import annotations

from controller.common.errors import SchedulerError


class ProbeError(SchedulerError):
    """A probe task cannot be built, read or run; the text names the probe task, the use and what would do.

    `at` is where in a file that is (`uses[2].sizes`), '' where nobody knows.
    """

    def __init__(self, problem: str, *, at: str = "") -> None:
        self.problem, self.at = problem, at
        super().__init__(problem)


class ProbeKernelError(ProbeError):
    """A probe kernel is not there, cannot run here, or is not what it can be; the text names kernel and version."""


class ProbeMemoryError(ProbeKernelError):
    """A probe kernel takes more memory than there is; the text names it and its sizes."""
