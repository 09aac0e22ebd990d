"""Paced virtual time: each event runs as soon as its time has come, and late events are counted.

The fabric stays exact in its own time however slow the machine is: a late event carries the time at which it was due.
Only an outside observer, a controller or a collector, sees it later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.clock import Clock
from dataplane.fabric.live.values import PaceCounters
from dataplane.fabric.load import LATE_NS
from dataplane.fabric.virtual.fabric import VirtualFabric

SKIP_AFTER_NS: Final = 100_000_000
"""Hosts of a fabric that is further behind skip packets, as agents in the kernel do."""
MOST_BEHIND_NS: Final = 1_000_000_000
"""Maximum lag of a fabric: beyond it, its time stands still, and the excess is counted."""
TURN_NS: Final = 5_000_000
"""Length of a turn, after which control planes and counters get theirs."""
_STRIDE_NS: Final = 1_000_000
"""Events closer together than this count as equally late."""


@dataclass(slots=True)
class Pacer:
    """Advances a fabric; its time is the clock's minus `offset_ns`."""

    fabric: VirtualFabric
    clock: Clock
    counters: PaceCounters
    offset_ns: int

    @classmethod
    def of(cls, fabric: VirtualFabric, clock: Clock) -> Pacer:
        """Return a pacer that advances a fabric from its current time."""
        return cls(fabric, clock, PaceCounters(), clock.now_ns() - fabric.now_ns)

    @property
    def behind_ns(self) -> int:
        """Current lag of the fabric behind the clock."""
        return self.clock.now_ns() - self.offset_ns - self.fabric.now_ns

    def take_turn(self) -> int:
        """Run due events for at most about `TURN_NS`; return the ns until the next one, 0 if it is already due."""
        until_ns = self.clock.now_ns() + TURN_NS
        target_ns = self.clock.now_ns() - self.offset_ns
        while self.fabric.now_ns < target_ns and self.clock.now_ns() < until_ns:
            due_ns = self.fabric.events.next_ns()
            from_ns = target_ns if due_ns is None else max(due_ns, self.fabric.now_ns)
            end_ns = min(target_ns, from_ns + _STRIDE_NS)
            self._count(self.fabric.run_until(end_ns), self.clock.now_ns() - self.offset_ns - end_ns)
        self._slip()
        due_ns = self.fabric.events.next_ns()
        return TURN_NS if due_ns is None else max(0, due_ns - self.fabric.now_ns - self.behind_ns)

    def _count(self, events: int, late_ns: int) -> None:
        self.counters.events += events
        if events and late_ns > LATE_NS:
            self.counters.late_events += events
        if events:
            self.counters.worst_late_ns = max(self.counters.worst_late_ns, late_ns)

    def _slip(self) -> None:
        """Stop the fabric's time for the lag that it cannot make up."""
        beyond_ns = self.behind_ns - MOST_BEHIND_NS
        if beyond_ns > 0:
            self.offset_ns += beyond_ns
            self.counters.slipped_ns += beyond_ns
