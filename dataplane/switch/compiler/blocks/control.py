"""Emits a control: its nodes as basic blocks of one function, each entered from its predecessors."""

from __future__ import annotations

from llvmlite import ir

from dataplane.program.atomic import register_sections
from dataplane.program.model import CallNode, ConditionNode, Node, Pipeline, TableNode
from dataplane.program.operations import Exit
from dataplane.program.pipelines import successors
from dataplane.switch.compiler.analysis.references import actions_of, reachable
from dataplane.switch.compiler.blocks.primitives import call_action
from dataplane.switch.compiler.blocks.tables import TableApplication
from dataplane.switch.compiler.lowering.expressions import Expressions
from dataplane.switch.compiler.lowering.routine import I64, Emission, Routine, u32, u64
from dataplane.switch.tables.arrays import word_count


def emit_control(emission: Emission, pipeline: Pipeline, function: ir.Function) -> None:
    """Emit the function of a control: it runs until its end or an exit."""
    routine = Routine(emission, function, pipeline.name)
    control = _Control(routine, pipeline)
    control.begin(pipeline.initial)
    control.emit()
    routine.builder.position_at_end(routine.end)
    routine.finish()


class _Control:
    """The blocks of a control.

    If several threads run it, nodes of a section (see `dataplane.program.atomic`) are entered with its registers
    locked, and every way out releases them.
    """

    def __init__(self, routine: Routine, pipeline: Pipeline) -> None:
        self.routine, self.nodes = routine, reachable(pipeline)
        self.expressions = Expressions(routine)
        self.blocks: dict[str | None, ir.Block] = {name: routine.block() for name in self.nodes}
        self.blocks[None] = routine.end
        self.sections: dict[str | None, tuple[int, ...]] = {}
        numbers = {name: number for number, name in enumerate(routine.program.registers)}
        for section in register_sections(pipeline) if routine.emission.threads > 1 else ():
            registers = tuple(sorted(numbers[name] for name in section.registers))
            self.sections |= dict.fromkeys(section.nodes, registers)
        self._ways: dict[tuple[tuple[int, ...], str | None], ir.Block] = {}

    def begin(self, initial: str | None) -> None:
        """Branch to the first node, unless the parser has already ended the packet's processing."""
        start = self._branch((), initial)
        states = self.routine.program.parser.states.values()
        if any(isinstance(operation, Exit) for state in states for operation in state.operations):
            self._unless_exit(start, self.routine.end)
        else:
            self.routine.builder.branch(start)

    def _unless_exit(self, following: ir.Block, leaving: ir.Block) -> None:
        """Continue in a block unless the packet has left the pipeline."""
        builder = self.routine.builder
        stays = builder.icmp_unsigned("==", self.routine.packet_field("exit"), u32(0))
        builder.cbranch(stays, following, leaving)

    def emit(self) -> None:
        for name, node in self.nodes.items():
            self._enter(name)
            following = self._following(name, node)
            match node:
                case CallNode():
                    call_action(self.routine, node.action, self._constants(node))
                    self.routine.builder.branch(following[node.next_node])
                case ConditionNode():
                    holds = self.expressions.truth(node.condition)
                    self.routine.builder.cbranch(holds, following[node.true_next], following[node.false_next])
                case TableNode():
                    TableApplication(self.routine, self.expressions, node, following).emit()
        self.routine.held = ()

    def _enter(self, name: str) -> None:
        """Position code generation at a node's block; faults release the locks that it holds."""
        held = self.sections.get(name, ())
        if held != self.routine.held:
            self.routine.held, self.routine.faults = held, {}
            self.routine.leaving = self._branch(held, None)
        self.routine.construct = name
        self.routine.builder.position_at_end(self.blocks[name])
        span = self.routine.layout.deferred.get(name)
        if span is not None:
            self.routine.clear(self.routine.offset(self.routine.region, span.start), span.size)

    def _branch(self, held: tuple[int, ...], name: str | None) -> ir.Block:
        """Return the block by which a node, or the end, is entered while some registers are locked."""
        wanted = self.sections.get(name, ())
        if held == wanted:
            return self.blocks[name]
        block = self._ways.get((held, name))
        if block is None:
            self._ways[held, name] = block = self.routine.block()
            with self.routine.builder.goto_block(block):
                self.routine.unlock(held)
                self.routine.lock(wanted)
                self.routine.builder.branch(self.blocks[name])
        return block

    def _following(self, name: str, node: Node) -> dict[str | None, ir.Block]:
        """Return the blocks that follow a node, after a check of `exit` if an action of the node sets it."""
        held = self.sections.get(name, ())
        branches = {following: self._branch(held, following) for following in (*successors(node), None)}
        if not any(isinstance(item, Exit) for action in actions_of(node) for item in action.primitives):
            return branches
        for following in set(successors(node)) - {None}:
            block = self.routine.block()
            with self.routine.builder.goto_block(block):
                self._unless_exit(branches[following], branches[None])
            branches[following] = block
        return branches

    def _constants(self, node: CallNode) -> ir.Value:
        """Return the words of fixed arguments."""
        words: list[int] = []
        for value, (_, width) in zip(node.arguments, node.action.spec.parameters, strict=True):
            words += [value >> 64 * index & (1 << 64) - 1 for index in range(word_count(width))]
        memory = self.routine.local(I64, max(1, len(words)))
        for index, word in enumerate(words):
            target = self.routine.builder.gep(memory, [u64(index)], source_etype=I64)
            self.routine.store(u64(word), target, "entry", 8)
        return memory
