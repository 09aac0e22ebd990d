"""A program's compiled functions over guarded memory: frame, region, output, counters, registers, meters.

`Steps` calls one `p4_*` function after the other, with every buffer exactly as long as declared. `Bursts` calls
the kernels around them, with regions and buffers of packets in guarded memory, for what only those do: clones,
replicas, resubmission, recirculation.
"""

from __future__ import annotations

import ctypes
import random
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dataplane.native import Array, Module, array_at, compile_module, pointer_to, sizeof, u8
from dataplane.program.model import Program
from dataplane.switch.abi import UNLIMITED, EventRing, Machine, MeterCell, Packet, Reason
from dataplane.switch.compiled import pipeline
from dataplane.switch.compiled.loop import bursts
from dataplane.switch.compiled.memory.pool import BUFFER_BYTES, Pool
from dataplane.switch.compiled.pipeline import CompiledPipeline
from dataplane.switch.compiled.program import CompiledProgram
from dataplane.switch.compiler import emit_program
from dataplane.switch.compiler.blocks.deparser import NO_ROOM
from dataplane.switch.pipeline import Dequeued, Frame
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.tables import ForwardingState
from dataplane.switch.tables.native import NativeState
from tests.dataplane.switch.compiled.guarded_memory import Guarded, Note

LONGEST = 2048
RING_WORDS = 1 << 12
NOW_US = 5_000
CANARY = 0xC3
BLOCKS = 96
NO_LENGTH = 0xFFFF_FF00
CUTS = (0, 1, 7, 20)


def compile_for_guards(program: Program, *, optimise: bool) -> CompiledProgram:
    """Return a program's code with its functions and the surrounding kernels callable from Python."""
    module = Module(program.name)
    layout = emit_program(program, module)
    for function in bursts.KERNELS:
        module.export(function)
    library = compile_module(module, cache_dir=None, optimise=optimise)
    return CompiledProgram(program, library, layout.region_bytes, layout.log_messages)


