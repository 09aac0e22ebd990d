"""The one trace that this process may be under, and the frame that an operator is called from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from controller.cluster.operators.errors import OperatorError
from controller.cluster.operators.tracing.recording import Recorder

_current: list[Recorder] = []
touches = [0]
"""How often single numbers of traced arrays were read, and twice as often written: a cell, as nothing is quicker."""
patience = [0]
"""At how many of these a loop reads on without being watched."""


def active() -> Recorder | None:
    """Return the recorder of the trace that runs."""
    return _current[0] if _current else None


def listening() -> Recorder | None:
    """Return the recorder if what this thread does now is to be recorded."""
    recorder = active()
    return recorder if recorder is not None and recorder.is_listening else None


def caller() -> FrameType:
    """Return the frame two above; `place_of` finds the program's from there."""
    return sys._getframe(2)  # noqa: SLF001 - the frame of the program is what tells operators apart


@contextmanager
def tracing(recorder: Recorder) -> Iterator[None]:
    """Make a recorder the active one; OperatorError where another one is."""
    if _current:
        raise OperatorError("a program is traced already: one at a time in a process")
    _current.append(recorder)
    try:
        yield
    finally:
        _current.clear()
