"""The hellos of a native switch: Python keeps the sessions, workers send and receive the frames.

With `hello_state`, the twin of `dataplane.switch.hellos.port_hello`: Python reads new frames, decides the session's
state, and tells the workers what to send, what counts as life, and how long a silence is too long.
"""

from __future__ import annotations

import ctypes
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from dataplane.errors import WireError
from dataplane.native import pointer_to
from dataplane.switch.compiled.memory.hello_state import FRAME_SLOTS, MAIL_HEAD_BYTES, MAIL_SLOTS, SLOT_BYTES, Hello
from dataplane.switch.compiled.memory.traffic import OutPort
from dataplane.switch.compiled.memory.worker import Worker
from dataplane.switch.hellos import frames, session
from dataplane.switch.hellos.session import HelloDrop, Session
from dataplane.switch.ports.states import HelloSession, HelloSettings
from dataplane.wire import bfd

_LOOKS_PER_INTERVAL = 2


class NativePortHello:
    """One port's session, and the struct through which workers send and receive its hellos."""

    def __init__(self, device_id: int, port: int, queues: int, now_ns: int, rng: random.Random) -> None:
        self._device_id, self._port = device_id, port
        self._drops: Counter[str] = Counter()
        self.session: Session | None = None
        self._frame = b""
        self.hello = Hello()
        self.hello.frames = pointer_to((ctypes.c_uint8 * (FRAME_SLOTS * SLOT_BYTES))())
        self.hello.accepted = pointer_to((ctypes.c_uint8 * (FRAME_SLOTS * SLOT_BYTES))())
        self.hello.mail = pointer_to((ctypes.c_uint8 * (MAIL_SLOTS * SLOT_BYTES))())
        self.hello.looks = pointer_to((ctypes.c_uint64 * queues)(*[now_ns] * queues))
        self.hello.queues = queues
        self.hello.random = rng.getrandbits(63) | 1
        self.hello.looked_ns = self.hello.heard_ns = now_ns
        self._accepted_next = 0

    def describe(self) -> HelloSession | None:
        """Return the public state, None while no hellos are set here."""
        if self.session is None:
            return None
        hello = self.hello
        described = self.session.describe(hello.sent, hello.received + hello.credited)
        drops = {name: number for name, number in {**self._drops, HelloDrop.UNREAD: hello.unread}.items() if number}
        return replace(described, drops=drops) if drops else described

    # ---- from workers to Python

    def read(self, now_ns: int) -> None:
        """Read the mail, then give the neighbour up if it has been silent for too long."""
        hello = self.hello
        while hello.mail_out != hello.mail_in:
            self._open(hello.mail.address + hello.mail_out % MAIL_SLOTS * SLOT_BYTES)
            hello.mail_out += 1
        heard = hello.received + hello.credited
        if not hello.expired:
            return
        if heard == hello.counted and self.session is not None:
            self.adopt(session.expire(self.session, now_ns))
        hello.expired = 0

    def _open(self, mail: int) -> None:
        heard_ns = ctypes.c_uint64.from_address(mail).value
        length = ctypes.c_uint64.from_address(mail + 8).value
        content = ctypes.string_at(mail + MAIL_HEAD_BYTES + frames.PACKET_OFFSET, bfd.SIZE)
        content = content[: max(0, min(length, frames.HELLO_BYTES) - frames.PACKET_OFFSET)]
        if self.session is None:  # it arrived before hellos were stopped here
            return
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
        self.adopt(session.hear(self.session, packet, heard_ns))
        if self.session.state is before:
            self._accept(content)
        # Only after setting the time for the worker that counts silence.
        self.hello.heard_ns = max(self.hello.heard_ns, heard_ns)
        self.hello.credited += 1

    def _accept(self, content: bytes) -> None:
        """Let workers count this as life: it changes nothing however often it comes."""
        self._accepted_next = (self._accepted_next + 1) % FRAME_SLOTS
        ctypes.memmove(self.hello.accepted.address + self._accepted_next * SLOT_BYTES, content, len(content))
        self.hello.accepted_slot = self._accepted_next + 1

    # ---- from Python to workers

    def adopt(self, changed: Session | None) -> None:
        """Continue with another session, or with none."""
        before, self.session = self.session, changed
        hello = self.hello
        if changed is None:
            hello.listening = hello.interval_ns = hello.detection_ns = hello.accepted_slot = 0
            if before is not None:
                self._say(session.end(before, before.since_ns))
            return
        if before is None or changed.state is not before.state:
            hello.accepted_slot = 0  # the same frame can mean something else now
        hello.interval_ns = changed.send_interval_ns or 0
        hello.expected_ns = changed.expected_interval_ns
        hello.detection_ns = changed.detection_ns or 0
        self._say(changed)
        hello.listening = 1

    def _say(self, changed: Session) -> None:
        """Send a session's packet from now on, and at once if it differs from the previous one."""
        frame = frames.encode(self._device_id, self._port, changed.packet())
        if frame == self._frame:
            return
        hello = self.hello
        slot = (hello.frame + 1) % FRAME_SLOTS
        ctypes.memmove(hello.frames.address + slot * SLOT_BYTES, frame, len(frame))
        hello.frame = slot
        hello.at_once = 1
        self._frame = frame


