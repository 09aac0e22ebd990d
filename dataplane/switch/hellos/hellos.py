"""The hellos of all ports of a `Switch`: takes them out of incoming frames, and schedules outgoing ones."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from dataplane.switch.hellos.frames import is_hello
from dataplane.switch.hellos.port_hello import PortHello
from dataplane.switch.hellos.session import Session
from dataplane.switch.ports.states import HelloSettings


class Hellos:
    """Ports that send hellos, by number; belongs to the holder of the switch's lock."""

    def __init__(self, device_id: int, seed: int) -> None:
        self._device_id, self._seed = device_id, seed
        self._ports: dict[int, PortHello] = {}
        self._farewells: list[tuple[int, bytes]] = []
        self._due_ns: int | None = None
        self._changed = False
        self._reported: dict[int, Session] = {}

    def __contains__(self, port: int) -> bool:
        return port in self._ports

    @property
    def due_ns(self) -> int | None:
        """Time of `step`'s next work; None: never, unless something arrives or is set."""
        return self._due_ns

    def take_changed(self) -> Sequence[tuple[int, PortHello]]:
        """Return the ports whose hello state has changed since the last call."""
        if not self._changed:
            return ()
        self._changed = False
        changed = [
            (port, hello) for port, hello in self._ports.items() if hello.session is not self._reported.get(port)
        ]
        self._reported = {port: hello.session for port, hello in self._ports.items()}
        return changed

    @property
    def ports(self) -> Mapping[int, PortHello]:
        """The ports on which hellos are set."""
        return self._ports

    def set(self, port: int, settings: HelloSettings | None, now_ns: int, *, admin_up: bool) -> None:
        """Begin, change or (None) end the hellos of a port."""
        existing = self._ports.get(port)
        if settings is None:
            if existing is not None:
                self._farewells.append((port, existing.farewell(now_ns)))
                del self._ports[port]
        elif existing is not None:
            existing.set_settings(settings, now_ns)
        else:
            rng = random.Random(f"{self._seed}/{self._device_id}/hello/{port}")
            self._ports[port] = PortHello(self._device_id, port, settings, now_ns, rng)
            self._ports[port].set_admin(admin_up, now_ns)
        self.schedule()

    def set_admin(self, port: int, up: bool, now_ns: int) -> None:
        """Announce to a port's neighbour, if there are hellos, that the port is taken out of use or put back."""
        if port in self._ports:
            self._ports[port].set_admin(up, now_ns)
            self.schedule()

    def take(self, port: int, frames: Sequence[bytes], now_ns: int, *, unread: bool) -> Sequence[bytes]:
        """Process the hellos among a port's frames and return the others."""
        listener = self._ports.get(port)
        if listener is None:
            return frames
        others = []
        for frame in frames:
            if is_hello(frame):
                listener.hear(frame, now_ns)
            else:
                others.append(frame)
        listener.note_unread(unread)
        if len(others) < len(frames):
            self.schedule()
        return others

    def step(self, now_ns: int) -> Sequence[tuple[int, bytes]]:
        """Do what is due; return the frames to send now, with their ports."""
        if self._due_ns is None or now_ns < self._due_ns:
            return ()
        sent, self._farewells = self._farewells, []
        for port, hello in self._ports.items():
            due_ns = hello.due_ns()
            frame = hello.step(now_ns) if due_ns is not None and due_ns <= now_ns else None
            if frame is not None:
                sent.append((port, frame))
        self.schedule()
        return sent

    def schedule(self) -> None:
        """Compute the time of `step`'s next work."""
        self._changed = True
        times = [due_ns for hello in self._ports.values() if (due_ns := hello.due_ns()) is not None]
        self._due_ns = 0 if self._farewells else min(times, default=None)
