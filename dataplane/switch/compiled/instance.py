"""A compiled program with all that its workers need besides the switch's ports: machines, blocks, native tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from dataplane.program.model import Program
from dataplane.switch.compiled.events import EventReader, Events
from dataplane.switch.compiled.loop.loop import run_worker
from dataplane.switch.compiled.memory.pool import BlockPool
from dataplane.switch.compiled.memory.thread_context import ThreadContext
from dataplane.switch.compiled.memory.worker import Worker
from dataplane.switch.compiled.program import CompiledProgram
from dataplane.switch.tables import ForwardingState
from dataplane.switch.tables.native import NativeState


class ProgramInstance:
    """A native switch's running program; belongs to one switch, whose `frames` it uses. Release it once replaced."""

    def __init__(
        self,
        compiled: CompiledProgram,
        state: ForwardingState,
        blocks: int,
        frames: BlockPool,
        seeds: Sequence[int],
    ) -> None:
        self.program: Program = compiled.program
        self.state = state
        self.run: Callable[[Worker], None] = compiled.library.bind(run_worker)
        self._packets = BlockPool(blocks, compiled.region_bytes)
        self._native = NativeState(state)
        self._events = EventReader(compiled.program, compiled.log_messages)
        self._contexts = [ThreadContext(compiled.program, self._native, self._packets, frames, seed) for seed in seeds]
        for context in self._contexts:
            context.machine.events = self._events.ring
            self._native.register_machine(context.machine)

    def attach(self, workers: Sequence[Worker]) -> None:
        """Assign each worker one of the machines; only while they are paused."""
        for worker, context in zip(workers, self._contexts, strict=True):
            context.attach(worker.core[0], self.program)

    def set_log_enabled(self, enabled: bool) -> None:
        """Enable log messages, or skip even computing them."""
        for context in self._contexts:
            context.machine.log_enabled = enabled

    def read_events(self) -> Events:
        """Return digests and log messages since the last call; one thread at a time."""
        return self._events.read()

    @property
    def drops(self) -> Counter[str]:
        """Packets that ended in the pipeline, by reason, of all workers."""
        return _sum([context.drops for context in self._contexts])

    @property
    def parser_errors(self) -> Counter[str]:
        """Packets by the name of their parser error, of all workers."""
        return _sum([context.parser_errors for context in self._contexts])

    def packets_in_use(self, workers: Sequence[Worker]) -> int:
        """Return how many packets exist, in queues or in processing; exact only while the workers are paused."""
        return self._packets.in_use(*(worker.core[0].packets[0] for worker in workers))

    def release(self) -> None:
        """Free the native side of the tables; nothing may run any more. A second call does nothing."""
        self._native.release()

    def __del__(self) -> None:
        if hasattr(self, "_native"):
            self._native.release()


def _sum(counts: Sequence[dict[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for more in counts:
        total.update(more)
    return total
