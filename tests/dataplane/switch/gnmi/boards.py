"""A switch that is nothing but ports: the board of both switches, with hellos that tests say themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from dataplane.clock import VirtualClock
from dataplane.errors import SwitchError
from dataplane.switch.hellos.frames import discriminator
from dataplane.switch.ports.board import PortBoard
from dataplane.switch.ports.states import (
    HelloSession,
    HelloSettings,
    HelloState,
    OperStatus,
    PortCounters,
    PortListener,
    PortState,
)

EPOCH_NS = 1_700_000_000_000_000_000
"""The date of the virtual clock's zero."""


class Board:
    """Ports 1 (`east`, 10 Gbit/s), 2 (`west`, a rate without a name) and any further ones requested."""

    def __init__(self, ports: int = 2) -> None:
        self.clock = VirtualClock(5)
        names = ["east", "west", *(f"port{number}" for number in range(3, ports + 1))][:ports]
        states = [PortState(number, name, 10_000_000_000) for number, name in enumerate(names, 1)]
        if ports > 1:
            states[1] = replace(states[1], speed_bps=12_345)
        self.board = PortBoard(1, states, self.clock.now_ns)
        self.counters: dict[int, PortCounters] = {}
        self.calls: list[str] = []

    def now_ns(self) -> int:
        return self.clock.now_ns()

    def epoch_ns(self) -> int:
        return EPOCH_NS + self.clock.now_ns()

    def port_states(self) -> Mapping[int, PortState]:
        return self.board.read()

    def port_counters(self) -> Mapping[int, PortCounters]:
        return self.counters

    def set_admin(self, port: int, up: bool) -> None:
        self.calls.append(f"admin {port} {up}")
        self.board.set_admin(port, up)
        self.board.notify()

    def set_oper(self, port: int, oper: OperStatus) -> None:
        self.board.set_oper(port, oper)
        self.board.notify()

    def set_hello(self, port: int, settings: HelloSettings | None) -> None:
        self.calls.append(f"hello {port} {settings}")
        number = discriminator(1, port)
        hello = None if settings is None else HelloSession(settings, local_discriminator=number, since_ns=self.now_ns())
        self.board.set_hello(port, hello)
        self.board.notify()

    def say(self, port: int, state: HelloState, **more: object) -> None:
        """Let a port's hellos be in a state from now on."""
        hello = self.board[port].hello
        if hello is None:
            raise SwitchError(f"no hellos on port {port}")
        changed = replace(hello, state=state, since_ns=self.now_ns())
        self.board.set_hello(port, replace(changed, **more))  # type: ignore[arg-type]
        self.board.notify()

    def add_port_listener(self, listener: PortListener) -> Callable[[], None]:
        return self.board.add_listener(listener)
