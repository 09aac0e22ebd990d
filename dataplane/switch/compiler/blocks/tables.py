"""Emits the application of a table: key, lookup, counter, member, meter, action, and the next node."""

from __future__ import annotations

from collections.abc import Mapping

from llvmlite import ir

from dataplane.program.model import TableNode
from dataplane.switch.abi import Entry, Machine, Reason, TableHead, Tally
from dataplane.switch.compiler.blocks.primitives import call_action
from dataplane.switch.compiler.blocks.stateful import add_to, charge_meter, ingress_bytes
from dataplane.switch.compiler.lowering.calculations import emit_calculation
from dataplane.switch.compiler.lowering.expressions import Expressions
from dataplane.switch.compiler.lowering.fields import Header, header_of, resize
from dataplane.switch.compiler.lowering.routine import I1, I32, I64, POINTER, Routine, u32, u64
from dataplane.switch.tables.arrays import word_count
from dataplane.switch.tables.native import NO_ACTION, empty_kernel, lookup_kernel, select_member

NULL = ir.Constant(POINTER, None)


class TableApplication:
    """Emits one table; `blocks` are those of the possible next nodes, the pipeline's end under None."""

    def __init__(
        self, routine: Routine, expressions: Expressions, node: TableNode, blocks: Mapping[str | None, ir.Block]
    ) -> None:
        self.routine, self.expressions, self.node, self.blocks = routine, expressions, node, blocks
        self.spec = routine.program.tables[node.name]
        self.number = list(routine.program.tables).index(node.name)

    def emit(self) -> None:
        """Emit the application; every path ends in another block."""
        routine, builder = self.routine, self.routine.builder
        table = routine.array_item("tables", self.number)
        chosen = routine.local(POINTER)
        builder.store(NULL, chosen)
        matched = routine.local(I1)
        builder.store(ir.Constant(I1, 0), matched)
        if self.spec.keys:
            self._look_up(table, chosen, matched)
        entry = builder.load(chosen, typ=POINTER)
        hit = builder.icmp_unsigned("!=", entry, NULL)
        with builder.if_then(builder.not_(hit)):
            default = routine.load_member(TableHead, table, "default")
            builder.store(default, chosen)
            self._miss(default, matched)
        entry = builder.load(chosen, typ=POINTER)
        self._run(entry, hit if self.spec.keys else ir.Constant(I1, 0))

    # ---- lookup

    def _look_up(self, table: ir.Value, chosen: ir.Value, matched: ir.Value) -> None:
        """Emit the lookup; its result, with all that a hit implies, is stored to `chosen`.

        An entry whose group is empty is `matched` and not chosen.
        """
        routine, builder = self.routine, self.routine.builder
        is_empty = empty_kernel(self.spec.keys)
        if is_empty is None:
            self._find(table, chosen, matched)
            return
        empty = builder.call(routine.module.function(is_empty), [table])
        with builder.if_then(builder.icmp_unsigned("==", empty, ir.Constant(empty.type, 0))):
            self._find(table, chosen, matched)

    def _find(self, table: ir.Value, chosen: ir.Value, matched: ir.Value) -> None:
        routine, builder = self.routine, self.routine.builder
        lookup = routine.module.function(lookup_kernel(self.spec.keys))
        entry = builder.call(lookup, [table, self._key()])
        with builder.if_then(builder.icmp_unsigned("!=", entry, NULL)):
            self._count(entry)
            builder.store(ir.Constant(I1, 1), matched)
            result = entry
            if self.spec.profile is not None:
                digest = u64(0)
                if self.node.selector is not None:
                    digest = emit_calculation(routine, self.node.selector)
                result = builder.call(routine.module.function(select_member), [entry, digest])
            builder.store(result, chosen)
            if self.node.meter_target is not None:
                self._meter(entry, result)

    def _key(self) -> ir.Value:
        """Return the key's words; fields of invalid headers count as zero, valid bits keep their value."""
        routine, builder = self.routine, self.routine.builder
        words = routine.local(I64, sum(word_count(field.width) for field in self.spec.keys))
        index = 0
        for field, source in zip(self.spec.keys, self.node.keys, strict=True):
            header = header_of(routine, source.source)
            value = self._field(header, source.source.field, source.mask)
            wide = resize(routine, value, 64 * word_count(field.width))
            if header.location.valid is not None:
                wide = builder.select(header.is_valid(), wide, ir.Constant(wide.type, 0))
            target = builder.gep(words, [u64(index)], source_etype=I64)
            routine.store(wide, target, "state", 8)
            index += word_count(field.width)
        return words

    def _field(self, header: Header, name: str, mask: int | None) -> ir.Value:
        value = header.load(name)
        full = (1 << header.spec(name).width_bits) - 1
        if mask is None or mask & full == full:
            return value
        return self.routine.builder.and_(value, ir.Constant(value.type, mask & full))

    # ---- effects of a hit and a miss

    def _miss(self, default: ir.Value, matched: ir.Value) -> None:
        """Count a packet that matches nothing, and charge it if the default entry's meter is configured."""
        routine, builder, target = self.routine, self.routine.builder, self.node.meter_target
        if self.spec.direct_counter is None and target is None:
            return
        with builder.if_then(builder.not_(builder.load(matched, typ=I1))):
            if self.spec.direct_counter is not None:
                self._count(default, timed=False)
            if target is not None:
                address = routine.load_member(Entry, default, "meter")
                with builder.if_then(builder.icmp_unsigned("!=", address, u64(0))):
                    colour = charge_meter(routine, builder.inttoptr(address, POINTER))
                    self.expressions.store_value(target, colour, 2)

    def _count(self, entry: ir.Value, *, timed: bool = True) -> None:
        """Count the packet and record the time, if the table does so."""
        counted, timed = self.spec.direct_counter is not None, timed and self.spec.idle_timeout
        if not counted and not timed:
            return
        routine, builder = self.routine, self.routine.builder
        address = routine.load_member(Entry, entry, "tally")
        with builder.if_then(builder.icmp_unsigned("!=", address, u64(0)), likely=True):
            tally = builder.inttoptr(address, POINTER)
            if counted:
                add_to(routine, routine.member(Tally, tally, "packets"), u64(1))
                add_to(routine, routine.member(Tally, tally, "bytes"), ingress_bytes(routine))
            if timed:
                now = routine.load_member(Machine, routine.machine, "now_us")
                routine.store_member(Tally, tally, "last_hit_us", now)

    def _meter(self, entry: ir.Value, result: ir.Value) -> None:
        routine, builder = self.routine, self.routine.builder
        target = self.node.meter_target
        assert target is not None
        with builder.if_then(builder.icmp_unsigned("!=", result, NULL)):
            address = routine.load_member(Entry, entry, "meter")
            colour = routine.local(I32)
            builder.store(u32(0), colour)
            with builder.if_then(builder.icmp_unsigned("!=", address, u64(0)), likely=True):
                builder.store(charge_meter(routine, builder.inttoptr(address, POINTER)), colour)
            self.expressions.store_value(target, builder.load(colour, typ=I32), 2)

    # ---- the action

    def _run(self, entry: ir.Value, hit: ir.Value) -> None:
        """Run the entry's action and go to the node that follows it."""
        routine, builder = self.routine, self.routine.builder
        action = routine.load_member(Entry, entry, "action")
        arguments = routine.load_member(Entry, entry, "arguments")
        numbers = list(routine.program.actions)
        switch = builder.switch(action, routine.fault(Reason.ACTION_NOT_IN_TABLE))
        for name, body in self.node.actions.items():
            if name not in numbers:
                raise routine.refuse(f"action {name}, which the P4Info does not have,")
            block = routine.block()
            switch.add_case(u32(numbers.index(name)), block)
            builder.position_at_end(block)
            call_action(routine, body, arguments)
            self._follow(hit, self.node.hit_next.get(name), self.node.miss_next.get(name))
        if None in self.node.miss_next:
            switch.add_case(u32(NO_ACTION), self.blocks[self.node.miss_next[None]])

    def _follow(self, hit: ir.Value, if_hit: str | None, if_miss: str | None) -> None:
        if if_hit == if_miss:
            self.routine.builder.branch(self.blocks[if_hit])
        else:
            self.routine.builder.cbranch(hit, self.blocks[if_hit], self.blocks[if_miss])
