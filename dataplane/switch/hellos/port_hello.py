"""One port's hellos: when the next is sent, how long the neighbour has been silent, the counts; no clock.

The readable twin of `dataplane.switch.compiled.hellos` and its kernels, `loop/hello_service.py`. Silence is time during
which the queue was read and was empty: a switch stalled for longer than an interval counts it as one interval, so that
no switch gives up a neighbour because it slept itself; and while unread frames wait, no silence counts.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from dataplane.errors import WireError
from dataplane.switch.hellos import frames, session
from dataplane.switch.hellos.session import HelloDrop, Session
from dataplane.switch.ports.states import HelloSession, HelloSettings, HelloState
from dataplane.wire import bfd

EARLIEST_THOUSANDTHS, LATEST_THOUSANDTHS = 750, 900
"""Bounds of the jittered interval: hellos are sent 10 to 25 % early to avoid synchronisation (RFC 5880, 6.8.7)."""


class PortHello:
    """Sends hellos on a port and listens to the neighbour; times are the caller's and never decrease."""

    def __init__(self, device_id: int, port: int, settings: HelloSettings, now_ns: int, rng: random.Random) -> None:
        self._device_id, self._port = device_id, port
        self._rng = rng
        self.session = Session(frames.discriminator(device_id, port), settings, since_ns=now_ns)
        self._frame = frames.encode(device_id, port, self.session.packet())
        self._accepted = b""
        self._next_ns = now_ns
        self._looked_ns = now_ns
        self._silence_ns = 0
        self._skipped_ns = now_ns
        """Time at which the newest skipped hello would have been sent."""
        self._unread = self._at_rest = False
        self._sent = self._received = 0
        self._drops: Counter[str] = Counter()

    def describe(self) -> HelloSession:
        """Return the public state."""
        described = self.session.describe(self._sent, self._received)
        return replace(described, drops=dict(self._drops)) if self._drops else described

    # ---- incoming hellos

    def hear(self, frame: bytes, now_ns: int) -> None:
        """Take a frame that is addressed as a hello."""
        content = frame[frames.PACKET_OFFSET : frames.HELLO_BYTES]
        if content != self._accepted:
            try:
                packet = bfd.decode(content)
            except WireError:
                self._drops[HelloDrop.MALFORMED] += 1
                return
            fault = session.find_fault(self.session, packet)
            if fault is not None:
                self._drops[fault] += 1
                return
            before = self.session.state
            self.adopt(session.hear(self.session, packet, now_ns), now_ns)
            # A frame that changed the state may do so again; one that did not need not be read again.
            self._accepted = content if self.session.state is before else b""
        self._received += 1
        self._silence_ns, self._looked_ns = 0, now_ns

    def note_unread(self, unread: bool) -> None:
        """Record whether unread frames wait: until they are read, no neighbour counts as silent."""
        self._unread = unread

    # ---- due work

    def due_ns(self) -> int | None:
        """Return the time of `step`'s next work; None: only when something arrives or is set."""
        if self._at_rest:
            return None
        send_ns = self._next_ns if self.session.send_interval_ns is not None else None
        detection_ns = self.session.detection_ns
        if detection_ns is None:
            return send_ns
        look_ns = self._looked_ns + min(detection_ns - self._silence_ns, self.session.expected_interval_ns)
        return look_ns if send_ns is None else min(send_ns, look_ns)

    def step(self, now_ns: int) -> bytes | None:
        """Give a silent neighbour up; return the hello to send now, if any."""
        self._look(now_ns)
        interval_ns = self.session.send_interval_ns
        if interval_ns is None or now_ns < self._next_ns:
            return None
        self._next_ns = max(self._next_ns, now_ns) + self._jitter(interval_ns)
        self._sent += 1
        return self._frame

    def _look(self, now_ns: int) -> None:
        if self._unread:
            return
        gap_ns, self._looked_ns = now_ns - self._looked_ns, now_ns
        self._silence_ns += min(gap_ns, self.session.expected_interval_ns)
        detection_ns = self.session.detection_ns
        if detection_ns is not None and self._silence_ns >= detection_ns:
            self.adopt(session.expire(self.session, now_ns), now_ns)

    def _jitter(self, interval_ns: int) -> int:
        return interval_ns * self._rng.randint(EARLIEST_THOUSANDTHS, LATEST_THOUSANDTHS) // 1000

    # ---- skipping hellos that change nothing (virtual time)

    @property
    def frame(self) -> bytes:
        """The frame sent now."""
        return self._frame

    def is_settled_with(self, neighbour: PortHello, delay_ns: int, now_ns: int) -> bool:
        """Return whether the neighbour's pending hellos change nothing, and come in time."""
        own, detection_ns = self.session, self.session.detection_ns
        if own.state is not HelloState.UP or detection_ns is None or neighbour._next_ns <= now_ns:
            return False
        says_the_same = self._accepted == neighbour._frame[frames.PACKET_OFFSET : frames.HELLO_BYTES]
        lost_ns = self._looked_ns - self._silence_ns + detection_ns
        return says_the_same and neighbour._next_ns + delay_ns < lost_ns

    def rest(self) -> None:
        """Suspend due times until `resume`."""
        self._at_rest = True

    def skip(self, until_ns: int) -> Iterator[int]:
        """Yield the times at which hellos would have been sent up to a time, and count them."""
        interval_ns = self.session.send_interval_ns
        while interval_ns is not None and self._next_ns <= until_ns:
            sent_ns = self._next_ns
            self._next_ns = sent_ns + self._jitter(interval_ns)
            self._skipped_ns = sent_ns
            self._sent += 1
            yield sent_ns

    def credit(self, heard_ns: int) -> None:
        """Count a hello that would have come at a time, without news."""
        self._received += 1
        if heard_ns > self._looked_ns:
            self._silence_ns, self._looked_ns = 0, heard_ns

    def resume(self, now_ns: int) -> None:
        """Continue as if it had listened all the time."""
        # As `step` would have: with each hello sent, and after each interval. The new settings apply to the rest.
        looked_ns = max(self._looked_ns, self._skipped_ns)
        looked_ns += (now_ns - looked_ns) // self.session.expected_interval_ns * self.session.expected_interval_ns
        self._silence_ns += looked_ns - self._looked_ns
        self._looked_ns, self._at_rest = looked_ns, False

    # ---- decisions of the switch's owner

    def adopt(self, changed: Session, now_ns: int) -> None:
        """Continue with another session; a packet that differs from the last one is sent at once (section 6.8.7)."""
        frame = frames.encode(self._device_id, self._port, changed.packet())
        interval_ns = changed.send_interval_ns
        if frame != self._frame:
            self._next_ns = now_ns
        elif interval_ns is not None:
            self._next_ns = min(self._next_ns, now_ns + interval_ns)
        if changed.state is not self.session.state:
            self._accepted = b""  # the same frame can mean something else now
        self.session, self._frame = changed, frame

    def set_settings(self, settings: HelloSettings, now_ns: int) -> None:
        """Change the settings of hellos from now on."""
        self.adopt(replace(self.session, settings=settings), now_ns)

    def set_admin(self, up: bool, now_ns: int) -> None:
        """Announce to the neighbour that the port is taken out of use, or put back."""
        self.adopt(session.set_admin(self.session, up, now_ns), now_ns)

    def farewell(self, now_ns: int) -> bytes:
        """Return the frame announcing that no more follow."""
        return frames.encode(self._device_id, self._port, session.end(self.session, now_ns).packet())
