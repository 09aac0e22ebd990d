"""Errors of operators."""

from __future__ import annotations

from controller.common.errors import ControllerError


class OperatorError(ControllerError):
    """An invalid operator or graph; the text names graph and operator.

    `at` is the location in the graph as a path in a file (`operators[2].shape`), '' if unknown.
    """

    def __init__(self, problem: str, *, at: str = "") -> None:
        self.problem, self.at = problem, at
        super().__init__(problem)
