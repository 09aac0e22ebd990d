"""Delayed acknowledgments: sent at once, with a second segment, or after a while (RFC 9293, section 3.8.6.3).

At a connection's start, and after a pause, the first acknowledgments are not delayed, as in Linux: a sender in slow
start hears sooner, and a burst's odd last segment does not wait.
"""

from __future__ import annotations

from collections.abc import Callable

from dataplane.events import EventQueue
from dataplane.fabric.virtual.tcp.settings import TcpSettings
from dataplane.fabric.virtual.tcp.timers import LazyTimer


class DelayedAcks:
    """Acknowledgments owed to the other end; `acknowledge` is called once one has waited long enough."""

    def __init__(self, settings: TcpSettings, events: EventQueue, acknowledge: Callable[[], None]) -> None:
        self.is_due = False
        """The acknowledgment must go now."""
        self._settings, self._clock = settings, events.clock
        self._timer = LazyTimer(events, acknowledge)
        self._waiting_bytes = self._quick = 0
        self._heard_ns: int | None = None

    def heard(self, nbytes: int, mss_bytes: int, pause_ns: int, *, at_once: bool) -> None:
        """Note bytes that arrived in order; more than `pause_ns` after the last ones counts as a pause."""
        now_ns = self._clock.time_ns
        if self._heard_ns is None or now_ns - self._heard_ns > pause_ns:
            self._quick = self._settings.quick_acks
        self._heard_ns = now_ns
        self._waiting_bytes += nbytes
        delay_ns = self._settings.delayed_ack_ns
        if at_once or self._quick or self._waiting_bytes >= 2 * mss_bytes or not delay_ns:
            self.is_due = True
        elif not self._timer.is_set:
            self._timer.set(now_ns + delay_ns)

    def sent(self) -> None:
        """Note that an acknowledgment was sent: nothing is owed any more."""
        self._waiting_bytes, self._quick = 0, max(0, self._quick - 1)
        self.is_due = False
        self._timer.clear()
