"""The ports of the native switch as Python sees them: taken out of use, their devices' states, their hellos."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from dataplane.clock import Clock
from dataplane.nic import NicPort
from dataplane.switch.compiled.hellos import NativeHellos
from dataplane.switch.compiled.memory.port_table import PortTable
from dataplane.switch.devices import read_oper
from dataplane.switch.ports.board import PortBoard
from dataplane.switch.ports.states import HelloSettings, OperStatus, PortState
from dataplane.switch.tables import ForwardingState

_LEAVE_S, _LEAVE_POLL_S = 0.05, 0.0005


class PortControl:
    """Changes a port's state and lets workers, the running program's tables and listeners follow; from any thread.

    `lock` is held while a state changes: who holds it to install a program misses no change. `state` returns the
    tables of the program that runs.
    """

    def __init__(
        self,
        board: PortBoard,
        hellos: NativeHellos,
        *,
        table: PortTable,
        devices: Mapping[int, NicPort],
        clock: Clock,
        lock: threading.RLock,
        state: Callable[[], ForwardingState | None],
    ) -> None:
        self._board, self._hellos, self._table, self._devices = board, hellos, table, dict(devices)
        self._clock, self._lock, self._state = clock, lock, state
        self._settling = threading.Lock()
        self._down: set[int] = set()
        self._devices_changed = False

    def read(self) -> Mapping[int, PortState]:
        """Return all ports as they are now, but for the CPU port."""
        with self._lock:
            for port, hello in self._hellos:
                self._board.set_hello(port, hello.describe())
        return self._board.read()

    def set_admin(self, port: int, up: bool) -> None:
        """Take a port out of use or back into it; raise SwitchError if there is no such port."""
        self._follow(lambda: self._board.set_admin(port, up))
        with self._lock:
            self._hellos.set_admin(port, up, self._clock.now_ns())
        self.read_hellos()

    def set_oper(self, port: int, oper: OperStatus) -> None:
        """Note what became of a port's device; raise SwitchError if there is no such port."""
        self._follow(lambda: self._board.set_oper(port, oper))

    def set_hello(self, port: int, settings: HelloSettings | None) -> None:
        """Say hello on a port from now on, or no more; raise SwitchError if there is no such port."""
        with self._lock:
            admin_up = self._board[port].admin_up
            out, queues = self._table[port], len(self._devices[port].queues)
            self._hellos.set(out, queues, settings, self._clock.now_ns(), admin_up=admin_up)
        self.read_hellos()

    def take_leave(self) -> None:
        """Announce to all neighbours by hellos, where there are any, that this switch stops; return once that was sent.

        A port whose device takes nothing is not waited for long.
        """
        deadline = time.monotonic() + _LEAVE_S
        with self._lock:
            is_sent = self._hellos.take_leave(self._clock.now_ns())
        self.read_hellos()
        while not is_sent() and time.monotonic() < deadline:
            time.sleep(_LEAVE_POLL_S)

    def read_hellos(self) -> None:
        """Read what workers heard and missed, and let others follow."""
        with self._lock:
            changed = self._hellos.read(self._clock.now_ns())
            for port, hello in changed:
                self._board.set_hello(port, hello)
        if changed:
            self._settle(port for port, _ in changed)

    # ---- devices

    @property
    def any_device_down(self) -> bool:
        """Whether `read_devices` is to be called again in a while, without a notification that a device has changed."""
        return bool(self._down)

    def expect_device_change(self) -> None:
        """Have the next `read_devices` look at every device."""
        self._devices_changed = True

    def read_devices(self) -> None:
        """Note how devices are that changed, or that were found down when used; those that are down now and again."""
        everything = self._devices_changed
        if everything:  # only then: it may have become true since
            self._devices_changed = False
        for number, device in self._devices.items():
            if everything or number in self._down or any(queue.down for queue in device.queues):
                oper = read_oper(device)
                (self._down.discard if oper is OperStatus.UP else self._down.add)(number)
                self.set_oper(number, oper)

    # ---- who follows

    def _follow(self, change: Callable[[], PortState]) -> None:
        """Change a port's state and let workers, tables and listeners follow."""
        with self._lock:
            changed = change()
            self._table[changed.port].is_up = changed.is_open
        self._settle([changed.port])

    def _settle(self, ports: Iterable[int]) -> None:
        """Let tables and listeners follow what the board says of ports."""
        with self._settling:
            state = self._state()
            if state is not None:
                for port in ports:
                    state.set_port_status(port, self._board[port].is_usable)
        self._board.notify()
