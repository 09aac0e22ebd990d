"""The memory that a compiled program's threads work with: machines over one state, blocks, counters."""

from __future__ import annotations

import ctypes

from dataplane.native import pointer_to
from dataplane.program.model import Program
from dataplane.switch.abi import Machine, Reason
from dataplane.switch.compiled.memory.core import Core
from dataplane.switch.compiled.memory.pool import BlockPool
from dataplane.switch.tables.native import NativeState

_NO_ERROR = "NoError"


class ThreadContext:
    """One thread's core and machine, ready to be given to kernels; drops and parser errors are its own.

    `packets` and `frames` must outlive it.
    """

    def __init__(self, program: Program, state: NativeState, packets: BlockPool, frames: BlockPool, seed: int) -> None:
        names = {code: name for name, code in program.errors.items()}
        self._error_names = [names.get(code, str(code)) for code in range(max(names, default=0) + 1)]
        self._drops = (ctypes.c_uint64 * (max(Reason) + 1))()
        self._parser_errors = (ctypes.c_uint64 * (len(self._error_names) + 1))()
        self._pools = packets, frames
        self.machine = Machine()
        self.machine.random_state = seed
        self.machine.drops = pointer_to(self._drops)
        self.machine.parser_errors = pointer_to(self._parser_errors)
        state.fill(self.machine)
        self.core = Core()
        self.attach(self.core, program)

    def attach(self, core: Core, program: Program) -> None:
        """Attach a core, zero so far, to this machine and these pools."""
        packets, frames = self._pools
        core.machine = self.machine
        core.packets[0].pool = packets.pool
        core.frames[0].pool = frames.pool
        core.no_error = program.errors.get(_NO_ERROR, 0)
        core.other_errors = len(self._error_names)

    def count(self, reason: Reason, number: int) -> None:
        """Count an outcome outside of compiled code; only while compiled code does not run."""
        self._drops[reason] += number

    @property
    def drops(self) -> dict[str, int]:
        """Return packets that ended here, by reason; reasons that never occurred are omitted."""
        return {reason.name.lower(): self._drops[reason] for reason in Reason if self._drops[reason]}

    @property
    def parser_errors(self) -> dict[str, int]:
        """Return packets by the name of their parser error."""
        names = [*self._error_names, "unknown"]
        return {name: number for name, number in zip(names, self._parser_errors, strict=True) if number}
