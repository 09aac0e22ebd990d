"""The interface of a switch to the runtime API."""

from __future__ import annotations

from typing import Protocol

from dataplane.switch.p4runtime.control import SwitchControl


class Queues(Protocol):
    """The queues of a switch's ports; packets are held while they are changed."""

    def set_queue_frames(self, number: int, frames: int) -> None:
        """Set the capacity, in frames, of each of a port's queues."""
        ...

    def set_packet_rate(self, number: int, packets_per_s: int) -> None:
        """Set the maximum packets per second that leave a port's queues; 0: limited only by its rate."""
        ...


class RuntimeControl(SwitchControl, Protocol):
    """Operations of a switch that the runtime API needs."""

    @property
    def traffic(self) -> Queues:
        """The ports' queues."""
        ...
