"""The queues of an interpreting switch's devices, as its node's manager sees them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from dataplane.errors import PortError
from dataplane.nic import Mode, NicPort
from dataplane.nic.managed.messages import QueueState
from dataplane.nic.managed.polled import state_of


class LoopQueues:
    """All queues are read by the loop of the thread that makes this, which sleeps until one is readable."""

    def __init__(self, ports: Mapping[int, NicPort]) -> None:
        self._ports, self._thread = dict(ports), threading.get_native_id()

    def read(self) -> Sequence[QueueState]:
        """Return the queues of all ports that are network devices."""
        states: list[QueueState | None] = []
        for port in self._ports.values():
            port.read_counters()  # updates the kernel's drops
            states += [
                state_of(port, number, thread=self._thread, mode=Mode.WAITING, polls=None)
                for number in range(len(port.queues))
            ]
        return [state for state in states if state is not None]

    def set_mode(self, device: str, queue: int | None, mode: Mode) -> None:  # noqa: ARG002 - every queue alike
        """Refuse: the interpreter has one mode."""
        if mode is not Mode.WAITING:
            raise PortError(f"interface {device}: the interpreter only waits; --pipeline compiled has other modes")
