"""The interface of every port to a switch: frames in, frames out, counters; never blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

SOCKET_FULL = "socket_full"
SEND_QUEUE_FULL = "send_queue_full"
PORT_DOWN = "port_down"
TOO_LONG = "too_long"
RECEIVED_TOO_LONG = "received_too_long"
RECEIVED_TOO_SHORT = "received_too_short"
SEND_REFUSED = "send_refused"


class LinkStatus(Enum):
    """State of the link behind a port."""

    UP = "up"
    DOWN = "down"
    """It was set down, or the other end has closed."""
    NO_CARRIER = "no carrier"
    """It is set up, but nothing is at the other end of the cable, or that end is down."""
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class PortReading:
    """A port's counters: frames, bytes without FCS, drops by name.

    `checksum_not_ready` counts frames whose sender left the L4 checksum to its device: they are forwarded with a wrong
    checksum.
    """

    rx_frames: int
    rx_bytes: int
    tx_frames: int
    tx_bytes: int
    checksum_not_ready: int
    drops: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PortInformation:
    """A port's binding to its device.

    is_zero_copy: the driver reads and writes the memory that frames are seen in, nothing is copied (AF_XDP).
    program_place: where its XDP program runs: "driver", "generic" (in front of the kernel's stack), "" without one.
    """

    queues: int
    is_zero_copy: bool = False
    program_place: str = ""


class Port(Protocol):
    """Source and sink of a switch process's frames; never blocks."""

    @property
    def name(self) -> str:
        """The name for users: the device's name."""
        ...

    @property
    def is_down(self) -> bool:
        """True if the device was down or gone when it was last used."""
        ...

    @property
    def link_status(self) -> LinkStatus:
        """The current state of the device, whether it is in use or not."""
        ...

    @property
    def speed_bps(self) -> int | None:
        """The speed that the device reports; None if it reports none, or is no device."""
        ...

    def receive(self, max_frames: int) -> list[bytes]:
        """Return up to `max_frames` received frames."""
        ...

    def send(self, frames: Sequence[bytes]) -> int:
        """Send frames and return how many the device took; the others are counted as drops."""
        ...

    def fileno(self) -> int:
        """Return the descriptor that is readable when frames have arrived."""
        ...

    def read_counters(self) -> PortReading:
        """Return the current counters."""
        ...

    def close(self) -> None:
        """Release the device; a second call does nothing."""
        ...
