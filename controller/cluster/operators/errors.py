"""Errors of operators."""

from __future__ import annotations

from controller.common.errors import ControllerError


class OperatorError(ControllerError):
    """An operator or a graph of them is not what it can be; the text names graph and operator.

    `at` is where in the graph that is, as a file's path says it (`operators[2].shape`), '' where nobody knows.
    """

    def __init__(self, problem: str, *, at: str = "") -> None:
        self.problem, self.at = problem, at
        super().__init__(problem)
