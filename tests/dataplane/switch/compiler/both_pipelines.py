"""One program twice: interpreted and compiled, each with a state of its own; packets must have the same outcome.

What is compared is all that a packet holds after the parser, ingress and egress (every field of every header, valid
bits, stacks' next indices, requests), the bytes that leave, faults, and what packets leave behind in the state. The
compiled program runs twice: that a packet's memory holds what another one left may change nothing that has a meaning.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

from dataplane.native import Library, Module, array_at, compile_module, pointer_to, u8
from dataplane.program.model import VALID, Program
from dataplane.switch.abi import UNLIMITED, EventRing, Machine, Packet, Reason
from dataplane.switch.compiler import ProgramLayout, emit_program
from dataplane.switch.compiler.analysis.ranges import machine_bits
from dataplane.switch.compiler.blocks.deparser import FAULT, NO_ROOM
from dataplane.switch.compiler.lowering.layout import HeaderLocation
from dataplane.switch.compiler.lowering.layout import Layout as RegionLayout
from dataplane.switch.interpreter import InterpretedPipeline
from dataplane.switch.interpreter import layout as slots
from dataplane.switch.interpreter.layout import PacketFault
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.tables import ForwardingState
from dataplane.switch.tables.native import NativeState
from tests.dataplane.switch.registers import used_cells

NOW_US = 5_000
SEED = 77
RING_WORDS = 1 << 10
GUARD_BYTES = 64
FILL = 0xA5
"""Content of the memory around a frame and behind written data, which must not change."""

State = dict[str, object]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a packet: states at each step, then the bytes sent, or the fault that ended it."""

    steps: tuple[State, ...]
    sent: bytes | None
    fault: str | None


class LastPage:
    """Memory with nothing behind it: reading a byte too many kills the process."""

    def __init__(self) -> None:
        self._size = 1 << 16
        self._memory = mmap.mmap(-1, self._size + mmap.PAGESIZE)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        mprotect = ctypes.CDLL(None, use_errno=True).mprotect
        no_access = 0
        result = mprotect(ctypes.c_void_p(self._address + self._size), ctypes.c_size_t(mmap.PAGESIZE), no_access)
        assert result == 0, os.strerror(ctypes.get_errno())

    def put(self, data: bytes) -> int:
        """Put bytes at the very end; return where they begin."""
        begin = self._address + self._size - len(data)
        ctypes.memmove(begin, data, len(data))
        return begin


