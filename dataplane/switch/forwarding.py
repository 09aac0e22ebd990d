"""The glue between ports and interpreter: takes bursts, advances the switch, holds frames for their cable's delay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush

from dataplane.clock import Clock
from dataplane.nic import Port
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.switch import Departure, Switch
from dataplane.switch.traffic import PortSettings, jitter_seed

BURST_FRAMES = 32
"""Frames taken from a port before the next port's turn."""
IN_FLIGHT_FRAMES = 65_536
"""Total capacity, in frames, of all cables of a switch; further ones are dropped as `cable_full`."""


class PortCable:
    """Arrival times of frames that leave a port one after another."""

    def __init__(self, port: PortSettings, seed: int) -> None:
        self._port = port
        self._rng = SplitMix(jitter_seed(seed, port.number))
        self._last_ns = 0

    def arrival_ns(self, departs_ns: int) -> int:
        """Return the arrival time of a frame that departs at a time: never before the previous call's."""
        port = self._port
        if port.jitter_ns:
            drawn_ns = port.delay_ns + self._rng.between(0, 2 * port.jitter_ns) - port.jitter_ns
            self._last_ns = max(self._last_ns, departs_ns + drawn_ns)
            return self._last_ns
        return departs_ns + port.delay_ns


class Forwarder:
    """A switch with its ports; `step` never waits, `next_due_ns` gives the longest time the caller may wait."""

    def __init__(self, switch: Switch, ports: Mapping[int, Port], clock: Clock, *, seed: int = 0) -> None:
        self.switch = switch
        self.ports = dict(ports)
        self.cable_full = 0
        self.clock = clock
        self._cables = {port.number: PortCable(port, seed) for port in switch.ports}
        # Arrival time, a sequence number that keeps equal times in order, port, frame.
        self._in_flight: list[tuple[int, int, int, bytes]] = []
        self._serial = 0
        self._unread: set[int] = set()

    def step(self, readable: Iterable[int]) -> None:
        """Receive a burst from each port of `readable`, advance the switch to now, send what has crossed its cable."""
        numbers = tuple(readable)
        for number in self._unread.difference(numbers):
            self.switch.receive(number, ())
        self._unread.clear()
        for number in numbers:
            frames = self.ports[number].receive(BURST_FRAMES)
            if len(frames) == BURST_FRAMES:
                self._unread.add(number)
            if frames:
                self.switch.receive(number, frames, unread=len(frames) == BURST_FRAMES)
        now_ns = self.clock.now_ns()
        for departure in self.switch.advance(now_ns):
            self._hold(departure)
        self._send_arrived(now_ns)

    def next_due_ns(self) -> int | None:
        """Return when `step` next has work without an incoming frame, or None."""
        event_ns = self.switch.next_event_ns()
        if not self._in_flight:
            return event_ns
        return self._in_flight[0][0] if event_ns is None else min(event_ns, self._in_flight[0][0])

    @property
    def in_flight(self) -> int:
        """Frames on the cables."""
        return len(self._in_flight)

    def _hold(self, departure: Departure) -> None:
        if len(self._in_flight) >= IN_FLIGHT_FRAMES:
            self.cable_full += 1
            return
        arrives_ns = self._cables[departure.port].arrival_ns(departure.departs_ns)
        self._serial += 1
        heappush(self._in_flight, (arrives_ns, self._serial, departure.port, departure.data))

    def _send_arrived(self, now_ns: int) -> None:
        arrived: dict[int, list[bytes]] = {}
        while self._in_flight and self._in_flight[0][0] <= now_ns:
            _, _, number, data = heappop(self._in_flight)
            arrived.setdefault(number, []).append(data)
        for number, frames in arrived.items():
            self.ports[number].send(frames)
