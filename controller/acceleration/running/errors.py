"""Errors of running operators on workers.

AccelerationError
└── RunError              a statement or operator cannot be run, or a run has failed
    ├── LostWorkerError   a worker has ended or is silent
    └── StatementError    a statement cannot be split into parts and merged
"""

from __future__ import annotations

from controller.acceleration.errors import AccelerationError


class RunError(AccelerationError):
    """A statement or operator cannot be run, or a run has failed; the text names statement, worker or file."""


class LostWorkerError(RunError):
    """A worker has ended or is silent; the text names it."""


class StatementError(RunError):
    """A statement cannot be split into parts and merged; the text names the reason."""
