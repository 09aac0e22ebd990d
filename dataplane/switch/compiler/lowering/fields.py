"""Headers and fields at run time: locating, loading, storing them.

A header's field is loaded as the machine integer that covers it, converted to the machine's byte order, shifted and
truncated; storing puts it back among its neighbours. Loads and stores may touch bytes past the field, never past the
region.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from dataplane.program.model import VALID, FieldSpec
from dataplane.program.operations import FieldRef
from dataplane.switch.compiler.analysis.ranges import MAX_BITS, machine_bits
from dataplane.switch.compiler.lowering.layout import FieldLocation, HeaderLocation, Strides
from dataplane.switch.compiler.lowering.routine import BYTE, I32, I64, Routine, integer, u32, u64

_STILL = Strides(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Header:
    """A header, or the element of a stack at a run-time `index`: `location` is then that of element 0."""

    routine: Routine
    location: HeaderLocation
    index: ir.Value | None = None
    strides: Strides = _STILL
    base: ir.Value | None = None
    """A packet region other than the routine's own."""

    def _at(self, start: int, stride: int) -> ir.Value:
        routine = self.routine
        region = routine.region if self.base is None else self.base
        if self.index is None or stride == 0:
            return routine.offset(region, start)
        distance = routine.builder.add(routine.builder.mul(self.index, u64(stride)), u64(start))
        return routine.offset(region, distance)

    def data(self, offset: int = 0) -> ir.Value:
        """Return a pointer to the header's bytes."""
        return self._at(self.location.data + offset, self.strides.data)

    def varbit(self) -> ir.Value:
        """Return a pointer to the bytes of the varbit."""
        return self._at(self.location.varbit, self.strides.varbit)

    def is_valid(self) -> ir.Value:
        """Return the valid bit as a truth value."""
        if self.location.valid is None:
            return ir.Constant(integer(1), 1)
        return self.routine.builder.trunc(self.valid_byte(), integer(1))

    def valid_byte(self) -> ir.Value:
        """Return the valid bit as a byte."""
        if self.location.valid is None:
            return ir.Constant(BYTE, 1)
        return self.routine.load(self._at(self.location.valid, self.strides.valid), BYTE, "region")

    def set_valid_byte(self, value: ir.Value) -> None:
        """Set the valid bit; metadata stay valid."""
        if self.location.valid is not None:
            self.routine.store(value, self._at(self.location.valid, self.strides.valid), "region")

    def make_valid(self) -> None:
        """Set the valid bit; the other headers of a union become invalid."""
        self.set_valid_byte(ir.Constant(BYTE, 1))
        for rival in self.location.rivals:
            self.routine.store(ir.Constant(BYTE, 0), self._at(rival, self.strides.valid), "region")

    def make_invalid(self) -> None:
        """Clear the valid bit."""
        self.set_valid_byte(ir.Constant(BYTE, 0))

    def varbit_bits(self) -> ir.Value:
        """Return the length of the varbit in bits; 0 if there is none."""
        if self.location.length is None:
            return u32(0)
        return self.routine.load(self._at(self.location.length, self.strides.length), I32, "region")

    def set_varbit_bits(self, value: ir.Value) -> None:
        """Set the length of the varbit in bits."""
        if self.location.length is not None:
            self.routine.store(value, self._at(self.location.length, self.strides.length), "region")

    def varbit_bytes(self) -> ir.Value:
        """Return the length of the varbit in bytes, as 64 bits."""
        builder = self.routine.builder
        return builder.zext(builder.lshr(self.varbit_bits(), u32(3)), I64)

    def wire_bytes(self) -> ir.Value:
        """Return the header's length on the wire, as 32 bits."""
        if self.location.length is None:
            return u32(self.location.size)
        builder = self.routine.builder
        return builder.add(builder.lshr(self.varbit_bits(), u32(3)), u32(self.location.size))

    # ---- fields

    def spec(self, name: str) -> FieldSpec:
        """Return width and sign of a field."""
        return self.location.fields[name].spec

    def load(self, name: str) -> ir.Value:
        """Return the bits of a field, not sign-extended, as the machine integer of its width."""
        if name == VALID:
            return self.valid_byte()
        field = self.location.fields[name]
        width = field.spec.width_bits
        if width > MAX_BITS:
            raise self.routine.refuse(f"computing with the {width} bits of {self.location.header.name}.{name}")
        if width == 0:
            return ir.Constant(integer(machine_bits(0)), 0)
        if field.native:
            pointer = self.data(field.offset_bits // 8)
            return self.routine.load(pointer, integer(machine_bits(width)), "region")
        if field.spec.variable:
            return self._load_variable(field)
        return load_bits(self.routine, self.data(), field.offset_bits, width)

    def _load_variable(self, field: FieldLocation) -> ir.Value:
        """Return a varbit as a number: its bytes begin at the front, and fewer of them are a smaller number."""
        builder, width = self.routine.builder, field.spec.width_bits
        whole = load_bits(self.routine, self.varbit(), 0, width)
        unused = builder.sub(u32(width), self.varbit_bits())
        shift = builder.zext(unused, whole.type) if whole.type.width > 32 else builder.trunc(unused, whole.type)
        if whole.type.width == 32:
            shift = unused
        empty = builder.icmp_unsigned("==", unused, u32(width))
        return builder.select(empty, ir.Constant(whole.type, 0), builder.lshr(whole, shift))

    def store(self, name: str, value: ir.Value, *, clean: bool = False) -> None:
        """Set a field to the lowest bits of the machine integer of its width; `clean` if there are no others."""
        routine = self.routine
        if name == VALID:
            self.set_valid_byte(routine.builder.and_(value, ir.Constant(BYTE, 1)))
            return
        field = self.location.fields[name]
        width = field.spec.width_bits
        if width == 0:
            return
        if not clean and width < value.type.width:
            value = routine.builder.and_(value, ir.Constant(value.type, (1 << width) - 1))
        if field.native:
            routine.store(value, self.data(field.offset_bits // 8), "region")
        else:
            store_bits(routine, self.data(), field.offset_bits, width, value)

    def aligned_bytes(self, name: str) -> tuple[int, int] | None:
        """Return offset and length in bytes of a field of whole big-endian bytes; None for any other."""
        field = self.location.fields[name]
        if field.native or field.spec.variable or field.offset_bits % 8 or field.spec.width_bits % 8:
            return None
        return field.offset_bits // 8, field.spec.width_bits // 8


def header_of(routine: Routine, ref: FieldRef | str) -> Header:
    """Return a header by name, or the one of a field."""
    name = ref if isinstance(ref, str) else ref.header
    return Header(routine, routine.layout.headers[name])


def _container_bits(covered_bytes: int) -> int:
    """Return the width of the integer loaded for that many bytes: one whose bytes can be swapped."""
    for size in (1, 2, 4, 8):
        if covered_bytes <= size:
            return 8 * size
    return (covered_bytes + 1) // 2 * 16


def swap(routine: Routine, value: ir.Value) -> ir.Value:
    """Swap the bytes of an integer."""
    return value if value.type.width == 8 else routine.builder.bswap(value)


def load_bits(routine: Routine, base: ir.Value, offset_bits: int, width: int) -> ir.Value:
    """Return bits of the region as the machine integer of their width."""
    first, last = offset_bits // 8, (offset_bits + width + 7) // 8
    container = integer(_container_bits(last - first))
    value = swap(routine, routine.load(routine.offset(base, first), container, "region"))
    return _cut_out(routine, value, offset_bits - 8 * first, width)


def load_frame_bits(routine: Routine, base: ir.Value, offset_bits: int, width: int) -> ir.Value:
    """Return bits of a frame as the machine integer of their width; touches no byte past them."""
    first, last = offset_bits // 8, (offset_bits + width + 7) // 8
    covered, container = 8 * (last - first), integer(_container_bits(last - first))
    value = routine.load(routine.offset(base, first), integer(covered), "frame")
    if covered < container.width:
        value = routine.builder.zext(value, container)  # after the byte swap, the missing bytes come last
    return _cut_out(routine, swap(routine, value), offset_bits - 8 * first, width)


def _cut_out(routine: Routine, value: ir.Value, above: int, width: int) -> ir.Value:
    """Return the bits of an integer that follow its `above` highest ones, as the machine integer of their width."""
    below = value.type.width - above - width
    if below:
        value = routine.builder.lshr(value, ir.Constant(value.type, below))
    value = resize(routine, value, machine_bits(width))
    if above and width < value.type.width:
        value = routine.builder.and_(value, ir.Constant(value.type, (1 << width) - 1))
    return value


def store_bits(routine: Routine, base: ir.Value, offset_bits: int, width: int, value: ir.Value) -> None:
    """Set bits of big-endian memory to a machine integer that has no other bits."""
    if offset_bits % 8 == 0 and width % 8 == 0:
        _store_bytes(routine, routine.offset(base, offset_bits // 8), width, value)
        return
    builder = routine.builder
    first, last = offset_bits // 8, (offset_bits + width + 7) // 8
    covered = last - first
    container = integer(8 if covered == 1 else (covered + 1) // 2 * 16)
    pointer = routine.offset(base, first)
    below = container.width - (offset_bits - 8 * first) - width
    old = swap(routine, routine.load(pointer, container, "region"))
    kept = builder.and_(old, ir.Constant(container, ~(((1 << width) - 1) << below) & ((1 << container.width) - 1)))
    new = resize(routine, value, container.width)
    if below:
        new = builder.shl(new, ir.Constant(container, below))
    routine.store(swap(routine, builder.or_(kept, new)), pointer, "region")


def _store_bytes(routine: Routine, pointer: ir.Value, width: int, value: ir.Value) -> None:
    builder = routine.builder
    if width == 8:
        routine.store(resize(routine, value, 8), pointer, "region")
    elif width % 16 == 0:
        routine.store(builder.bswap(resize(routine, value, width)), pointer, "region")
    else:
        turned = builder.bswap(resize(routine, value, width + 8))
        shifted = builder.lshr(turned, ir.Constant(turned.type, 8))
        routine.store(builder.trunc(shifted, integer(width)), pointer, "region")


def resize(routine: Routine, value: ir.Value, bits: int) -> ir.Value:
    """Truncate an unsigned integer to a width, or extend it with zeros."""
    if value.type.width > bits:
        return routine.builder.trunc(value, integer(bits))
    if value.type.width < bits:
        return routine.builder.zext(value, integer(bits))
    return value
