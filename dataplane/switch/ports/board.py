"""The states of a switch's ports in one place, with change listeners; used by both switches."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from dataplane.errors import SwitchError
from dataplane.switch.ports.states import HelloSession, OperStatus, PortListener, PortState

logger = logging.getLogger("millrace.switch")


class PortBoard:
    """Port states, changed from any thread; listeners are called in the order of changes, with no lock held."""

    def __init__(self, device_id: int, ports: Iterable[PortState], now_ns: Callable[[], int]) -> None:
        self._device_id = device_id
        self._states = {state.port: state for state in ports}
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._listeners: list[PortListener] = []
        self._pending: deque[PortState] = deque()
        self._notifying = False

    def __getitem__(self, port: int) -> PortState:
        """Return a port's state; raise SwitchError if there is no such port."""
        state = self._states.get(port)
        if state is None:
            raise SwitchError(f"switch {self._device_id} has no port {port}")
        return state

    def read(self) -> Mapping[int, PortState]:
        """Return all states."""
        with self._lock:
            return dict(self._states)

    def unusable(self) -> frozenset[int]:
        """Return the unusable ports."""
        return frozenset(port for port, state in self.read().items() if not state.is_usable)

    def set_oper(self, port: int, oper: OperStatus) -> PortState:
        """Record the state of a port's device; return the new state."""
        return self._change(port, lambda state: self._dated(state, replace(state, oper=oper)))

    def set_admin(self, port: int, up: bool) -> PortState:
        """Record that a port was taken out of use or put back; return the new state."""
        return self._change(port, lambda state: self._dated(state, replace(state, admin_up=up)))

    def set_hello(self, port: int, hello: HelloSession | None) -> PortState:
        """Record the state of a port's hellos; changed counts do not count as a change. Returns the new state."""
        return self._change(port, lambda state: replace(state, hello=hello))

    def set_not_joined(self, port: int, reason: str) -> PortState:
        """Record why a port does not join TCP segments, "" if it does; return the new state."""
        return self._change(port, lambda state: replace(state, not_joined=reason))

    def add_listener(self, listener: PortListener) -> Callable[[], None]:
        """Notify `listener` of each change from now on; return a function that ends that."""
        with self._lock:
            self._listeners.append(listener)

        def remove() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return remove

    def notify(self) -> None:
        """Call the listeners with pending changes; if another thread is doing so, leave it to that one."""
        while True:
            with self._lock:
                if self._notifying or not self._pending:
                    return
                self._notifying = True
                state, listeners = self._pending.popleft(), tuple(self._listeners)
            try:
                for listener in listeners:
                    self._call(listener, state)
            finally:
                with self._lock:
                    self._notifying = False

    def _call(self, listener: PortListener, state: PortState) -> None:
        """Call a listener; one that fails is logged and loses this change, the others still get it."""
        try:
            listener(state)
        except Exception:
            logger.exception("a port listener of switch %d failed: it missed a change", self._device_id)

    def _change(self, port: int, change: Callable[[PortState], PortState]) -> PortState:
        with self._lock:
            before = self[port]
            after = change(before)
            self._states[port] = after
            if _without_counts(after) != _without_counts(before):
                self._pending.append(after)
        return after

    def _dated(self, before: PortState, after: PortState) -> PortState:
        return after if after == before else replace(after, since_ns=self._now_ns())


class UsableWatch:
    """Notifies a receiver of ports that become or cease to be usable, and of nothing else; a listener of a board."""

    def __init__(self, receiver: Callable[[int, bool], None], unusable: frozenset[int]) -> None:
        self._receiver = receiver
        self._at_first = unusable
        self._unusable = set(unusable)

    def begin(self) -> None:
        """Report initially unusable ports."""
        for port in sorted(self._at_first):
            self._receiver(port, False)

    def __call__(self, state: PortState) -> None:
        """Report the port if its state differs from the last one."""
        if state.is_usable is (state.port not in self._unusable):
            return
        (self._unusable.discard if state.is_usable else self._unusable.add)(state.port)
        self._receiver(state.port, state.is_usable)


def _without_counts(state: PortState) -> PortState:
    if state.hello is None:
        return state
    return replace(state, hello=replace(state.hello, sent=0, received=0, drops={}))
