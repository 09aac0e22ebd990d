"""The compiled pipeline: the twin of the interpreter, behind the same `Pipeline`, for switches that Python drives."""

from __future__ import annotations

import ctypes
import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from dataplane.program.model import Program
from dataplane.switch.abi import Packet, Reason
from dataplane.switch.compiled.events import EventReader
from dataplane.switch.compiled.loop.bursts import (
    DEQUEUED_WORDS,
    PLACED_WORDS,
    SENT_WORDS,
    egress_burst,
    give_frames,
    give_packets,
    ingress_burst,
    take_placed,
)
from dataplane.switch.compiled.loop.passes import deflect
from dataplane.switch.compiled.memory.pool import BlockPool
from dataplane.switch.compiled.memory.thread_context import ThreadContext
from dataplane.switch.compiled.program import CompiledProgram, compile_program
from dataplane.switch.pipeline import Dequeued, DigestMessage, EgressResult, Frame, Output, Placement
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.tables import ForwardingState
from dataplane.switch.tables.native import NativeState
from dataplane.switch.v1model import DIGEST_QUEUE_MESSAGES

__all__ = ["CompiledPipeline", "compiled_pipeline"]

PACKETS = 65_536
"""Blocks for packets waiting in the queues of one switch; packets without a block are dropped as `no_buffer`."""
FRAMES = 4_096
"""Maximum packets per call of `egress`."""
_PLACED_AT_A_TIME = 512

log = logging.getLogger("millrace.p4")


class _Handle:
    """A packet waiting for the traffic manager; a forgotten one is returned with the next burst."""

    __slots__ = ("_home", "address")

    def __init__(self, address: int, home: deque[int]) -> None:
        self.address, self._home = address, home

    def take(self) -> int:
        """Return the packet's address; the handle is then empty."""
        address, self.address = self.address, 0
        return address

    def __del__(self) -> None:
        if self.address:
            self._home.append(self.address)


