"""Opens the gates of ports that join TCP segments, while only a host's stack takes what they send.

A gate opens for a short time, when a worker has segments to join and the other end of the cable has been inspected, and
stays open as long as segments are joined. So a reader that was there before never sees joined frames. A reader that
starts in the middle of a transfer may see them for LEASE_NS at most, and hardly so where the kernel reports it (a
device that becomes promiscuous, gets an XDP program, a tc filter): then the gate is shut before anything is inspected.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from dataplane.clock import NS_PER_MS
from dataplane.errors import PortError
from dataplane.native import kernel_library
from dataplane.native.doorbell import Bell, hear, ring
from dataplane.nic.devices.far_end import PLAIN_STACK, FarEnd, NamespacePaths
from dataplane.nic.devices.link_events import CableEvents, Ends
from dataplane.nic.devices.offloads import enable_segmentation
from dataplane.nic.ports.nic_port import NicPort
from dataplane.nic.ports.queue import JoinGate
from dataplane.nic.ports.segment_sender import FOREVER

LEASE_NS: Final = 100_000_000
"""Longest validity of an inspection."""
RENEWAL_NS: Final = 40_000_000
RETRY_NS: Final = 1_000_000_000
"""Shortest time before a refused port is inspected again; also at least a hundred times the inspection's duration."""
REFRESH_NS: Final = 1_000_000_000
"""Delay, after a change, of inspecting ports that have nothing to join, so that their reported state stays correct."""
_RETRY_LOOKS, _RESTS = 100, 4

Listener = Callable[[int, str], None]
"""Receives a port's number and why it does not join, PLAIN_STACK if it does."""


@dataclass(slots=True)
class _Watched:
    """A port: its gate, its inspector, the result, and the circumstances at that time."""

    number: int
    device: str
    gate: JoinGate
    far_end: FarEnd
    reason: str | None = None
    is_open: bool = False
    """Joining was allowed at the last inspection, and segments had been joined or were waiting to be."""
    trains: int = 0
    due_ns: int = 0
    """Time of the next inspection while it is open."""
    rested_ns: int = 0
    """Earliest time of the next inspection, whatever happens: endless news would cost part of a processor."""
    can_segment: bool = False


class JoinWatch:
    """Keeps the gates of some ports, on its own thread from `start` to `close`.

    Close it once nothing sends by the ports any more, and before they are closed. The ports have gates, and devices in
    the namespace of the creating thread. Raises PortError.
    """

    def __init__(self, ports: Mapping[int, NicPort]) -> None:
        library = kernel_library(ring, hear)
        self._ring: Callable[[Bell], None] = library.bind(ring)
        self._hear: Callable[[Bell], None] = library.bind(hear)
        self._events = CableEvents()
        self._bell = Bell(fd=os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), waiting=1)
        paths = NamespacePaths()
        self._ports = [_watched(number, port, self._bell, paths) for number, port in ports.items()]
        self._refresh_ns = FOREVER
        self._is_closing = False
        self._listener: Listener = lambda _number, _reason: None
        self._thread = threading.Thread(target=self._run, name="join-watch", daemon=True)

    def start(self, listener: Listener) -> None:
        """Start inspecting; `listener` is called on this object's thread for each port, and when the answer changes."""
        self._listener = listener
        self._thread.start()

    def close(self) -> None:
        """Shut the gates and stop inspecting."""
        self._is_closing = True
        self._ring(self._bell)
        if self._thread.ident is not None:
            self._thread.join()
        for port in self._ports:
            _shut(port)
            port.gate.ask_from_ns = FOREVER
            port.far_end.close()
        self._events.close()
        os.close(self._bell.fd)

    def _run(self) -> None:
        try:
            self._watch()
        except (OSError, PortError) as error:
            # A thread that cannot return to the ports' namespace, or hears of no changes, must not open gates any more.
            for port in self._ports:
                self._say(port, f"readers of frames can no longer be detected: {error}")
        finally:
            for port in self._ports:
                _shut(port)

    def _watch(self) -> None:
        waiting = select.poll()
        waiting.register(self._bell.fd, select.POLLIN)
        waiting.register(self._events.fileno(), select.POLLIN)
        for port in self._ports:
            self._look(port)
        while not self._is_closing:
            waiting.poll(self._timeout_ms())
            self._hear(self._bell)
            self._take_news(self._events.take())
            now_ns = time.monotonic_ns()
            is_refreshing = now_ns >= self._refresh_ns
            if is_refreshing:
                self._refresh_ns = FOREVER
            for port in self._ports:
                if _is_due(port, now_ns) or (is_refreshing and not port.is_open):
                    self._look(port)

    def _timeout_ms(self) -> int | None:
        due_ns = min([self._refresh_ns, *(port.due_ns for port in self._ports if port.is_open)])
        return None if due_ns == FOREVER else max(0, -(-(due_ns - time.monotonic_ns()) // NS_PER_MS))

    def _take_news(self, changed: Ends | None) -> None:
        """Shut the gates of cables that changed; inspect those that were open first, others after a while."""
        news = [port for port in self._ports if changed is None or not changed.isdisjoint(port.far_end.ends)]
        for port in news:
            _shut(port)
        now_ns = time.monotonic_ns()
        for port in news:
            if port.is_open:
                port.due_ns = port.gate.ask_from_ns = min(port.due_ns, max(now_ns, port.rested_ns))
            self._refresh_ns = min(self._refresh_ns, now_ns + REFRESH_NS)

    def _look(self, port: _Watched) -> None:
        begun_ns = time.monotonic_ns()
        asked, port.gate.asked = bool(port.gate.asked), 0
        trains = port.gate.trains
        reason = port.far_end.look()
        port.is_open = reason == PLAIN_STACK and (asked or trains != port.trains)
        port.trains = trains
        if port.is_open and not port.can_segment:
            try:
                enable_segmentation(port.device)
            except PortError as error:
                port.is_open, reason = False, str(error)
            port.can_segment = port.is_open
        now_ns = time.monotonic_ns()
        port.due_ns, port.rested_ns = begun_ns + RENEWAL_NS, now_ns + _RESTS * (now_ns - begun_ns)
        retry_ns = begun_ns + max(RETRY_NS, _RETRY_LOOKS * (now_ns - begun_ns))
        port.gate.ask_from_ns = 0 if reason == PLAIN_STACK else retry_ns
        port.gate.until_ns = begun_ns + LEASE_NS if port.is_open else 0
        self._say(port, reason)

    def _say(self, port: _Watched, reason: str) -> None:
        if reason != port.reason:
            port.reason = reason
            self._listener(port.number, reason)


def _watched(number: int, port: NicPort, bell: Bell, paths: NamespacePaths) -> _Watched:
    gate = port.gate
    if gate is None or port.device_index is None:
        raise PortError(f"interface {port.name}: it has no gate to open")
    gate.bell = bell
    own = [os.fstat(queue.fd).st_ino for queue in port.queues]
    return _Watched(number, port.name, gate, FarEnd(port.device_index, own, paths))


def _is_due(port: _Watched, now_ns: int) -> bool:
    return now_ns >= port.due_ns if port.is_open else bool(port.gate.asked)


def _shut(port: _Watched) -> None:
    port.gate.until_ns = 0
