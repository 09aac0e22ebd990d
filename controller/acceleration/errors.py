"""Errors of acceleration.

SchedulerError
└── AccelerationError     an operator, machines, an accelerator or a plan is invalid
"""

from __future__ import annotations

from controller.common.errors import SchedulerError


class AccelerationError(SchedulerError):
    """An operator's time on devices cannot be computed; the text names operator, device or machines, and the figure.

    `at` is the position in a file or an option (`accelerators[0].bus_gb_per_s`), '' if unknown.
    """

    def __init__(self, problem: str, *, at: str = "") -> None:
        self.problem, self.at = problem, at
        super().__init__(problem)
