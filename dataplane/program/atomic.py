"""Registers that a worker must hold, and for which nodes, so that a read-modify-write is never torn.

P4's @atomic leaves no trace in bmv2 JSON: p4c splits such a block, like any other, into action calls and branches. bmv2
itself locks an action's registers while that action runs, and no longer. The JSON shows more: a register that is read
in one node and written in a later one is held from the first to the last node that touches it. That covers the
read-modify-write of a register however many nodes an @atomic block is split into, and costs nothing where there is
none; an @atomic block that reads one register and writes another is not covered.

A worker takes the locks of a section, in the order of the program's registers, when it reaches the first of the
section's nodes. It takes those of a single action, in the same order, just before that action. So workers cannot
deadlock: inside a section no action needs another lock, sections share no node, and a worker never re-enters a section
that it has left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dataplane.program.model import Action, CallNode, Node, Pipeline, TableNode
from dataplane.program.operations import RegisterRead, RegisterWrite
from dataplane.program.pipelines import successors


@dataclass(frozen=True, slots=True)
class Section:
    """Nodes that run with `registers` held: locked on entry, released on leaving or at an exit."""

    registers: frozenset[str]
    nodes: frozenset[str]


def register_sections(pipeline: Pipeline) -> tuple[Section, ...]:
    """Return the sections of a pipeline, which share no nodes and no registers."""
    reached = _reached(pipeline)
    touched = {name: _touched(node) for name, node in pipeline.nodes.items()}
    sections: list[Section] = []
    for register in sorted(set().union(*touched.values())):
        if _spans(register, pipeline, reached):
            sections = _merged(sections, _between({register}, touched, reached), touched, reached)
    return tuple(sections)


def _merged(
    sections: list[Section],
    fresh: Section,
    touched: Mapping[str, frozenset[str]],
    reached: Mapping[str, frozenset[str]],
) -> list[Section]:
    """Return the sections including a new one; those that overlap with it are merged into it."""
    while True:
        overlapping = [item for item in sections if item.nodes & fresh.nodes or item.registers & fresh.registers]
        if not overlapping:
            return [*sections, fresh]
        sections = [item for item in sections if item not in overlapping]
        registers = fresh.registers.union(*(item.registers for item in overlapping))
        fresh = _between(registers, touched, reached)


def _between(
    registers: Iterable[str], touched: Mapping[str, frozenset[str]], reached: Mapping[str, frozenset[str]]
) -> Section:
    """Return the nodes on every path between two nodes that touch the registers, and all registers that these touch."""
    held = frozenset(registers)
    while True:
        ends = {name for name, names in touched.items() if names & held}
        behind = ends.union(*(reached[name] for name in ends))
        nodes = frozenset(name for name in behind if name in ends or reached[name] & ends)
        more = held.union(*(touched[name] for name in nodes))
        if more == held:
            return Section(held, nodes)
        held = more


def _spans(register: str, pipeline: Pipeline, reached: Mapping[str, frozenset[str]]) -> bool:
    """Return whether a register is read in one node and written in a later one."""
    readers = [name for name, node in pipeline.nodes.items() if _does(node, register, RegisterRead)]
    writers = {name for name, node in pipeline.nodes.items() if _does(node, register, RegisterWrite)}
    return any(reached[name] & writers for name in readers)


def _does(node: Node, register: str, kind: type[RegisterRead] | type[RegisterWrite]) -> bool:
    calls = (item for action in _actions(node) for item in action.primitives if isinstance(item, kind))
    return any(item.register == register for item in calls)


def _touched(node: Node) -> frozenset[str]:
    return frozenset[str]().union(*(action.registers for action in _actions(node)))


def _actions(node: Node) -> tuple[Action, ...]:
    match node:
        case CallNode():
            return (node.action,)
        case TableNode():
            return tuple(node.actions.values())
    return ()


def _reached(pipeline: Pipeline) -> dict[str, frozenset[str]]:
    """Return the nodes that can come after each node; the pipeline has no cycle."""
    reached: dict[str, frozenset[str]] = {}
    for first in pipeline.nodes:
        waiting = [first]
        while waiting:
            name = waiting[-1]
            following = [item for item in successors(pipeline.nodes[name]) if item is not None]
            missing = [item for item in following if item not in reached]
            if name not in reached and missing:
                waiting += missing
                continue
            waiting.pop()
            reached[name] = frozenset(following).union(*(reached[item] for item in following))
    return reached
