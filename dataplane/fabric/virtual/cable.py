"""One direction of a cable in virtual time: frames arrive after the delay, unless random loss or a break takes them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from dataplane.events import EventQueue
from dataplane.topology.units import PPB
from dataplane.topology.values import DirectedLink


class Chance:
    """Draws for one direction of a link; equal seeds draw the same, and a link without loss and jitter draws nothing.

    Losses and jitter use separate generators: a file with another jitter loses the same frames.
    """

    def __init__(self, link: DirectedLink, seed: str) -> None:
        self._link = link
        self._loss = random.Random(f"{seed}/loss/{link.key}") if link.loss_ppb else None
        self._jitter = random.Random(f"{seed}/jitter/{link.key}") if link.jitter_ns else None
        self._last_ns = 0

    def loses(self) -> bool:
        """Return whether the next frame is lost."""
        return self._loss is not None and self._loss.randrange(PPB) < self._link.loss_ppb

    def arrival_ns(self, departs_ns: int) -> int:
        """Return the arrival time of a frame that departs at a time: never before the one returned last."""
        link = self._link
        if self._jitter is None:
            return departs_ns + link.delay_ns
        drawn_ns = link.delay_ns + self._jitter.randint(-link.jitter_ns, link.jitter_ns)
        self._last_ns = max(self._last_ns, departs_ns + drawn_ns)
        return self._last_ns


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
