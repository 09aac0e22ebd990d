"""The active trace of this process, and the frame that an operator is called from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from controller.cluster.operators.errors import OperatorError
from controller.cluster.operators.tracing.recording import Recorder

_current: list[Recorder] = []
touches = [0]
"""Number of single elements of traced arrays read, plus twice those written; a list cell, because nothing is faster."""
patience = [0]
"""Value of `touches` from which a loop is no longer watched."""


def active() -> Recorder | None:
    """Return the recorder of the active trace."""
    return _current[0] if _current else None


def listening() -> Recorder | None:
    """Return the recorder if this thread's operations are to be recorded now."""
    recorder = active()
    return recorder if recorder is not None and recorder.is_listening else None


def caller() -> FrameType:
    """Return the frame two levels up; `place_of` finds the program's from there."""
    return sys._getframe(2)  # noqa: SLF001 - the program's frame distinguishes operators


@contextmanager
def tracing(recorder: Recorder) -> Iterator[None]:
    """Make a recorder the active one; OperatorError if another one is."""
    if _current:
        raise OperatorError("another program is being traced: one at a time per process")
    _current.append(recorder)
    try:
        yield
    finally:
        _current.clear()
