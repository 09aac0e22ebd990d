"""Run the local engine's jobs in tests: in sandboxes wherever the machine can make them, else as the tests' user."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from controller.workloads.centres.engines.local.isolation import problem_of_sandboxes
from controller.workloads.centres.settings import LocalSettings

_ROOT: Final = Path(__file__).parents[1]


@cache
def can_sandbox() -> bool:
    """Return whether sandboxes can be made here."""
    return problem_of_sandboxes() is None


def local_settings(**settings: Any) -> LocalSettings:
    """Return settings of the local engine that hold on this machine, wherever the checkout is: below /tmp, too."""
    settings = {"shown": (str(_ROOT),), **settings}
    if not can_sandbox() and settings.get("user") is None:
        settings = {"unsafe_same_user": True, **settings}
    return LocalSettings(**settings)
