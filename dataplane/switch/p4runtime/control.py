"""What the P4Runtime service needs of the switch that it controls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dataplane.program.model import Program
from dataplane.switch.tables import ForwardingState


class SwitchControl(Protocol):
    """The control side of a switch; every method may be called from any thread."""

    @property
    def device_id(self) -> int:
        """Return the number that requests name this switch by."""
        ...

    @property
    def program(self) -> Program | None:
        """Return the program that runs, or None before the first `commit`."""
        ...

    @property
    def state(self) -> ForwardingState | None:
        """Return the running program's state, or None before the first `commit`."""
        ...

    def commit(self, program: Program, fill: Callable[[ForwardingState], None] | None = None) -> ForwardingState:
        """Replace program and state at once and return the fresh state, filled before any packet sees it.

        Raises ProgramError, or what `fill` raises, and changes nothing.
        """
        ...

    def packet_out(self, payload: bytes) -> None:
        """Receive a frame, its packet-out header in front, on the CPU port."""
        ...

    def on_packet_in(self, receiver: Callable[[bytes], None]) -> None:
        """Call `receiver` with each frame, its packet-in header in front, that leaves by the CPU port."""
        ...
