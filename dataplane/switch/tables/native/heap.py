"""C's heap as used by Python: the memory of one state, and the Python objects that packets may still look at."""

from __future__ import annotations

import ctypes
from array import array
from collections import deque

from dataplane.switch.abi import Machine
from dataplane.switch.tables.native import memory
from dataplane.switch.tables.native.kernel_calls import function
from dataplane.switch.tables.native.memory import Memory


class Heap:
    """The memory of one native state: its readers, and what waits to be freed."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.address = self.memory.address
        self._machines: list[Machine] = []
        self._kept: deque[tuple[int, object]] = deque()
        self._set_machines()

    @property
    def blocks(self) -> int:
        """Blocks that are allocated and not freed."""
        return self.memory.blocks

    def keep(self, item: object) -> None:
        """Keep an object alive while a packet may read its memory; its users are unlinked."""
        freed = self.memory.freed
        while self._kept and self._kept[0][0] < freed:
            self._kept.popleft()
        self._kept.append((self.memory.batches, item))

    def collect(self) -> int:
        """Free what no packet can see any more; return how many blocks still wait."""
        return function(memory.collect)(self.address)

    def add_machine(self, machine: Machine) -> None:
        """Prevent freeing of anything that a burst of this machine may see; the machine is outside a burst."""
        self._machines.append(machine)
        self._set_machines()

    def remove_machine(self, machine: Machine) -> None:
        """Forget a machine that processes no more bursts on this state."""
        self._machines = [present for present in self._machines if present is not machine]
        self._set_machines()

    def _set_machines(self) -> None:
        """Record the locations of the machines' epochs, and their values when the closed batch was closed.

        A machine that is new, or has another place, counts as inside its current burst: never too early.
        """
        offset: int = Machine.epoch.offset  # type: ignore[attr-defined]  # a field of the class
        addresses = [ctypes.addressof(machine) + offset for machine in self._machines]
        self._epochs = array("Q", addresses or [0])
        self._seen = array("Q", [machine.epoch for machine in self._machines] or [0])
        self.memory.epochs = self._epochs.buffer_info()[0]  # type: ignore[assignment]  # an address will do
        self.memory.seen = self._seen.buffer_info()[0]  # type: ignore[assignment]  # an address will do
        self.memory.machines = len(addresses)

    def free(self) -> None:
        """Free retired blocks, even if readers may see them."""
        function(memory.free_retired)(self.address)
        self._kept.clear()
