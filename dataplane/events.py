"""Events in virtual time: a heap, the clock that it moves, and an order that never depends on chance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from dataplane.clock import VirtualClock
from dataplane.errors import FabricError


@dataclass(slots=True)
class Timer:
    """A call that was asked for; `cancel` makes it not happen."""

    time_ns: int
    call: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        """Do not call, if it has not been done already."""
        self.cancelled = True

    def fire(self) -> None:
        """Call, unless cancelled."""
        if not self.cancelled:
            self.call()


class EventQueue:
    """Calls in the order of their times; equal times in the order in which they were asked for."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0

    def at(self, time_ns: int, call: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - the call's own
        """Call at a time that is not in the past; raise FabricError if it is."""
        if time_ns < self.clock.time_ns:
            raise FabricError(f"nothing can be done at {time_ns} ns: it is {self.clock.time_ns} ns already")
        self._order += 1
        heappush(self._heap, (time_ns, self._order, call, arguments))

    def timer(self, time_ns: int, call: Callable[[], None]) -> Timer:
        """Call at a time, unless the returned timer is cancelled before."""
        timer = Timer(time_ns, call)
        self.at(time_ns, timer.fire)
        return timer

    def next_ns(self) -> int | None:
        """Return the time of the next event, or None."""
        return self._heap[0][0] if self._heap else None

    def run_until(self, time_ns: int) -> int:
        """Do everything up to and at `time_ns`, leave the clock there, return how many events that were."""
        done = 0
        heap, clock = self._heap, self.clock
        while heap and heap[0][0] <= time_ns:
            due_ns, _, call, arguments = heappop(heap)
            clock.advance_to(due_ns)
            call(*arguments)
            done += 1
        clock.advance_to(time_ns)
        return done
