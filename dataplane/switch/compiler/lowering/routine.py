"""LLVM functions under construction: blocks, memory by kind, faults that exit, locks held throughout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from llvmlite import ir

from dataplane.errors import ProgramError
from dataplane.native import Module, Struct
from dataplane.native.kernels import Kernel
from dataplane.native.locks import lock, unlock
from dataplane.native.translation.values import untyped_alloca
from dataplane.program.model import Program
from dataplane.switch.abi import Machine, Packet, Reason
from dataplane.switch.compiler.lowering.layout import Layout

BYTE: Final = ir.IntType(8)
I1: Final = ir.IntType(1)
I32: Final = ir.IntType(32)
I64: Final = ir.IntType(64)
POINTER: Final = ir.PointerType()

_RARE: Final = (1 << 20, 1)
_MAX_INLINE_COPY_BYTES: Final = 128


def integer(bits: int) -> ir.IntType:
    """Return the LLVM type of an integer."""
    return ir.IntType(bits)


def u32(value: int) -> ir.Constant:
    """Return a 32-bit constant."""
    return ir.Constant(I32, value)


def u64(value: int) -> ir.Constant:
    """Return a 64-bit constant."""
    return ir.Constant(I64, value)


@dataclass(frozen=True, slots=True)
class LogText:
    """The format of a log message's record: its pieces of text, and words and sign of each value between them."""

    pieces: tuple[str, ...]
    values: tuple[tuple[int, bool], ...]


@dataclass(slots=True)
class Emission:
    """Shared by the functions of one program. Memory of different kinds never overlaps, which LLVM may rely on."""

    program: Program
    layout: Layout
    module: Module
    threads: int
    log_messages: list[LogText] = field(default_factory=list)
    helpers: dict[str, ir.Function] = field(default_factory=dict)
    _kinds: dict[str, ir.MDValue] = field(default_factory=dict)

    def kind(self, name: str) -> ir.MDValue:
        """Return the TBAA tag of a kind of memory: region, packet, frame, machine, entry or state."""
        tag = self._kinds.get(name)
        if tag is None:
            llvm, zero = self.module.ir, u64(0)
            root = llvm.add_metadata([ir.MetaDataString(llvm, "millrace")])
            scalar = llvm.add_metadata([ir.MetaDataString(llvm, name), root, zero])
            self._kinds[name] = tag = llvm.add_metadata([scalar, scalar, zero])
        return tag

    def helper(self, name: str, build: Callable[[], ir.Function]) -> ir.Function:
        """Return the function of that name, which `build` makes on first use."""
        if name not in self.helpers:
            self.helpers[name] = build()
        return self.helpers[name]

    def declare(self, name: str, result: ir.Type, parameters: Sequence[ir.Type], *, internal: bool) -> ir.Function:
        """Return a function without body yet; the caller's declaration of that name, if there was one."""
        present = self.module.ir.globals.get(name)
        function = present or ir.Function(self.module.ir, ir.FunctionType(result, parameters), name)
        if internal:
            function.linkage = "internal"
        function.attributes.add("nounwind")
        return function

    def intrinsic(self, name: str, result: ir.Type, parameters: Sequence[ir.Type]) -> ir.Function:
        """Return an intrinsic or C function by its full name."""
        present = self.module.ir.globals.get(name)
        return present or ir.Function(self.module.ir, ir.FunctionType(result, parameters), name)


