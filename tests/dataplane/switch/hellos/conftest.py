"""One switch under test, interpreter's or native, on cables in memory; the test is the neighbour at the other ends."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from dataplane.clock import MonotonicClock
from dataplane.nic import NicPort, memory_pair
from dataplane.switch.compiled.activity import Forwarding
from dataplane.switch.compiled.switch import NativeSwitch
from dataplane.switch.forwarding import Forwarder
from dataplane.switch.hellos.frames import is_hello
from dataplane.switch.hellos.port_hello import PortHello
from dataplane.switch.ports.states import HelloSession, HelloSettings
from dataplane.switch.switch import Switch
from dataplane.switch.traffic import PortSettings
from tests.waiting import wait_until

DEVICE, NEIGHBOUR = 1, 2
PORTS = (PortSettings(1), PortSettings(2), PortSettings(3, delay_ns=200_000))
BRISK = HelloSettings(interval_ns=10_000_000, multiplier=3)
DRIVERS = ("python", "native", "native of two workers")


class Rig:
    """The switch and the far ends of its cables; only a native switch runs by itself."""

    def __init__(self, driver: str) -> None:
        self.clock = MonotonicClock()
        threads = 2 if "two" in driver else 1
        pairs = {port.number: _cable(port.number, threads) for port in PORTS}
        self._near = {number: near for number, (near, _) in pairs.items()}
        self.far: dict[int, NicPort] = {number: far for number, (_, far) in pairs.items()}
        self.traffic: dict[int, list[bytes]] = {number: [] for number in self.far}
        self.neighbours: dict[int, PortHello] = {}
        self.switch: Switch | NativeSwitch
        self._forwarder: Forwarder | None = None
        if driver == "python":
            self.switch = Switch(DEVICE, PORTS, self.clock)
            self._forwarder = Forwarder(self.switch, self._near, self.clock)
        else:
            self.switch = NativeSwitch(DEVICE, PORTS, self._near, forwarding=Forwarding(threads=threads))

    def meet(self, port: int, settings: HelloSettings = BRISK) -> PortHello:
        """Become the neighbour at a port."""
        self.neighbours[port] = PortHello(NEIGHBOUR, port, settings, self.clock.now_ns(), random.Random(port))
        return self.neighbours[port]

    def step(self) -> None:
        """Let the switch and the neighbours do their due work."""
        if self._forwarder is not None:
            self._forwarder.step(self._near)
        now_ns = self.clock.now_ns()
        for port, far in self.far.items():
            neighbour = self.neighbours.get(port)
            for frame in far.receive(1_000):
                if neighbour is not None and is_hello(frame):
                    neighbour.hear(frame, now_ns)
                else:
                    self.traffic[port].append(frame)
            due_ns = None if neighbour is None else neighbour.due_ns()
            if neighbour is not None and due_ns is not None and due_ns <= now_ns:
                reply = neighbour.step(now_ns)
                if reply is not None:
                    far.send([reply])

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Step until a condition holds."""

        def step() -> bool:
            self.step()
            return condition()

        wait_until(lambda: condition() or step(), lambda: f"{what}: {self.switch.port_states()}", poll_s=0)

    def hello(self, port: int) -> HelloSession:
        """Return a port's hello session."""
        session = self.switch.port_states()[port].hello
        assert session is not None
        return session

    def send(self, port: int, frames: Sequence[bytes]) -> None:
        """Send frames to the switch."""
        assert self.far[port].send(frames) == len(frames)

    def close(self) -> None:
        if isinstance(self.switch, NativeSwitch):
            self.switch.close()
        for port in (*self._near.values(), *self.far.values()):
            port.close()


def _cable(number: int, queues: int) -> tuple[NicPort, NicPort]:
    """Return two ends; what the far one sends comes to the last worker."""
    pairs = [memory_pair((f"s{number}.{queue}", f"t{number}.{queue}")) for queue in range(queues)]
    near = [channel for end, _ in pairs for channel in end._channels]
    far = [channel for _, end in pairs for channel in end._channels]
    return NicPort(f"s{number}", near), NicPort(f"t{number}", far[::-1])


@pytest.fixture(params=DRIVERS)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """A switch of each driver, without a program."""
    made = Rig(request.param)
    if isinstance(made.switch, NativeSwitch):
        made.switch.start()
    yield made
    made.close()
