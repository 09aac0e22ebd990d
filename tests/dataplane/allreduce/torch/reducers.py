"""Stand-ins for a switch: each reducer doubles or fails, as the test wants."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dataplane.allreduce.half_precision import from_bfloat16, to_bfloat16
from dataplane.errors import AllReduceError

Outcome = BaseException | None
_LOOK_S: Final = 0.002


class Doubling:
    """Multiplies its input by two or another factor; while held, only all-reduces with an outcome."""

    def __init__(self, *, held: bool = False, factor: int = 2) -> None:
        self.asked: list[NDArray[Any]] = []
        self.closed = 0
        self._is_held, self._factor = held, factor
        self._outcomes: dict[int, Outcome] = {}
        self._changed = threading.Condition()

    def reduce(
        self,
        values: NDArray[Any],
        target: NDArray[Any],
        *,
        mean: bool,
        final: bool = False,
        poll: Callable[[], None] | None = None,
    ) -> None:
        """Double into the target, or raise the outcome."""
        number = self._begin(values)
        while not self._is_due(number):
            if poll is not None:
                poll()
        outcome = self._outcomes.get(number)
        if outcome is not None:
            raise outcome
        if self.closed:
            raise AllReduceError("the all-reducer is closed")
        if values.dtype == np.uint16:
            target[:] = to_bfloat16(from_bfloat16(values) * np.float32(self._factor))
        else:
            np.multiply(values, self._factor, out=target)

    def end(self, number: int, outcome: Outcome = None) -> None:
        """Complete an all-reduce, even a future one, or fail it with this error."""
        with self._changed:
            self._outcomes[number] = outcome
            self._changed.notify_all()

    def let_go(self) -> None:
        """Release everything held."""
        with self._changed:
            self._is_held = False
            self._changed.notify_all()

    def hold(self) -> None:
        """Hold all-reduces without an outcome."""
        with self._changed:
            self._is_held = True

    def wait_until_asked(self, count: int) -> None:
        """Wait until this many have begun."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.asked) >= count, 9)

    def close(self) -> None:
        """Fail the all-reduces in progress."""
        with self._changed:
            self.closed += 1
            self._changed.notify_all()

    def _begin(self, values: NDArray[Any]) -> int:
        with self._changed:
            self.asked.append(values)
            self._changed.notify_all()
            return len(self.asked) - 1

    def _is_due(self, number: int) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._is_held or number in self._outcomes or self.closed > 0, _LOOK_S
            )


def failing(number: int, outcome: BaseException | None = None, *, factor: int = 2) -> Doubling:
    """Return a reducer that completes this many all-reduces and fails the next one."""
    reducer = Doubling(factor=factor)
    reducer.end(number, outcome or AllReduceError("no answer"))
    return reducer