class NativeHellos:
    """The ports of a native switch that have or had hellos; calls come one at a time."""

    def __init__(self, device_id: int, seed: int, workers: Sequence[Worker], wake: Callable[[], None]) -> None:
        self._device_id, self._seed = device_id, seed
        self._workers, self._wake = tuple(workers), wake
        self._ports: dict[int, NativePortHello] = {}
        self._reported: dict[int, Session | None] = {}

    def __iter__(self) -> Iterator[tuple[int, NativePortHello]]:
        """Yield the ports that have or had hellos."""
        return iter(self._ports.items())

    def set(self, out: OutPort, queues: int, settings: HelloSettings | None, now_ns: int, *, admin_up: bool) -> None:
        """Begin, change or (None) end the hellos of a port, whose device has that many queues."""
        number = out.number
        port = self._ports.get(number)
        if port is None:
            if settings is None:
                return
            rng = random.Random(f"{self._seed}/{self._device_id}/hello/{number}")
            served = min(queues, len(self._workers))
            port = self._ports[number] = NativePortHello(self._device_id, number, served, now_ns, rng)
            out.hello = port.hello
        if settings is None:
            port.adopt(None)
        elif port.session is not None:
            port.adopt(replace(port.session, settings=settings))
        else:
            fresh = Session(frames.discriminator(self._device_id, number), settings, since_ns=now_ns)
            port.adopt(session.set_admin(fresh, admin_up, now_ns))
        self._reported.setdefault(number, None)
        self.publish()

    def set_admin(self, number: int, up: bool, now_ns: int) -> None:
        """Announce to a port's neighbour, if there are hellos, that the port is taken out of use or put back."""
        port = self._ports.get(number)
        if port is not None and port.session is not None:
            port.adopt(session.set_admin(port.session, up, now_ns))
            self.publish()

    def take_leave(self, now_ns: int) -> Callable[[], bool]:
        """Announce to all neighbours that the switch stops; return a check that workers have sent it to all."""
        leaving = [port for port in self._ports.values() if port.session is not None]
        sent = [port.hello.sent for port in leaving]
        for port in leaving:
            if port.session is not None:
                port.adopt(session.set_admin(port.session, up=False, now_ns=now_ns))
        self.publish()
        return lambda: all(port.hello.sent > before for port, before in zip(leaving, sent, strict=True))

    def read(self, now_ns: int) -> Sequence[tuple[int, HelloSession | None]]:
        """Check what workers heard and missed; return the ports whose hello state has changed since the last call."""
        for port in self._ports.values():
            port.read(now_ns)
        changed = [(number, port) for number, port in self._ports.items() if port.session is not self._reported[number]]
        for number, port in changed:
            self._reported[number] = port.session
        if changed:
            self.publish()
        return [(number, port.describe()) for number, port in changed]

    def publish(self) -> None:
        """Publish the changes to workers, and make them wake up often enough."""
        expected = [port.session.expected_interval_ns for port in self._ports.values() if port.session is not None]
        for worker in self._workers:
            worker.hello_look_ns = min(expected, default=0) // _LOOKS_PER_INTERVAL
            worker.hello_changed = 1
        self._wake()