class Routine:
    """One function: (machine, packet, ...) with its region. A fault exits with its number, locks released.

    `position` names the construct of the program in refusals; `registers` are locked from beginning to end. `held` are
    those locked at the current point of code generation, and `leaving` is the block that a fault goes to.
    """

    def __init__(
        self,
        emission: Emission,
        function: ir.Function,
        construct: str,
        *,
        parameters: tuple[int, ...] = (),
        registers: Sequence[int] = (),
        region: ir.Value | None = None,
        arguments: ir.Value | None = None,
    ) -> None:
        self.emission, self.function, self.construct = emission, function, construct
        self.layout, self.program, self.module = emission.layout, emission.program, emission.module
        self.parameters, self.arguments = parameters, arguments
        self.machine, self.packet = function.args[:2]
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        self._entry = self.builder.block
        self.region = self.load_member(Packet, self.packet, "region") if region is None else region
        self.outcome = self.local(I32)
        self.builder.store(u32(0), self.outcome)
        self.held = tuple(sorted(registers))
        self.lock(self.held)
        self.end = self.leaving = function.append_basic_block("end")
        self.faults: dict[Reason, ir.Block] = {}

    def finish(self) -> None:
        """End the function: whatever has not returned yet returns 0."""
        if not self.builder.block.is_terminated and self.builder.block is not self.end:
            self.builder.branch(self.end)
        self.builder.position_at_end(self.end)
        self.unlock(self.held)
        self.builder.ret(self.builder.load(self.outcome, typ=I32))

    def lock(self, registers: Sequence[int]) -> None:
        """Lock registers, given in ascending order, against other threads."""
        if self.emission.threads > 1:
            for index in registers:
                self._call_lock(lock, index)

    def unlock(self, registers: Sequence[int]) -> None:
        """Release registers' locks."""
        if self.emission.threads > 1:
            for index in reversed(registers):
                self._call_lock(unlock, index)

    def _call_lock(self, operation: Kernel[..., None], index: int) -> None:
        locks = self.load_member(Machine, self.machine, "register_locks")
        self.builder.call(self.module.function(operation), [self.offset(locks, 8 * index)])

    # ---- blocks

    def block(self) -> ir.Block:
        """Return a new block."""
        return self.function.append_basic_block()

    def local(self, llvm_type: ir.Type, count: int | None = None) -> ir.Value:
        """Return memory on the stack, allocated at the function's beginning so that it exists once."""
        with self.builder.goto_entry_block():
            return untyped_alloca(self.builder, llvm_type if count is None else ir.ArrayType(llvm_type, count))

    def fault(self, reason: Reason) -> ir.Block:
        """Return the block that exits with a reason."""
        block = self.faults.get(reason)
        if block is None:
            self.faults[reason] = block = self.block()
            with self.builder.goto_block(block):
                self.leave(u32(reason))
        return block

    def leave(self, code: ir.Value) -> None:
        """Exit with a fault's number."""
        self.builder.store(code, self.outcome)
        self.builder.branch(self.leaving)

    def guard(self, holds: ir.Value, reason: Reason) -> None:
        """Continue if a truth value holds, else exit with a reason."""
        self.guard_to(holds, self.fault(reason))

    def guard_to(self, holds: ir.Value, otherwise: ir.Block) -> None:
        """Continue if a truth value holds, else in a rarely taken block."""
        following = self.block()
        self.builder.cbranch(holds, following, otherwise).set_weights(list(_RARE))
        self.builder.position_at_end(following)

    def check(self, code: ir.Value) -> None:
        """Exit with a fault's number unless it is 0."""
        following, failed = self.block(), self.block()
        fine = self.builder.icmp_unsigned("==", code, u32(0))
        self.builder.cbranch(fine, following, failed).set_weights(list(_RARE))
        self.builder.position_at_end(failed)
        self.leave(code)
        self.builder.position_at_end(following)

    def go(self, block: ir.Block) -> None:
        """Continue in a block, unless the current one has ended."""
        if not self.builder.block.is_terminated:
            self.builder.branch(block)
        self.builder.position_at_end(block)

    def refuse(self, problem: str) -> ProgramError:
        """Return the error that the current construct is not supported."""
        return ProgramError(f"{problem} is not supported", construct=self.construct)

    # ---- memory

    def load(self, pointer: ir.Value, llvm_type: ir.Type, kind: str, align: int = 1) -> ir.Value:
        """Load from memory of a kind."""
        value = self.builder.load(pointer, typ=llvm_type)
        value.align = align
        value.set_metadata("tbaa", self.emission.kind(kind))
        return value

    def store(self, value: ir.Value, pointer: ir.Value, kind: str, align: int = 1) -> None:
        """Store to memory of a kind."""
        stored = self.builder.store(value, pointer)
        stored.align = align
        stored.set_metadata("tbaa", self.emission.kind(kind))

    def offset(self, pointer: ir.Value, distance: int | ir.Value) -> ir.Value:
        """Return a pointer at an offset in bytes."""
        if isinstance(distance, int):
            return pointer if distance == 0 else self.builder.gep(pointer, [u64(distance)], source_etype=BYTE)
        return self.builder.gep(pointer, [distance], source_etype=BYTE)

    def member(self, struct: type[Struct], pointer: ir.Value, name: str) -> ir.Value:
        """Return a pointer to a struct's field."""
        index = self.module.field_index(struct, name)
        return self.builder.gep(
            pointer, [u32(0), u32(index)], inbounds=True, source_etype=self.module.struct_type(struct)
        )

    def load_member(self, struct: type[Struct], pointer: ir.Value, name: str) -> ir.Value:
        """Load a struct's field."""
        llvm_type = self.module.struct_type(struct).elements[self.module.field_index(struct, name)]
        align = 8 if llvm_type in (POINTER, I64) else 4
        return self.load(self.member(struct, pointer, name), llvm_type, _KINDS.get(struct.__name__, "state"), align)

    def store_member(self, struct: type[Struct], pointer: ir.Value, name: str, value: ir.Value) -> None:
        """Store a struct's field."""
        align = value.type.width // 8 if isinstance(value.type, ir.IntType) else 8
        self.store(value, self.member(struct, pointer, name), _KINDS.get(struct.__name__, "state"), align)

    def packet_field(self, name: str) -> ir.Value:
        """Load a field of the packet's own struct."""
        return self.load_member(Packet, self.packet, name)

    def set_packet_field(self, name: str, value: ir.Value) -> None:
        """Store a field of the packet's own struct."""
        self.store_member(Packet, self.packet, name, value)

    def array_item(self, array: str, index: int) -> ir.Value:
        """Return the pointer at a position of one of the machine's arrays of addresses."""
        addresses = self.load_member(Machine, self.machine, array)
        item = self.builder.gep(addresses, [u64(index)], source_etype=I64)
        return self.load(item, POINTER, "machine", 8)

    def copy(self, target: ir.Value, source: ir.Value, size: int | ir.Value, kinds: tuple[str, str]) -> None:
        """Copy bytes that do not overlap; `kinds` of target and source. A few bytes are copied by whole integers."""
        if isinstance(size, int) and size <= _MAX_INLINE_COPY_BYTES:
            for at, width in chunks(size):
                value = self.load(self.offset(source, at), integer(8 * width), kinds[1])
                self.store(value, self.offset(target, at), kinds[0])
            return
        name = "llvm.memcpy.p0.p0.i64"
        memcpy = self.emission.intrinsic(name, ir.VoidType(), [POINTER, POINTER, I64, I1])
        count = u64(size) if isinstance(size, int) else size
        self.builder.call(memcpy, [target, source, count, ir.Constant(I1, 0)])

    def clear(self, target: ir.Value, size: int | ir.Value) -> None:
        """Set bytes to zero."""
        memset = self.emission.intrinsic("llvm.memset.p0.i64", ir.VoidType(), [POINTER, BYTE, I64, I1])
        count = u64(size) if isinstance(size, int) else size
        self.builder.call(memset, [target, ir.Constant(BYTE, 0), count, ir.Constant(I1, 0)])


_KINDS: Final = {"Machine": "machine", "Packet": "packet", "Entry": "entry"}


def chunks(size: int, widest: int = 8) -> list[tuple[int, int]]:
    """Return offset and width in bytes of the machine integers that make up that many bytes."""
    pieces: list[tuple[int, int]] = []
    at = 0
    for width in (width for width in (8, 4, 2, 1) if width <= widest):
        while size - at >= width:
            pieces.append((at, width))
            at += width
    return pieces
