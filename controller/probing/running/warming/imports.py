"""Import times that a warm process saved its forks: a run adds them to its start, as targets have them in theirs."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable
from typing import Final

_CPU_S: Final[dict[str, float]] = {}
"""By library; empty but in a warm process and its forks."""


def import_timed(module: str) -> None:
    """Import a module and record the CPU time of that under the name of its package."""
    began_s = time.process_time()
    importlib.import_module(module)
    library = module.partition(".")[0]
    _CPU_S[library] = _CPU_S.get(library, 0.0) + time.process_time() - began_s


def saved_s(libraries: Iterable[str]) -> float:
    """Return the CPU time in seconds that imports of these libraries took before this process was forked."""
    return sum(_CPU_S.get(library, 0.0) for library in set(libraries))
