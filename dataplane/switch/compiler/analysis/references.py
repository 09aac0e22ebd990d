"""Finds references in a program: the fields, headers and stacks of its operations, conditions and nodes."""

from __future__ import annotations

from collections.abc import Iterator

from dataplane.program.model import Action, CallNode, ConditionNode, Node, Pipeline, Program, TableNode
from dataplane.program.operations import ElementFieldRef, ElementRef, FieldRef, HeaderRef, LastFieldRef, StackRef
from dataplane.program.pipelines import successors

Reference = FieldRef | ElementFieldRef | LastFieldRef | ElementRef | HeaderRef | StackRef


def references(item: object) -> Iterator[Reference]:
    """Return all references in an expression, a primitive, an action, or a tuple of them."""
    if isinstance(item, Reference):
        yield item
    for part in parts(item):
        yield from references(part)


def parts(item: object) -> Iterator[object]:
    """Return the parts of an expression, a primitive, an action or a tuple, except for numbers and names."""
    if isinstance(item, tuple):
        yield from item
        return
    for name in getattr(item, "__dataclass_fields__", ()):
        part = getattr(item, name)
        if not isinstance(part, int | str):
            yield part


def reads(item: object) -> Iterator[object]:
    """Return the parts that a primitive or parser operation reads: all but the field that it sets."""
    for name in getattr(item, "__dataclass_fields__", ()):
        part = getattr(item, name)
        if not isinstance(part, int | str) and not (name == "target" and isinstance(part, FieldRef)):
            yield part


def actions_of(node: Node) -> tuple[Action, ...]:
    """Return the actions that a node can run."""
    match node:
        case TableNode():
            return tuple(node.actions.values())
        case CallNode():
            return (node.action,)
        case ConditionNode():
            return ()


def in_node(node: Node) -> Iterator[Reference]:
    """Return everything that a node refers to, including its actions."""
    match node:
        case TableNode():
            yield from references((*(key.source for key in node.keys), node.selector, node.meter_target))
        case ConditionNode():
            yield from references(node.condition)
        case CallNode():
            pass
    for action in actions_of(node):
        yield from references(action.primitives)


def outside_of_controls(program: Program) -> Iterator[Reference]:
    """Return everything that parser, deparser, checksums and digests refer to, and what copies keep."""
    for state in program.parser.states.values():
        yield from references((*state.operations, *(part.source for part in state.key)))
    yield from references(program.deparser.primitives)
    yield from references(program.checksums)
    yield from references((*(digest.sources for digest in program.digests.values()), *program.field_lists.values()))


def reachable(pipeline: Pipeline) -> dict[str, Node]:
    """Return the nodes of a control that a packet can reach."""
    nodes: dict[str, Node] = {}
    waiting = [] if pipeline.initial is None else [pipeline.initial]
    while waiting:
        name = waiting.pop()
        if name not in nodes:
            nodes[name] = pipeline.nodes[name]
            waiting += [following for following in successors(nodes[name]) if following is not None]
    return nodes


def operations(program: Program) -> Iterator[object]:
    """Return the operations of all functions."""
    for state in program.parser.states.values():
        yield from state.operations
    nodes = (node for pipeline in (program.ingress, program.egress) for node in pipeline.nodes.values())
    for action in {id(action): action for node in nodes for action in actions_of(node)}.values():
        yield from action.primitives
    yield from program.deparser.primitives


def conditions(program: Program) -> Iterator[object]:
    """Return what is read outside of operations, except for the keys of tables."""
    for state in program.parser.states.values():
        yield from (part.source for part in state.key)
    for pipeline in (program.ingress, program.egress):
        for node in pipeline.nodes.values():
            if isinstance(node, ConditionNode):
                yield node.condition
            elif isinstance(node, TableNode):
                yield node.selector
    for checksum in program.checksums:
        yield from (checksum.condition, checksum.calculation, checksum.target)
    yield from (digest.sources for digest in program.digests.values())
