"""What the runtime API needs of the switch that it works on."""

from __future__ import annotations

from typing import Protocol

from dataplane.switch.p4runtime.control import SwitchControl


class Queues(Protocol):
    """The queues of a switch's ports; packets are held while they are changed."""

    def set_queue_frames(self, number: int, frames: int) -> None:
        """Set how many frames may wait in each of a port's queues."""
        ...

    def set_packet_rate(self, number: int, packets_per_s: int) -> None:
        """Set how many packets a second leave a port's queues at most; 0: as many as its rate lets."""
        ...


class RuntimeControl(SwitchControl, Protocol):
    """What the runtime API needs of a switch."""

    @property
    def traffic(self) -> Queues:
        """The ports' queues."""
        ...