class CompiledProgram:
    """A program's code, to be used with any number of states."""

    def __init__(self, program: Program, *, threads: int = 1) -> None:
        module = Module(program.name)
        self.program = program
        self.layout: ProgramLayout = emit_program(program, module, threads=threads)
        self.region = RegionLayout(program)
        self.library: Library = compile_module(module, cache_dir=None)

    def unseen(self, state: State) -> Set[str]:
        """Return the meaningless fields: those only written, and those of invalid headers never read."""
        names: set[str] = set()
        for name, location in self.region.headers.items():
            for spec in location.header.type.fields:
                field = location.fields[spec.name]
                begin = location.data + (field.offset_bits // 8 if location.header.metadata else 0)
                if begin >= self.region.fresh_bytes and (location.header.metadata or not state.get(f"{name}.{VALID}")):
                    names.add(f"{name}.{spec.name}")
        return names

    def function(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        return ctypes.CFUNCTYPE(result, *arguments)(self.library.call_address(name))


class Compiled:
    """A packet's way through compiled code, step by step; `leftovers` fill the memory that is not cleared for it."""

    def __init__(self, compiled: CompiledProgram, state: ForwardingState, *, leftovers: int = 0) -> None:
        self.compiled, self.program, self.state = compiled, compiled.program, state
        self._leftovers = leftovers
        self.native = NativeState(state)
        self.machine = Machine()
        self.native.fill(self.machine)
        self.native.register_machine(self.machine)
        self.drops = (ctypes.c_uint64 * (max(Reason) + 1))()
        self.machine.drops = pointer_to(self.drops)
        self.ring, self.words = EventRing(), (ctypes.c_uint64 * RING_WORDS)()
        self.ring.mask, self.ring.words = RING_WORDS - 1, pointer_to(self.words)
        self.machine.events, self.machine.log_enabled = self.ring, 1
        self.machine.random_state, self.machine.now_us = SEED, NOW_US
        pointer, number = ctypes.c_void_p, ctypes.c_uint32
        make = compiled.function
        self._void = {name: make(f"p4_{name}", None, pointer, pointer) for name in ("reset", "note_errors", "digest")}
        self._faults = {name: make(f"p4_{name}", number, pointer, pointer) for name in ("parse", "ingress", "egress")}
        self._deparse = make("p4_deparse", number, pointer, pointer, pointer, number)
        self._emitted = make("p4_emitted_bytes", number, pointer, pointer)
        self._keep = make("p4_keep", None, pointer, pointer, pointer, number, number)
        self._copy = make("p4_copy", None, pointer, pointer, pointer)
        self._last_page = LastPage()
        self.packet, self.region = Packet(), (ctypes.c_uint8 * compiled.layout.region_bytes)()

    def set(self, name: str, value: int) -> None:
        function = self.compiled.function(f"p4_set_{name}", None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
        function(self.machine.address, self.packet.address, value)

    def get(self, name: str) -> int:
        function = self.compiled.function(f"p4_get_{name}", ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p)
        value: int = function(self.machine.address, self.packet.address)
        return value

    def send(self, port: int, data: bytes, capacity: int = 1 << 17) -> Outcome:
        self._start(port, data, self._last_page.put(data))
        steps: list[State] = []
        for name in ("parse", "ingress", "egress"):
            fault = self._faults[name](self.machine.address, self.packet.address)
            if fault:
                return Outcome(tuple(steps), None, Reason(fault).name.lower())
            if name == "parse":
                self._void["note_errors"](self.machine.address, self.packet.address)
            if name == "ingress" and self.packet.digest:
                self._void["digest"](self.machine.address, self.packet.address)
            steps.append(self.read())
            if name == "ingress":
                self.packet.exit = 0
        return self._leave(steps, capacity)

    def _start(self, port: int, data: bytes, address: int) -> None:
        self.packet = Packet()
        self.packet.region, self.packet.data = pointer_to(self.region), array_at(u8, address)
        self.packet.length = self.packet.packet_length = self.packet.ingress_length = len(data)
        self.packet.truncate, self.packet.port = UNLIMITED, port
        fresh_bytes = self.compiled.region.fresh_bytes
        ctypes.memset(self.region, FILL, len(self.region))
        ctypes.memset(ctypes.byref(self.region, fresh_bytes), self._leftovers, len(self.region) - fresh_bytes)
        self._void["reset"](self.machine.address, self.packet.address)
        for name, value in (("ingress_port", port), ("packet_length", len(data))):
            self.set(name, value)
        self.set("ingress_global_timestamp", NOW_US)

    def _leave(self, steps: list[State], capacity: int) -> Outcome:
        out = (ctypes.c_uint8 * (capacity + GUARD_BYTES))()
        ctypes.memset(out, FILL, len(out))
        headers = self._emitted(self.machine.address, self.packet.address)
        length = self._deparse(self.machine.address, self.packet.address, ctypes.addressof(out), capacity)
        if length == NO_ROOM:
            assert bytes(out) == bytes([FILL]) * len(out)
            return Outcome(tuple(steps), None, "frame_too_long")
        if length >= FAULT:
            return Outcome(tuple(steps), None, Reason(length - FAULT).name.lower())
        assert length <= capacity
        assert bytes(out[length : length + GUARD_BYTES]) == bytes([FILL]) * GUARD_BYTES
        steps.append({"emitted": headers})
        return Outcome(tuple(steps), bytes(out[: min(length, self.packet.truncate)]), None)

    # ---- reading a packet's contents

    def read(self) -> State:
        """Return all that a packet holds."""
        state: State = {}
        for name, location in self.compiled.region.headers.items():
            self._read_header(name, location, state)
        for name, offset in self.compiled.region.next_index.items():
            state[f"{name}.next"] = self._number(offset, 4)
        packet = self.packet
        state["clone"] = (packet.clone_session, packet.clone_list)
        state["again"] = (packet.resubmit, packet.recirculate, packet.digest, packet.exit)
        state["length"] = packet.packet_length
        state["truncate"] = packet.truncate
        state["parsed"] = (packet.parsed, packet.parser_error)
        return state

    def _read_header(self, name: str, location: HeaderLocation, state: State) -> None:
        state[f"{name}.{VALID}"] = 1 if location.valid is None else self.region[location.valid]
        for spec in location.header.type.fields:
            field, width = location.fields[spec.name], spec.width_bits
            if spec.variable:
                bits = self._number(location.length, 4)
                state[f"{name}.length"] = bits
                value = int.from_bytes(self.region[location.varbit : location.varbit + bits // 8], "big")
            elif field.native:
                offset = location.data + field.offset_bits // 8
                value = self._number(offset, machine_bits(width) // 8)
                assert value >> width == 0 or offset >= self.compiled.region.fresh_bytes
            else:
                begin, end = field.offset_bits, field.offset_bits + width
                covering = bytes(self.region[location.data + begin // 8 : location.data + (end + 7) // 8])
                value = int.from_bytes(covering, "big") >> (-end % 8) & ((1 << width) - 1)
            if spec.signed:
                value = (value ^ 1 << (width - 1)) - (1 << (width - 1))
            state[f"{name}.{spec.name}"] = value

    def _number(self, offset: int | None, size: int) -> int:
        assert offset is not None
        return int.from_bytes(bytes(self.region[offset : offset + size]), "little")


class Interpreted:
    """A packet's way through the interpreter, step by step."""

    def __init__(self, program: Program, state: ForwardingState) -> None:
        self.program, self.state = program, state
        self.pipeline = InterpretedPipeline(program, state, rng=SplitMix(SEED))
        self.pipeline._moment.now_us = NOW_US
        self.layout = self.pipeline._layout
        logging.getLogger("millrace.p4").setLevel(logging.INFO)  # log messages are computed only then

    def send(self, port: int, data: bytes) -> Outcome:
        pipeline, fields = self.pipeline, self.layout.template.copy()
        fields[pipeline._ingress_port] = port & 511
        pipeline._set_length(fields, len(data))
        fields[slots.INGRESS_LENGTH] = len(data)
        pipeline._ingress_time(fields, NOW_US)
        steps: list[State] = []
        try:
            return self._run(fields, data, steps)
        except PacketFault as fault:
            return Outcome(tuple(steps), None, fault.reason)

    def _run(self, fields: list[int], data: bytes, steps: list[State]) -> Outcome:
        pipeline = self.pipeline
        parsed, error = pipeline._parse(fields, data)
        payload = data[parsed:]
        pipeline._moment.payload = payload
        pipeline._parser_error(fields, error)
        pipeline._checksum_error(fields, 0 if pipeline._verify(fields, payload) else 1)
        steps.append(self.read(fields, (parsed, error)))
        pipeline._ingress(fields)
        if fields[slots.DIGEST]:
            pipeline._send_digest(fields)
        steps.append(self.read(fields, (parsed, error)))
        fields[slots.EXIT] = 0
        pipeline._egress(fields)
        steps.append(self.read(fields, (parsed, error)))
        headers = pipeline._emitted_bytes(fields)
        sent = pipeline._deparse(fields, payload)
        steps.append({"emitted": headers})
        return Outcome(tuple(steps), sent[: fields[slots.TRUNCATE]], None)

    def read(self, fields: list[int], parsed: tuple[int, int]) -> State:
        """Return all that a packet holds."""
        state: State = {}
        for name, header in self.layout.headers.items():
            state[f"{name}.{VALID}"] = fields[header.valid]
            for spec in header.header.type.fields:
                state[f"{name}.{spec.name}"] = fields[header.slot(spec.name)]
                if spec.variable:
                    state[f"{name}.length"] = fields[header.length]
        for name, slot in self.layout.next_index.items():
            state[f"{name}.next"] = fields[slot]
        state["clone"] = (fields[slots.CLONE_SESSION], fields[slots.CLONE_LIST])
        asked = (slots.RESUBMIT, slots.RECIRCULATE, slots.DIGEST, slots.EXIT)
        state["again"] = tuple(fields[slot] for slot in asked)
        state["length"] = fields[slots.PACKET_LENGTH] & 0xFFFF_FFFF
        state["truncate"] = min(fields[slots.TRUNCATE], UNLIMITED)
        state["parsed"] = parsed
        return state


def _compare(wanted: Outcome, actual: Outcome, unseen: Callable[[State], Set[str]] = lambda _: set()) -> None:
    """Fail unless both are the same, except for the fields that `unseen` names for each step."""
    assert actual.fault == wanted.fault
    for wanted_step, found_step in zip(wanted.steps, actual.steps, strict=True):
        differing = {key: (value, found_step[key]) for key, value in wanted_step.items() if found_step[key] != value}
        assert not differing.keys() - unseen(found_step), differing
    assert actual.sent == wanted.sent


class Twin:
    """Both sides, and their states: the interpreter, compiled code with clean memory, and with memory used before."""

    def __init__(self, compiled: CompiledProgram) -> None:
        program = compiled.program
        self.states = tuple(ForwardingState(program) for _ in range(3))
        self.interpreted = Interpreted(program, self.states[0])
        self.compiled = Compiled(compiled, self.states[1])
        self.reused = Compiled(compiled, self.states[2], leftovers=FILL)

    def send(self, data: bytes, port: int = 1) -> Outcome:
        """Send a packet through all sides; return its outcome, which must be the same."""
        wanted, actual = self.interpreted.send(port, data), self.compiled.send(port, data)
        _compare(wanted, actual)
        reused = self.reused.send(port, data)
        _compare(wanted, reused, self.compiled.compiled.unseen)
        return actual

    def check_states(self) -> None:
        """Compare the states after the packets."""
        for other in self.states[1:]:
            self._check_state(self.states[0], other)

    def _check_state(self, state: ForwardingState, other: ForwardingState) -> None:
        for name, counter in state.counters.items():
            assert counter.packets.tolist() == other.counters[name].packets.tolist(), name
            assert counter.bytes.tolist() == other.counters[name].bytes.tolist(), name
        for name, register in state.registers.items():
            assert used_cells(register) == used_cells(other.registers[name]), name
        for name, table in state.tables.items():
            mine = [(entry.match, entry.packets, entry.bytes) for entry in table]
            theirs = [(entry.match, entry.packets, entry.bytes) for entry in other.tables[name]]
            assert mine == theirs, name
