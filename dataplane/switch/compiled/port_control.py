"""The ports of the native switch as Python sees them: administrative state, device state, hellos."""

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
    """Changes a port's state and updates workers, the running program's tables and listeners; from any thread.

    `lock` is held while a state changes: a holder that installs a program misses no change. `state` returns the running
    program's tables.
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
        """Return the current state of all ports except the CPU port."""
        with self._lock:
            for port, hello in self._hellos:
                self._board.set_hello(port, hello.describe())
        return self._board.read()

    def set_admin(self, port: int, up: bool) -> None:
        """Take a port out of use or put it back; raise SwitchError if there is no such port."""
        self._follow(lambda: self._board.set_admin(port, up))
        with self._lock:
            self._hellos.set_admin(port, up, self._clock.now_ns())
        self.read_hellos()

    def set_oper(self, port: int, oper: OperStatus) -> None:
        """Record the state of a port's device; raise SwitchError if there is no such port."""
        self._follow(lambda: self._board.set_oper(port, oper))

    def set_hello(self, port: int, settings: HelloSettings | None) -> None:
        """Start or stop hellos on a port; raise SwitchError if there is no such port."""
        with self._lock:
            admin_up = self._board[port].admin_up
            out, queues = self._table[port], len(self._devices[port].queues)
            self._hellos.set(out, queues, settings, self._clock.now_ns(), admin_up=admin_up)
        self.read_hellos()

    def take_leave(self) -> None:
        """Announce by hellos, if any, to all neighbours that this switch stops; return once that was sent.

        Does not wait long for a port whose device takes nothing.
        """
        deadline = time.monotonic() + _LEAVE_S
        with self._lock:
            is_sent = self._hellos.take_leave(self._clock.now_ns())
        self.read_hellos()
        while not is_sent() and time.monotonic() < deadline:
            time.sleep(_LEAVE_POLL_S)

    def read_hellos(self) -> None:
        """Read what workers heard and missed, and update tables and listeners."""
        with self._lock:
            changed = self._hellos.read(self._clock.now_ns())
            for port, hello in changed:
                self._board.set_hello(port, hello)
        if changed:
            self._settle(port for port, _ in changed)

    # ---- devices

    @property
    def any_device_down(self) -> bool:
        """True if `read_devices` should be called again later even without a notification that a device has changed."""
        return bool(self._down)

    def expect_device_change(self) -> None:
        """Make the next `read_devices` check every device."""
        self._devices_changed = True

    def read_devices(self) -> None:
        """Record devices that changed or were found down when used; check those that are down now again."""
        everything = self._devices_changed
        if everything:  # only then: it may have become true since
            self._devices_changed = False
        for number, device in self._devices.items():
            if everything or number in self._down or any(queue.down for queue in device.queues):
                oper = read_oper(device)
                (self._down.discard if oper is OperStatus.UP else self._down.add)(number)
                self.set_oper(number, oper)

    # ---- updates of dependants

    def _follow(self, change: Callable[[], PortState]) -> None:
        """Change a port's state and update workers, tables and listeners."""
        with self._lock:
            changed = change()
            self._table[changed.port].is_up = changed.is_open
        self._settle([changed.port])

    def _settle(self, ports: Iterable[int]) -> None:
        """Update tables and listeners to the board's port states."""
        with self._settling:
            state = self._state()
            if state is not None:
                for port in ports:
                    state.follow_port(port, self._board[port].is_usable)
        self._board.notify()
