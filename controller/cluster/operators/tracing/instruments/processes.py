"""Other processes that a traced program starts: they are not traced, which is reported."""

from __future__ import annotations

import multiprocessing.process
import os
import subprocess
from collections.abc import Callable
from functools import wraps
from typing import Any

from controller.cluster.operators.tracing.instruments.replacing import Replacements
from controller.cluster.operators.tracing.recording import Recorder


def replace_starts(replacements: Replacements, recorder: Recorder) -> None:
    """Report every start of a process as a problem."""
    for owner, name in (
        (os, "fork"),
        (os, "forkpty"),
        (os, "posix_spawn"),
        (subprocess.Popen, "__init__"),
        (multiprocessing.process.BaseProcess, "start"),
    ):
        replacements.replace(owner, name, _told(getattr(owner, name), recorder))


def _told(original: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    @wraps(original)
    def told(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the original
        recorder.problem("it started other processes: what they do is not in the graph")
        return original(*args, **kwargs)

    return told
