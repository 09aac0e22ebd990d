"""Assembles the input of a calculation bit by bit in memory on the stack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from dataplane.native import Array, as_u8, kernel, u8, u64
from dataplane.program.operations import SizedConstant
from dataplane.switch.compiler.lowering.fields import Header, header_of, resize
from dataplane.switch.compiler.lowering.routine import BYTE, I64, Routine, integer
from dataplane.switch.compiler.lowering.routine import u64 as word

HIGH_BYTE = 0xFF00

_SLACK_BYTES = 16
"""Whole words are stored, the last of which may have fewer than 64 bits."""


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive fields of one header, or a constant (then `header` is None)."""

    header: str | None
    fields: tuple[str, ...] = ()
    constant: SizedConstant | None = None


@kernel(inline=False)
def append_bits(target: Array[u8], position: u64, source: Array[u8], nbytes: u64) -> None:
    """Append bytes after the first `position` bits of the target, whose following bits become zero."""
    shift = position & 7
    first = position >> 3
    for index in range(nbytes):
        if shift == 0:
            target[first + index] = source[index]
        else:
            kept = target[first + index] & as_u8(HIGH_BYTE >> shift)
            target[first + index] = kept | as_u8(source[index] >> as_u8(shift))
            target[first + index + 1] = as_u8(source[index] << as_u8(8 - shift))


def assemble(routine: Routine, groups: Sequence[Group]) -> tuple[ir.Value, ir.Value]:
    """Return the bytes of all groups, the last one padded with zeros, and their number, as 64 bits."""
    return _Assembler(routine, groups).run()


class _Assembler:
    """`cursor` counts bits; `aligned` tells whether it is known to be on a byte boundary."""

    def __init__(self, routine: Routine, groups: Sequence[Group]) -> None:
        self.routine, self.groups = routine, groups
        most_bits = sum(self._most_bits(group) for group in groups)
        self.buffer = routine.local(BYTE, most_bits // 8 + 1 + _SLACK_BYTES)
        self.cursor = routine.local(I64)
        self.aligned = True

    def run(self) -> tuple[ir.Value, ir.Value]:
        builder = self.routine.builder
        builder.store(word(0), self.cursor)
        for group in self.groups:
            if group.header is None:
                assert group.constant is not None
                self._fixed([(self._constant(group.constant), group.constant.width_bits)])
                continue
            header = header_of(self.routine, group.header)
            with builder.if_then(header.is_valid()):
                self._group(header, group.fields)
        bits = builder.load(self.cursor, typ=I64)
        return self.buffer, builder.lshr(builder.add(bits, word(7)), word(3))

    def _most_bits(self, group: Group) -> int:
        if group.header is None:
            assert group.constant is not None
            return group.constant.width_bits
        header = header_of(self.routine, group.header)
        return sum(header.spec(name).width_bits for name in group.fields)

    def _constant(self, constant: SizedConstant) -> ir.Value:
        return ir.Constant(integer(max(64, constant.width_bits)), constant.value)

    def _group(self, header: Header, names: Sequence[str]) -> None:
        run: list[str] = []
        for name in names:
            if header.spec(name).variable:
                self._fields(header, run)
                run = []
                self._append(header.varbit(), header.varbit_bytes())
                self._advance(self.routine.builder.zext(header.varbit_bits(), I64))
            else:
                run.append(name)
        self._fields(header, run)

    def _fields(self, header: Header, names: Sequence[str]) -> None:
        if not names:
            return
        runs = self._byte_runs(header, names)
        if runs is None or not self.aligned:
            self._fixed([(header.load(name), header.spec(name).width_bits) for name in names])
            return
        for start, size in runs:
            self.routine.copy(self._target(), header.data(start), size, ("state", "region"))
            self._advance(word(8 * size))

    def _byte_runs(self, header: Header, names: Sequence[str]) -> list[tuple[int, int]] | None:
        """Return offset and length of the fields' whole bytes; None if they are not whole bytes."""
        runs: list[tuple[int, int]] = []
        for name in names:
            location = header.location.fields[name]
            if location.native:
                return None
            start, width = location.offset_bits, location.spec.width_bits
            if runs and sum(runs[-1]) == start:
                runs[-1] = (runs[-1][0], runs[-1][1] + width)
            else:
                runs.append((start, width))
        if any(start % 8 or width % 8 for start, width in runs):
            return None
        return [(start // 8, width // 8) for start, width in runs]

    def _fixed(self, values: Sequence[tuple[ir.Value, int]]) -> None:
        """Append integers of known widths."""
        total = sum(width for _, width in values)
        if self.aligned:
            self._pack(self._target(), values)
        else:
            spare = self.routine.local(BYTE, total // 8 + 1 + _SLACK_BYTES)
            self._pack(spare, values)
            self._append(spare, word((total + 7) // 8))
        self._advance(word(total))
        self.aligned = self.aligned and total % 8 == 0

    def _pack(self, target: ir.Value, values: Sequence[tuple[ir.Value, int]]) -> None:
        """Store integers back to back in big-endian words of 64 bits."""
        builder = self.routine.builder
        words: list[ir.Value] = [word(0)] * ((sum(width for _, width in values) + 63) // 64)
        position = 0
        for value, width in values:
            left = width
            while left:
                index, used = divmod(position, 64)
                here = min(left, 64 - used)
                part = builder.lshr(value, ir.Constant(value.type, left - here)) if left > here else value
                bits = resize(self.routine, part, 64)
                if here < 64:
                    bits = builder.and_(bits, word((1 << here) - 1))
                words[index] = builder.or_(words[index], builder.shl(bits, word(64 - used - here)))
                position += here
                left -= here
        for index, packed in enumerate(words):
            self.routine.store(builder.bswap(packed), self.routine.offset(target, 8 * index), "state")

    def _target(self) -> ir.Value:
        builder = self.routine.builder
        return self.routine.offset(self.buffer, builder.lshr(builder.load(self.cursor, typ=I64), word(3)))

    def _append(self, source: ir.Value, nbytes: ir.Value) -> None:
        routine = self.routine
        if self.aligned:
            routine.copy(self._target(), source, nbytes, ("state", "region"))
            return
        cursor = routine.builder.load(self.cursor, typ=I64)
        routine.builder.call(routine.module.function(append_bits), [self.buffer, cursor, source, nbytes])

    def _advance(self, bits: ir.Value) -> None:
        builder = self.routine.builder
        builder.store(builder.add(builder.load(self.cursor, typ=I64), bits), self.cursor)
