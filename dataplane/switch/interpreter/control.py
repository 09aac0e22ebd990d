"""Binds control flow: each node becomes a closure that does its part and returns the next node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from dataplane.program.model import CallNode, ConditionNode, Node, Pipeline, TableNode
from dataplane.program.objects import ActionCall, TableSpec
from dataplane.program.operations import FieldRef, Unary, UnaryOp
from dataplane.program.pipelines import successors
from dataplane.switch.interpreter.calculations import bind_calculation
from dataplane.switch.interpreter.expressions import bind, bind_store
from dataplane.switch.interpreter.layout import EXIT, INGRESS_LENGTH, Fields, Layout, PacketFault
from dataplane.switch.interpreter.primitives import Binder
from dataplane.switch.interpreter.state import MatchTable, PipelineState
from dataplane.switch.interpreter.tracer import Compute, Find
from dataplane.switch.tables import TableEntry

Apply: TypeAlias = Callable[[Fields], None]


class BoundNode(Protocol):
    """A node of a pipeline, ready to run."""

    def __call__(self, fields: Fields, /) -> BoundNode | None:
        """Do the node's part and return the next one; None at the end."""
        ...


def bind_pipeline(pipeline: Pipeline, state: PipelineState, layout: Layout, binder: Binder) -> Apply:
    """Return a closure that runs a pipeline until its end or an exit."""
    binding = _PipelineBinder(state, layout, binder)
    first = None if pipeline.initial is None else binding.bind(pipeline, pipeline.initial)

    def apply(fields: Fields) -> None:
        node = first
        while node is not None and not fields[EXIT]:
            node = node(fields)

    return apply


def _bind_branch_on_field(slot: int, if_set: BoundNode | None, if_zero: BoundNode | None) -> BoundNode:
    def branch(fields: Fields, /) -> BoundNode | None:
        return if_set if fields[slot] else if_zero

    return branch


