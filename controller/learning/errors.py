"""Errors of learning.

SchedulerError
└── LearningError       a system, workload, setting, trace or checkpoint is invalid
    └── UnfamiliarError  an observation is outside the range seen in training
"""

from __future__ import annotations

from controller.common.errors import SchedulerError


class LearningError(SchedulerError):
    """Something cannot be learned from or decided on; the text names file, line, node, task or setting, and the figure.

    `at` is the position in a file or an option (`nodes[0].engines[1].cores`), '' if unknown.
    """

    def __init__(self, problem: str, *, at: str = "") -> None:
        self.problem, self.at = problem, at
        super().__init__(problem)


class UnfamiliarError(LearningError):
    """A guarded network has no values for an observation outside the range that it saw in training."""
