"""Errors of schedulers."""

from __future__ import annotations

from controller.common.errors import ControllerError


class SchedulerError(ControllerError):
    """A scheduler cannot do what was asked; the text names the policy, profile, task or node that it is about."""
