"""Turns of the thread that receives: each takes what has come for a bounded time, natively or through Python."""

from __future__ import annotations

import os
import select
from typing import Final, Protocol

from collectors.collector import Collector
from collectors.errors import CollectorError
from collectors.ingest.report_sources import ReportSource
from collectors.native.reception import Reception, Stop
from dataplane.clock import NS_PER_MS, MonotonicClock

TURN_NS: Final = 20_000_000
"""Time after which received reports are counted and exhausted budgets are checked again."""
NATIVE_TURN_NS: Final = 60_000_000_000
"""Each return waits for the interpreter's lock, which others may keep for a tenth of a second."""


class Turns(Protocol):
    """Turns of a receiving thread."""

    def take(self, *, waits: bool) -> None:
        """Take received reports, for a bounded time; with `waits`, wait as long for them."""
        ...

    def settle(self) -> None:
        """Update the counts of reports taken so far; from another thread, while a turn lasts."""
        ...

    def wake(self) -> None:
        """End a wait; from any thread."""
        ...

    def take_oldest_ns(self) -> int:
        """Return the longest time that a report read since the last call had waited, 0 if unknown."""
        ...

    def close(self) -> None:
        """Release the turns' resources; the source is the caller's."""
        ...


class NativeTurns:
    """Turns of the native receive loop."""

    def __init__(self, collector: Collector, reception: Reception, udp_port: int) -> None:
        self._collector, self._reception, self._udp_port = collector, reception, udp_port
        self._clock = MonotonicClock()

    def take(self, *, waits: bool) -> None:
        """Process received reports, in native code where possible; with `waits`, until the doorbell rings."""
        until_ns = self._clock.now_ns() + (NATIVE_TURN_NS if waits else TURN_NS)
        if self._collector.receive_from(self._reception, until_ns, waits=waits) is Stop.FAILED:
            cause = os.strerror(self._reception.state.error)
            raise CollectorError(f"cannot receive reports on UDP port {self._udp_port}: {cause}")

    def settle(self) -> None:
        """Update the counts of reports taken so far."""
        self._collector.settle(self._reception)

    def wake(self) -> None:
        """End a wait."""
        self._reception.wake()

    @property
    def cut(self) -> int:
        """Number of datagrams that did not fit."""
        return int(self._reception.state.cut)

    def take_oldest_ns(self) -> int:
        """Return the longest that a report had waited when it was read since the last call."""
        oldest_ns, self._reception.state.oldest_ns = self._reception.state.oldest_ns, 0
        return int(oldest_ns)

    def close(self) -> None:
        """Close the bell."""
        self._reception.close()


class SourceTurns:
    """Turns of a source that Python reads, about `burst` reports at a time."""

    def __init__(self, collector: Collector, source: ReportSource, burst: int) -> None:
        self._collector, self._source, self._burst = collector, source, burst
        self._clock = MonotonicClock()
        # Not an Event: poll must wait for it and for the source together.
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._wake_fd, select.POLLIN)
        self._poll.register(source.fileno(), select.POLLIN)
        self._oldest_ns = 0

    def take(self, *, waits: bool) -> None:
        """Take received reports."""
        if waits and any(fd == self._wake_fd for fd, _ in self._poll.poll(TURN_NS // NS_PER_MS)):
            os.eventfd_read(self._wake_fd)
            return
        until_ns = self._clock.now_ns() + TURN_NS
        for payloads in self._source.read(self._burst):
            self._oldest_ns = max(self._oldest_ns, payloads.age_ns)
            self._collector.receive_many(payloads)
            if self._clock.now_ns() >= until_ns:
                return

    def settle(self) -> None:
        """Do nothing: each burst is counted when it has been taken."""

    def wake(self) -> None:
        """End a wait."""
        os.eventfd_write(self._wake_fd, 1)

    def take_oldest_ns(self) -> int:
        """Return the longest that a report had waited when it was read since the last call."""
        oldest_ns, self._oldest_ns = self._oldest_ns, 0
        return oldest_ns

    def close(self) -> None:
        """Close the bell."""
        if self._wake_fd >= 0:
            os.close(self._wake_fd)
            self._wake_fd = -1