class _PipelineBinder:
    """Binds nodes, the last ones first, so that each closure holds those that follow it."""

    def __init__(self, state: PipelineState, layout: Layout, binder: Binder) -> None:
        self.state, self.layout, self.binder = state, layout, binder
        self.bound: dict[str, BoundNode] = {}

    def bind(self, pipeline: Pipeline, initial: str) -> BoundNode:
        """Return the node `initial`, with everything that can follow it bound."""
        waiting = [initial]
        while waiting:
            name = waiting[-1]
            missing = [item for item in successors(pipeline.nodes[name]) if item is not None and item not in self.bound]
            if missing and name not in self.bound:
                waiting += missing
                continue
            if name not in self.bound:
                self.bound[name] = self._node(pipeline.nodes[name])
            waiting.pop()
        return self.bound[initial]

    def _following(self, name: str | None) -> BoundNode | None:
        return None if name is None else self.bound[name]

    def _node(self, node: Node) -> BoundNode:
        match node:
            case CallNode():
                return self._call(node)
            case ConditionNode():
                return self._condition(node)
            case TableNode():
                return self._table(node)

    def _call(self, node: CallNode) -> BoundNode:
        run, arguments, following = self.binder.action(node.action), node.arguments, self._following(node.next_node)
        if self.binder.tracer is not None:
            run = self.binder.tracer.call(node, run)

        def call(fields: Fields, /) -> BoundNode | None:
            run(fields, arguments)
            return following

        return call

    def _condition(self, node: ConditionNode) -> BoundNode:
        if_true, if_false = self._following(node.true_next), self._following(node.false_next)
        tracer = self.binder.tracer
        match node.condition:
            case Unary(UnaryOp.DATA_TO_BOOL, FieldRef() as ref) if tracer is None:  # mainly isValid
                return _bind_branch_on_field(self.layout.slot(ref), if_true, if_false)
        condition = bind(node.condition, self.layout)
        if tracer is not None:
            condition = tracer.condition(node, condition)

        def branch(fields: Fields, /) -> BoundNode | None:
            return if_true if condition(fields, ()) else if_false

        return branch

    def _table(self, node: TableNode) -> BoundNode:
        table = self.state.tables[node.name]
        actions = {name: self.binder.action(action) for name, action in node.actions.items()}
        hit = {name: (actions[name], self._following(following)) for name, following in node.hit_next.items()}
        miss = {
            name: (actions[name], self._following(following))
            for name, following in node.miss_next.items()
            if name is not None
        }
        without_action = self._following(node.miss_next.get(None))
        find, key, missed = self._metered(node, self._finder(node, table)), self._key(node), self._missed(node, table)
        if self.binder.tracer is not None:
            find = self.binder.tracer.table(node, find)

        def apply(fields: Fields, /) -> BoundNode | None:
            call, entry = find(fields, key(fields))
            if call is None:
                if entry is None and missed is not None:
                    missed(fields)
                default = table.default
                if default is None:
                    return without_action
                run, following = miss[default.action]
                run(fields, default.arguments)
                return following
            run, following = hit[call.action]
            run(fields, call.arguments)
            return following

        return apply

    def _missed(self, node: TableNode, table: MatchTable) -> Apply | None:
        """Return a closure that counts and charges a packet that matches nothing; None if neither is done."""
        counted = table.spec.direct_counter is not None
        store = None if node.meter_target is None else bind_store(node.meter_target, self.layout)
        moment = self.binder.moment

        def note(fields: Fields) -> None:
            default = table.default_entry
            if counted:
                default.count(fields[INGRESS_LENGTH])
            if store is not None and default.meter_config is not None:
                store(fields, (), default.meter(fields[INGRESS_LENGTH], moment.now_us))

        return note if counted or store is not None else None

    def _key(self, node: TableNode) -> Callable[[Fields], tuple[int, ...]]:
        """Return a closure that reads a key; fields of invalid headers count as zero, valid bits keep their value."""
        parts: list[tuple[int, int, int]] = []
        for key in node.keys:
            width = (1 << self.layout.spec(key.source).width_bits) - 1
            slots = self.layout.headers[key.source.header]
            slot = self.layout.slot(key.source)
            parts.append((slot, slots.valid, width if key.mask is None else key.mask))

        def read(fields: Fields) -> tuple[int, ...]:
            return tuple([fields[slot] & mask if fields[valid] else 0 for slot, valid, mask in parts])

        return read

    def _finder(self, node: TableNode, table: MatchTable) -> Find:
        """Return a closure from key to action and entry: no action if nothing matches, or a group is empty."""
        spec: TableSpec = table.spec
        counted, timed = spec.direct_counter is not None, spec.idle_timeout
        lookup, profile = table.lookup, table.profile
        choose: Compute | None = None if node.selector is None else bind_calculation(node.selector, self.layout)
        moment = self.binder.moment

        def find(fields: Fields, key: tuple[int, ...]) -> tuple[ActionCall | None, TableEntry | None]:
            entry: TableEntry | None = lookup(key)
            if entry is None:
                return None, None
            if counted:
                entry.count(fields[INGRESS_LENGTH])
            if timed:
                entry.touch(moment.now_us)
            if profile is None:
                return entry.call, entry
            call = profile.resolve(entry, 0 if choose is None else choose(fields, b""))
            if call is not None and call.action not in node.actions:  # the profile's other tables may have more actions
                raise PacketFault("action_not_in_table")
            return call, entry

        return find

    def _metered(self, node: TableNode, find: Find) -> Find:
        """Return a closure that also charges a hit to the entry's meter, and stores the colour."""
        if node.meter_target is None:
            return find
        store, moment = bind_store(node.meter_target, self.layout), self.binder.moment

        def find_and_charge(fields: Fields, key: tuple[int, ...]) -> tuple[ActionCall | None, TableEntry | None]:
            call, entry = find(fields, key)
            if call is not None and entry is not None:
                store(fields, (), entry.meter(fields[INGRESS_LENGTH], moment.now_us))
            return call, entry

        return find_and_charge
