"""The interface of a switch to the P4Runtime service that controls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from dataplane.program.model import Program
from dataplane.switch.pipeline import DigestMessage, PreparedProgram
from dataplane.switch.ports.states import PortControl
from dataplane.switch.tables import ForwardingState


class SwitchControl(PortControl, Protocol):
    """The control side of a switch; every method may be called from any thread.

    Receivers are called without any lock held, on whichever thread moves packets; they must not block.
    """

    @property
    def device_id(self) -> int:
        """Return the device id by which requests name this switch."""
        ...

    @property
    def program(self) -> Program | None:
        """Return the running program, or None before the first one is installed."""
        ...

    @property
    def state(self) -> ForwardingState | None:
        """Return the running program's state, or None before the first one is installed."""
        ...

    def prepare(self, program: Program) -> PreparedProgram:
        """Make a program ready to run, without touching the running one; may take seconds and holds no lock.

        Raises ProgramError if the program cannot be executed.
        """
        ...

    def install(self, prepared: PreparedProgram) -> None:
        """Replace program and state at once by prepared ones, whose state the caller may have filled."""
        ...

    def has_port(self, port: int) -> bool:
        """Return whether the switch has such a port; the CPU port is one."""
        ...

    def now_ns(self) -> int:
        """Return the time on the clock behind the program's timestamps."""
        ...

    def paused(self) -> AbstractContextManager[None]:
        """Hold packets between bursts: none is inside the pipeline meanwhile; waiting ones keep waiting.

        The same thread may nest it. It is the innermost lock: its holder takes no other.
        """
        ...

    def packet_out(self, payload: bytes) -> None:
        """Receive a frame, its packet-out header in front, on the CPU port."""
        ...

    def on_packet_in(self, receiver: Callable[[bytes], None]) -> None:
        """Call `receiver` with each frame, its packet-in header in front, that leaves by the CPU port."""
        ...

    def on_digests(self, receiver: Callable[[Sequence[DigestMessage]], None]) -> None:
        """Call `receiver` with the digests of each burst that sent some, oldest first."""
        ...

    def on_port_status(self, receiver: Callable[[int, bool], None]) -> None:
        """Call `receiver` with a port and whether it is usable at each change, and now for each unusable port."""
        ...
