"""Events in virtual time: a heap, the clock that it advances, and a deterministic order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from dataplane.clock import VirtualClock
from dataplane.errors import FabricError


@dataclass(slots=True)
class Timer:
    """A scheduled call; `cancel` prevents it."""

    time_ns: int
    call: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        """Cancel the call, unless it has already happened."""
        self.cancelled = True

    def fire(self) -> None:
        """Call, unless cancelled."""
        if not self.cancelled:
            self.call()


class EventQueue:
    """Runs calls in the order of their times; equal times in the order of scheduling."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0

    def at(self, time_ns: int, call: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - the call's own
        """Schedule a call; raise FabricError if its time is in the past."""
        if time_ns < self.clock.time_ns:
            raise FabricError(f"cannot schedule a call at {time_ns} ns: it is already {self.clock.time_ns} ns")
        self._order += 1
        heappush(self._heap, (time_ns, self._order, call, arguments))

    def timer(self, time_ns: int, call: Callable[[], None]) -> Timer:
        """Schedule a call, which the returned timer can cancel."""
        timer = Timer(time_ns, call)
        self.at(time_ns, timer.fire)
        return timer

    def next_ns(self) -> int | None:
        """Return the time of the next event, or None."""
        return self._heap[0][0] if self._heap else None

    def run_until(self, time_ns: int) -> int:
        """Run everything up to and at `time_ns`, leave the clock there, return the number of events."""
        done = 0
        heap, clock = self._heap, self.clock
        while heap and heap[0][0] <= time_ns:
            due_ns, _, call, arguments = heappop(heap)
            clock.advance_to(due_ns)
            call(*arguments)
            done += 1
        clock.advance_to(time_ns)
        return done
