"""Pipelines memory to memory: frames through ingress, a hand-over as the traffic manager's, and egress, no device."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dataplane.native import Array, Library, Module, compile_module, kernel, offset, u32, u64
from dataplane.program.model import Program
from dataplane.switch.compiled.events import EventReader
from dataplane.switch.compiled.loop.bursts import (
    DEQUEUED_WORDS,
    PLACED_WORDS,
    SENT_WORDS,
    egress_burst,
    give_frames,
    ingress_burst,
    take_placed,
)
from dataplane.switch.compiled.memory.core import Core
from dataplane.switch.compiled.memory.pool import BlockPool
from dataplane.switch.compiled.memory.thread_context import ThreadContext
from dataplane.switch.compiler import emit_program
from dataplane.switch.interpreter import InterpretedPipeline
from dataplane.switch.pipeline import Dequeued, Frame
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.tables import ForwardingState
from dataplane.switch.tables.native import NativeState

BURST = 32
_BLOCKS = 4_096
_LEAST_S = 0.2


@kernel(name="run_memory_to_memory")
def run_memory_to_memory(
    core: Core,
    frames: Array[u64],
    lengths: Array[u32],
    ports: Array[u32],
    words: Array[u64],
    bursts: u64,
) -> u64:
    """Run `bursts` bursts of BURST frames all the way through; return the number of frames sent.

    `words` has room for what bursts.py writes: placed, dequeued, sent.
    """
    placed = offset(words, 0)
    dequeued = offset(words, PLACED_WORDS * BURST)
    sent = offset(words, (PLACED_WORDS + DEQUEUED_WORDS) * BURST)
    total: u64 = 0
    for burst in range(bursts):
        first = burst * BURST
        core.machine.epoch += 1
        ingress_burst(core, offset(frames, first), offset(lengths, first), offset(ports, first), BURST)
        count = take_placed(core, placed, BURST)
        for index in range(count):
            dequeued[index * DEQUEUED_WORDS] = placed[index * PLACED_WORDS]
            dequeued[index * DEQUEUED_WORDS + 1] = placed[index * PLACED_WORDS + 1]
            dequeued[index * DEQUEUED_WORDS + 2] = placed[index * PLACED_WORDS + 2]
        leaving = egress_burst(core, dequeued, count, sent)
        give_frames(core, sent, leaving)
        core.machine.epoch += 1
        total += leaving
    return total


@dataclass(frozen=True, slots=True)
class Rate:
    """Packets a second, and the share of packets that came out."""

    pps: float
    sent_share: float


class CompiledMemory:
    """A compiled program with a loop around it that needs no Python."""

    def __init__(self, program: Program) -> None:
        self._program = program
        module = Module(f"memory to memory: {program.name}")
        emitted = emit_program(program, module, internal=True)
        self._region_bytes = emitted.region_bytes
        self._events = EventReader(program, emitted.log_messages)
        module.export(run_memory_to_memory)
        self._library: Library = compile_module(module, cache_dir=None)

    def measure(self, state: ForwardingState, frames: Sequence[bytes], port: int = 1) -> Rate:
        """Return the rate at which frames, a whole number of bursts, go through; the best of three."""
        best, share = 0.0, 0.0
        with self.passing(state, frames, port) as pass_once:
            for _ in range(3):
                done = sent = 0
                began = time.perf_counter()
                while (elapsed := time.perf_counter() - began) < _LEAST_S:
                    sent += pass_once()
                    done += len(frames)
                best, share = max(best, done / elapsed), sent / done
        return Rate(best, share)

    @contextmanager
    def passing(self, state: ForwardingState, frames: Sequence[bytes], port: int = 1) -> Iterator[Callable[[], int]]:
        """Yield what takes frames, a whole number of bursts, through once and returns how many were sent."""
        packets, blocks = BlockPool(_BLOCKS, self._region_bytes), BlockPool(_BLOCKS, 0)
        native = NativeState(state)
        context = ThreadContext(self._program, native, packets, blocks, 1)
        context.machine.events = self._events.ring
        native.register_machine(context.machine)
        buffers = [ctypes.create_string_buffer(frame, len(frame)) for frame in frames]
        addresses = (ctypes.c_uint64 * len(frames))(*map(ctypes.addressof, buffers))
        lengths = (ctypes.c_uint32 * len(frames))(*map(len, frames))
        ports = (ctypes.c_uint32 * len(frames))(*[port] * len(frames))
        words = (ctypes.c_uint64 * (BURST * (PLACED_WORDS + DEQUEUED_WORDS + SENT_WORDS)))()
        run = self._library.bind(run_memory_to_memory)

        def pass_once() -> int:
            sent: int = run(context.core, addresses, lengths, ports, words, len(frames) // BURST)
            self._events.read()  # digests, which would fill their ring
            return sent

        try:
            yield pass_once
        finally:
            native.release()


def measure_interpreter(program: Program, state: ForwardingState, frames: Sequence[bytes], port: int = 1) -> Rate:
    """Return the rate at which the interpreter takes frames through."""
    pipeline = InterpretedPipeline(program, state, rng=SplitMix(1))
    done = sent = 0
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < 3 * _LEAST_S:
        placed = pipeline.ingress([Frame(port, data) for data in frames[:BURST]], 1)
        dequeued = [Dequeued(placement.packet, placement.port, placement.priority, 1, 0, 0, 0) for placement in placed]
        sent += len(pipeline.egress(dequeued, 1).outputs)
        done += len(frames[:BURST])
    return Rate(done / elapsed, sent / done)
