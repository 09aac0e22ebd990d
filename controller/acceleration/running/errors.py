"""Errors of running operators on workers.

AccelerationError
└── RunError              a statement or operator cannot be run so, or a run has failed
    ├── LostWorkerError   a worker has ended or says nothing
    └── StatementError    a statement that cannot be run in parts that are merged
"""

from __future__ import annotations

from controller.acceleration.errors import AccelerationError


class RunError(AccelerationError):
    """A statement or operator cannot be run, or a run has failed; the text names statement, worker or file."""


class LostWorkerError(RunError):
    """A worker has ended, or says nothing; the text names it."""


class StatementError(RunError):
    """A statement cannot be run in parts that are merged; the text names what of it cannot."""
