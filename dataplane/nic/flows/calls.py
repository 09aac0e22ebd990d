"""Functions that rules hand frames to, wrapped for native callers."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable

from dataplane.nic.flows.rules import Call, FlowVerdict
from dataplane.nic.structures import ActionKind, Verdict

_FRAME_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64)
"""`FrameFunction` in dataplane/nic/structures.py."""

_log = logging.getLogger(__name__)


class FlowCall:
    """The function of one rule; it must live as long as any table that leads to it."""

    def __init__(self, rule: str, call: Call, failures: int = 0) -> None:
        self.context = call.context
        self.failures = failures
        self.is_python = not isinstance(call.function, int)
        self._rule = rule
        if isinstance(call.function, int):
            self.address = call.function
        else:
            self._thunk = _FRAME_FUNCTION(self._guarded(call.function))
            self.address = ctypes.cast(self._thunk, ctypes.c_void_p).value or 0

    def _guarded(self, function: Callable[[bytes, FlowVerdict], object]) -> Callable[[int, int, int, int], None]:
        """Return the callback for native code; no exception of the function reaches the driver's thread."""

        def call(context: int, frame: int, length: int, verdict: int) -> None:
            del context
            try:
                function(ctypes.string_at(frame, length), verdict_of(Verdict.from_address(verdict)))
            except BaseException:  # noqa: BLE001 - native code knows no exceptions; counted and logged, also SystemExit
                self.failures += 1
                if self.failures & (self.failures - 1) == 0:  # log the first, second, fourth ... to avoid flooding
                    _log.exception("rule %s: its function has failed %d times", self._rule, self.failures)

        return call


def verdict_of(verdict: Verdict) -> FlowVerdict:
    """Return a verdict's values."""
    return FlowVerdict(ActionKind(verdict.action), verdict.group, verdict.mark, verdict.rule, verdict.flow_hash)
