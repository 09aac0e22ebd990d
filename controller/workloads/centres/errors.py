"""Errors of a compute centre's agent.

ControllerError
└── CentreError         the agent cannot run with its settings, or a task cannot run here; names the key or the task
    └── EngineError     an engine cannot do what was asked, or did not answer in time; names the engine
        └── OrderError  the engine can never run the order: nothing was started
"""

from __future__ import annotations

from controller.common.errors import ControllerError


class CentreError(ControllerError):
    """The agent cannot run with its settings, or a task cannot run here; one line names the key, centre or task."""


class EngineError(CentreError):
    """An engine cannot do what was asked, or did not answer in time; one line that names the engine."""

    def __init__(self, engine: str, problem: str) -> None:
        self.engine, self.problem = engine, problem
        super().__init__(f"engine {engine}: {problem}")


class OrderError(EngineError):
    """The engine can never run the order; nothing was started."""
