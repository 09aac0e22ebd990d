"""One direction of a cable in virtual time: frames arrive after the delay, unless random loss or a break takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dataplane.events import EventQueue
from dataplane.fabric.virtual.chance import Chance
from dataplane.topology.values import DirectedLink


@dataclass(slots=True)
class CableCounters:
    """Frames that entered one direction of a cable; each was delivered, is in flight, or was lost.

    `lost_cable_down` on a broken cable, `lost_by_chance` to the link's random loss.
    """

    frames: int = 0
    bytes: int = 0
    delivered: int = 0
    lost_cable_down: int = 0
    lost_by_chance: int = 0

    @property
    def on_the_way(self) -> int:
        """Frames in flight between the sender's queue and the receiver."""
        return self.frames - self.delivered - self.lost_cable_down - self.lost_by_chance


@dataclass(slots=True)
class Cable:
    """Carries frames from `link.tail` to `link.head` and hands them to `deliver`; `seed` seeds the random draws."""

    link: DirectedLink
    events: EventQueue
    deliver: Callable[[bytes], None]
    deliver_hello: Callable[[bytes], None] | None = None
    """Receiver of hellos, which count as no traffic and in no counter; None: the same as for other frames."""
    on_change: Callable[[], None] | None = None
    """Called before the cable breaks or is repaired."""
    seed: int = 0
    up: bool = True
    counters: CableCounters = field(default_factory=CableCounters)
    _breaks: int = 0
    _traffic: Chance = field(init=False)
    _hellos: Chance = field(init=False)

    def __post_init__(self) -> None:
        # A separate generator, so that traffic fares the same with and without hellos.
        self._traffic = Chance(self.link, f"{self.seed}/traffic")
        self._hellos = Chance(self.link, f"{self.seed}/hellos")

    def carry(self, frame: bytes, departs_ns: int) -> None:
        """Accept a frame whose last bit leaves at `departs_ns`, now or later."""
        self.counters.frames += 1
        self.counters.bytes += len(frame)
        if not self.up:
            self.counters.lost_cable_down += 1
        elif self._traffic.loses():
            self.counters.lost_by_chance += 1
        else:
            self.events.at(self._traffic.arrival_ns(departs_ns), self._arrive, frame, self._breaks)

    def carry_hello(self, frame: bytes, departs_ns: int) -> None:
        """Accept a hello that leaves now, or left at most one cable delay ago."""
        if self.up and not self._hellos.loses():
            self.events.at(self._hellos.arrival_ns(departs_ns), self._arrive_hello, frame, self._breaks)

    def set_up(self, up: bool) -> None:
        """Repair or break the cable; a break loses the frames on it."""
        if self.on_change is not None:
            self.on_change()
        if self.up and not up:
            self._breaks += 1
        self.up = up

    def _arrive_hello(self, frame: bytes, breaks: int) -> None:
        if breaks == self._breaks:
            (self.deliver_hello or self.deliver)(frame)

    def _arrive(self, frame: bytes, breaks: int) -> None:
        if breaks != self._breaks:
            self.counters.lost_cable_down += 1
            return
        self.counters.delivered += 1
        self.deliver(frame)