class GuardedArrays:
    """A machine's counters, registers and meters, moved to guarded memory: an index too large leaves it."""

    def __init__(self, program: Program, machine: Machine) -> None:
        self._memory: list[Guarded] = []
        self._addresses: list[array[int]] = []
        words = [8 * ((spec.width + 63) // 64) * spec.size for spec in program.registers.values()]
        machine.counters = self._move(machine.counters, [16 * spec.size for spec in program.counters.values()])
        machine.registers = self._move(machine.registers, words)
        cells = [sizeof(MeterCell) * spec.size for spec in program.meters.values()]
        machine.meters = self._move(machine.meters, cells)

    def _move(self, addresses: Array[Any], sizes: Iterable[int]) -> Array[Any]:
        moved = array("Q")
        for index, size in enumerate(sizes):
            present = addresses[index]
            memory = Guarded(size)
            self._memory.append(memory)
            moved.append(memory.put(ctypes.string_at(present, size), at_end=True) if present else 0)
        self._addresses.append(moved or array("Q", [0]))
        return pointer_to(self._addresses[-1])


class Steps:
    """The functions of a program, called one by one, packet by packet."""

    def __init__(self, compiled: CompiledProgram, note: Note, seed: int) -> None:
        self.program, self._note, self._rng = compiled.program, note, random.Random(seed)
        self._region_bytes = compiled.region_bytes
        self._regions = [Guarded(compiled.region_bytes) for _ in range(2)]
        self._frame, self._output = Guarded(LONGEST), Guarded(2 * LONGEST)
        self._drops = (ctypes.c_uint64 * (max(Reason) + 1))()
        self._ring, self._words = EventRing(), (ctypes.c_uint64 * RING_WORDS)()
        self._ring.mask, self._ring.words = RING_WORDS - 1, pointer_to(self._words)
        self._machine = Machine()
        pointer, number, long = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64

        def function(name: str, result: Any, *parameters: Any) -> Callable[..., Any]:
            return ctypes.CFUNCTYPE(result, *parameters)(compiled.library.call_address(f"p4_{name}"))

        self._void = {name: function(name, None, pointer, pointer) for name in ("reset", "note_errors", "digest")}
        self._faulting = {name: function(name, number, pointer, pointer) for name in ("parse", "ingress", "egress")}
        self._emitted = function("emitted_bytes", number, pointer, pointer)
        self._deparse = function("deparse", number, pointer, pointer, pointer, number)
        self._copy = function("copy", None, pointer, pointer, pointer)
        self._keep = function("keep", None, pointer, pointer, pointer, number, number)
        self._set = {
            name: function(f"set_{name}", None, pointer, pointer, long) for name in ("ingress_port", "packet_length")
        }
        self.deparsed = 0

    def use(self, state: ForwardingState) -> None:
        """Use the tables of a state from now on; reset the packets' own state."""
        self._native = NativeState(state)
        self._native.fill(self._machine)
        self._arrays = GuardedArrays(self.program, self._machine)
        machine = self._machine
        machine.drops, machine.events, machine.log_enabled = pointer_to(self._drops), self._ring, 1
        machine.random_state, machine.now_us = 77, NOW_US

    def send(self, port: int, data: bytes, *, all_capacities: bool = False, length: int | None = None) -> None:
        """Run a frame with everything flush against the memory's end, then against its beginning.

        A wrong `length` must be caught by the guards.
        """
        for at_end in (True, False):
            self._at_end, self._context = at_end, f"{'end' if at_end else 'begin'} {data.hex()}"
            packet = self._packet(port, data, len(data) if length is None else length, 0)
            if self._run(packet):
                self._copies(packet, data)
                self._check_deparser(packet, all_capacities)

    def _call(self, function: Callable[..., Any], what: str, *arguments: Any) -> Any:
        self._note.write(f"{self.program.name}: {what}: {self._context}")
        return function(self._machine.address, *arguments)

    def _packet(self, port: int, data: bytes, length: int, region: int) -> Packet:
        """Return a fresh packet whose region holds remains of earlier ones."""
        packet = Packet()
        garbage = self._rng.randbytes(self._region_bytes)
        packet.region = array_at(u8, self._regions[region].put(garbage, at_end=self._at_end))
        packet.data = array_at(u8, self._frame.put(data, at_end=self._at_end))
        packet.length = packet.packet_length = packet.ingress_length = length
        packet.port, packet.truncate = port, UNLIMITED
        self._call(self._void["reset"], "reset", packet.address)
        self._call(self._set["ingress_port"], "set", packet.address, port)
        self._call(self._set["packet_length"], "set", packet.address, length)
        return packet

    def _run(self, packet: Packet) -> bool:
        """Take a packet to the end of egress; return whether it got there."""
        for name in ("parse", "ingress", "egress"):
            if self._call(self._faulting[name], name, packet.address):
                return False
            assert packet.parsed <= packet.length
            if name == "parse":
                self._call(self._void["note_errors"], "note_errors", packet.address)
            if name == "ingress" and packet.digest:
                self._call(self._void["digest"], "digest", packet.address)
            packet.exit = 0
        self._ring.tail = self._ring.head
        return True

    def _copies(self, packet: Packet, data: bytes) -> None:
        """Keep every field list, and run egress on copies with a truncated payload and no further bytes."""
        twin = self._packet(packet.port, b"", 0, 1)
        for field_list in (*self.program.field_lists, 1 << 20):
            self._call(self._keep, f"keep {field_list}", packet.address, twin.address, field_list, 1)
        for cut in CUTS:
            twin = self._packet(packet.port, data[: packet.parsed + cut], packet.length, 1)
            twin.length = min(packet.length, packet.parsed + cut)
            twin.parsed, twin.port = packet.parsed, packet.port
            self._call(self._copy, "copy", packet.address, twin.address)
            if not self._call(self._faulting["egress"], f"egress of a clone cut to {cut}", twin.address):
                self._check_deparser(twin, all_capacities=False)
        self._frame.put(data, at_end=self._at_end)

    def _check_deparser(self, packet: Packet, all_capacities: bool) -> None:
        headers = self._call(self._emitted, "emitted_bytes", packet.address)
        needed = headers + packet.length - packet.parsed
        few = {0, 1, headers, needed - 1, needed, needed + 1, self._rng.randint(0, needed)}
        for capacity in range(needed + 3) if all_capacities else sorted(size for size in few if size >= 0):
            self._output.fill(CANARY)
            out = self._output.place(capacity, at_end=self._at_end)
            length = self._call(self._deparse, f"deparse to {capacity}", packet.address, out, capacity)
            written = length if length < NO_LENGTH else 0
            assert length == NO_ROOM or length >= NO_LENGTH or length <= capacity
            before = self._output.read()[: out - self._output.begin]
            behind = self._output.read()[out - self._output.begin + written :]
            assert before.count(CANARY) == len(before), "written before the output"
            assert behind.count(CANARY) == len(behind), "written behind the output"
            self.deparsed += length < NO_LENGTH


class Bursts:
    """A compiled pipeline whose packets and frames lie in guarded memory."""

    def __init__(self, compiled: CompiledProgram, note: Note) -> None:
        self._compiled, self._note = compiled, note
        self._regions = [Guarded(compiled.region_bytes) for _ in range(BLOCKS)]
        self._buffers = [Guarded(BUFFER_BYTES) for _ in range(2 * BLOCKS)]
        self._packets = [Packet() for _ in range(2 * BLOCKS)]

    def send(self, state: ForwardingState, frames: Sequence[Frame]) -> None:
        """Send frames one by one, through both ends of guarded memory."""
        for at_end in (True, False):
            made = CompiledPipeline(self._compiled, state, SplitMix(1))
            self._guard(made._packets.pool, self._packets[:BLOCKS], self._buffers[:BLOCKS], at_end)
            self._guard(made._frames.pool, self._packets[BLOCKS:], self._buffers[BLOCKS:], at_end)
            arrays = GuardedArrays(self._compiled.program, made._context.machine)
            for frame in frames:
                self._note.write(f"{self._compiled.program.name}: burst: {frame.data.hex()}")
                self._send(made, frame)
            del made, arrays

    def _send(self, made: CompiledPipeline, frame: Frame) -> None:
        waiting = made.ingress([frame], NOW_US)
        for _ in range(4):  # endless recirculation is cut short here
            dequeued = [Dequeued(item.packet, item.port, item.priority, NOW_US, 0, 0, 0) for item in waiting]
            waiting = made.egress(dequeued, NOW_US).placements
        del waiting
        made.ingress([], NOW_US)
        assert made.packets_in_use == -BLOCKS, "a block is lost or there twice"

    def _guard(self, pool: Pool, packets: Sequence[Packet], buffers: Sequence[Guarded], at_end: bool) -> None:
        """Give a pool only used blocks in guarded memory."""
        pool.fresh = pool.end = pool.begin
        pool.free, pool.free_blocks = 0, len(packets)
        for packet, buffer, region in zip(packets, buffers, (*self._regions, *self._regions), strict=False):
            packet.region = array_at(u8, region.place(self._compiled.region_bytes, at_end=at_end))
            packet.data = array_at(u8, buffer.place(BUFFER_BYTES, at_end=at_end))
            packet.next, pool.free = pool.free, packet.address


def few_blocks() -> None:
    """Limit this process's pipelines to the blocks given here."""
    pipeline.PACKETS = pipeline.FRAMES = BLOCKS
