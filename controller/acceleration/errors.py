"""Errors of acceleration.

SchedulerError
└── AccelerationError     an operator, machines, an accelerator or a plan is not what it can be
"""

from __future__ import annotations

from controller.common.errors import SchedulerError


class AccelerationError(SchedulerError):
    """What an operator takes on devices cannot be said; the text names operator, device or machines, and the figure.

    `at` is where in a file or an option that is (`accelerators[0].bus_gb_per_s`), '' where nobody knows.
    """

    def __init__(self, problem: str, *, at: str = "") -> None:
        self.problem, self.at = problem, at
        super().__init__(problem)
