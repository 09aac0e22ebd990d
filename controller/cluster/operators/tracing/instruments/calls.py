"""Calls of the program's own functions: by sys.monitoring from Python 3.12 on, else by sys.setprofile."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, Final

Entered = Callable[[FrameType], None]
Left = Callable[[CodeType, Any], None]
_ENTERING: Final = ("PY_START", "PY_RESUME")
_LEAVING: Final = ("PY_RETURN", "PY_YIELD", "PY_UNWIND")


@contextmanager
def calls_reported(is_own: Callable[[str], bool], entered: Entered, left: Left) -> Iterator[bool]:
    """Report each call into code whose file is `is_own`, with its frame, and each return, with its value.

    Generators enter and leave at each turn. Yields whether this works: another profiler may be active already.
    """
    if sys.version_info >= (3, 12):
        with _monitored(is_own, entered, left) as works:
            yield works
    else:
        with _profiled(is_own, entered, left) as works:
            yield works


@contextmanager
def unprofiled() -> Iterator[None]:
    """Run a library without the sys.setprofile hook, which slows every call."""
    hook = sys.getprofile()
    if hook is None:
        yield
        return
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(hook)


@contextmanager
def _profiled(is_own: Callable[[str], bool], entered: Entered, left: Left) -> Iterator[bool]:
    if sys.getprofile() is not None:
        yield False
        return

    def on_event(frame: FrameType, event: str, argument: Any) -> None:  # noqa: ANN401
        if event == "call":
            if is_own(frame.f_code.co_filename):
                entered(frame)
        elif event == "return" and is_own(frame.f_code.co_filename):
            left(frame.f_code, argument)

    # sys.setprofile covers this thread only, and threading's those that start later.
    threading.setprofile(on_event)
    sys.setprofile(on_event)
    try:
        yield True
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@contextmanager
def _monitored(is_own: Callable[[str], bool], entered: Entered, left: Left) -> Iterator[bool]:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    tool, events = monitoring.PROFILER_ID, monitoring.events
    if monitoring.get_tool(tool) is not None:
        yield False
        return

    def entering(code: CodeType, _: int) -> Any:  # noqa: ANN401
        if not is_own(code.co_filename):
            return monitoring.DISABLE
        entered(sys._getframe(1))  # noqa: SLF001 - the frame that is entered
        return None

    def leaving(code: CodeType, _: int, value: Any) -> Any:  # noqa: ANN401
        if not is_own(code.co_filename):
            return monitoring.DISABLE
        left(code, value)
        return None

    def unwinding(code: CodeType, _: int, __: BaseException) -> None:
        # This event cannot be disabled per location.
        if is_own(code.co_filename):
            left(code, None)

    monitoring.use_tool_id(tool, "millrace")
    wanted = 0
    for names, callback in ((_ENTERING, entering), (_LEAVING[:2], leaving), (_LEAVING[2:], unwinding)):
        for name in names:
            event = getattr(events, name)
            monitoring.register_callback(tool, event, callback)
            wanted |= event
    monitoring.set_events(tool, wanted)
    try:
        yield True
    finally:
        monitoring.set_events(tool, 0)
        for name in (*_ENTERING, *_LEAVING):
            monitoring.register_callback(tool, getattr(events, name), None)
        monitoring.free_tool_id(tool)
        monitoring.restart_events()