class CompiledPipeline:
    """Runs a compiled program against a `ForwardingState`; one thread at a time."""

    def __init__(self, program: CompiledProgram, state: ForwardingState, rng: SplitMix) -> None:
        library = program.library
        self._ingress, self._egress = library.bind(ingress_burst), library.bind(egress_burst)
        self._take_placed, self._deflect = library.bind(take_placed), library.bind(deflect)
        self._give_packets, self._give_frames = library.bind(give_packets), library.bind(give_frames)
        self._packets, self._frames = BlockPool(PACKETS, program.region_bytes), BlockPool(FRAMES, 0)
        self._native = NativeState(state)
        self._context = ThreadContext(program.program, self._native, self._packets, self._frames, rng.state)
        self._events = EventReader(program.program, program.log_messages)
        self._context.machine.events = self._events.ring
        self._native.register_machine(self._context.machine)
        self._forgotten: deque[int] = deque()
        self._placed = (ctypes.c_uint64 * (PLACED_WORDS * _PLACED_AT_A_TIME))()
        self._digests: list[DigestMessage] = []

    def __del__(self) -> None:
        if hasattr(self, "_native"):
            self._native.release()

    @property
    def drops(self) -> Mapping[str, int]:
        """Packets that ended here, by reason."""
        return self._context.drops

    @property
    def parser_errors(self) -> Mapping[str, int]:
        """Packets by the name of their parser error."""
        return self._context.parser_errors

    @property
    def packets_in_use(self) -> int:
        """Packets waiting for the traffic manager, including those forgotten since the last burst."""
        return self._packets.in_use(self._context.core.packets[0])

    def ingress(self, frames: Sequence[Frame], now_us: int) -> list[Placement]:
        """Parse and run ingress; return the packets to queue, clones and replicas included, in bmv2's order."""
        count = len(frames)
        data = (ctypes.c_char_p * count)(*[frame.data for frame in frames])
        lengths = (ctypes.c_uint32 * count)(*[len(frame.data) for frame in frames])
        ports = (ctypes.c_uint32 * count)(*[frame.port for frame in frames])
        with self._burst(now_us):
            self._ingress(self._context.core, data, lengths, ports, count)
        return self._take_results()

    def egress(self, packets: Sequence[Dequeued], now_us: int) -> EgressResult:
        """Run egress and deparse; a recirculated packet goes through ingress at once and comes back as placements."""
        result = EgressResult()
        with self._burst(now_us):
            for start in range(0, len(packets), FRAMES):
                result.outputs += self._run_egress(packets[start : start + FRAMES])
        result.placements += self._take_results()
        return result

    def deflect(self, refused: Placement, session: int) -> list[Placement]:
        """Return placements for a packet that a queue refused: it goes to a clone session's ports instead."""
        machine = self._context.machine
        machine.epoch += 1
        self._deflect(self._context.core, Packet.from_address(refused.packet.take()), session, 0)
        machine.epoch += 1
        return self._take_results()

    @contextmanager
    def reading(self, other: CompiledPipeline) -> Iterator[None]:
        """Look packets up in the tables of another pipeline of the same program, which must not change meanwhile.

        Their counters, registers and meters stay this pipeline's own; only tallies of entries are the other's.
        """
        machine = self._context.machine
        other._native.fill_tables(machine)
        try:
            yield
        finally:
            self._native.fill_tables(machine)

    def take_digests(self) -> list[DigestMessage]:
        """Return the digests sent since the last call, oldest first."""
        digests, self._digests = self._digests, []
        return digests

    @contextmanager
    def _burst(self, now_us: int) -> Iterator[None]:
        """Let packets read the tables: while the machine's epoch is odd, what they may look at is not freed."""
        machine = self._context.machine
        machine.now_us = now_us
        machine.log_enabled = log.isEnabledFor(logging.INFO)
        self._take_back()
        machine.epoch += 1
        try:
            yield
        finally:
            machine.epoch += 1

    def _take_back(self) -> None:
        count = len(self._forgotten)
        if count:
            addresses = (ctypes.c_uint64 * count)(*[self._forgotten.popleft() for _ in range(count)])
            self._give_packets(self._context.core, addresses, count)

    def _run_egress(self, packets: Sequence[Dequeued]) -> list[Output]:
        words: list[int] = []
        for packet in packets:
            words += (packet.packet.take(), packet.port, packet.priority, packet.enq_timestamp_us)
            words += (packet.enq_qdepth, packet.deq_timedelta_us, packet.deq_qdepth)
        dequeued = (ctypes.c_uint64 * (DEQUEUED_WORDS * len(packets)))(*words)
        sent = (ctypes.c_uint64 * (SENT_WORDS * len(packets)))()
        count = self._egress(self._context.core, dequeued, len(packets), sent)
        outputs = [
            Output(sent[word + 1], ctypes.string_at(Packet.from_address(sent[word]).data.address, sent[word + 2]))
            for word in range(0, count * SENT_WORDS, SENT_WORDS)
        ]
        self._give_frames(self._context.core, sent, count)
        return outputs

    def _take_results(self) -> list[Placement]:
        """Return the packets to queue, and read the program's events."""
        placements: list[Placement] = []
        placed = self._placed
        while count := self._take_placed(self._context.core, placed, _PLACED_AT_A_TIME):
            placements += [
                Placement(_Handle(placed[word], self._forgotten), placed[word + 1], placed[word + 2], placed[word + 3])
                for word in range(0, count * PLACED_WORDS, PLACED_WORDS)
            ]
        if self._events.ring.head != self._events.ring.tail:
            events = self._events.read()
            room = DIGEST_QUEUE_MESSAGES - len(self._digests)
            self._digests += events.digests[:room]
            self._context.count(Reason.DIGEST_QUEUE_FULL, len(events.digests[room:]))
            for line in events.log_lines:
                log.info(line)
        return placements


def compiled_pipeline(program: Program, state: ForwardingState, rng: SplitMix) -> CompiledPipeline:
    """Return a pipeline for `Switch`: compiled, or from the cache; raise ProgramError if that fails."""
    return CompiledPipeline(compile_program(program), state, rng)
