"""Late or omitted clears are never visible: programs that would show them, and the mistakes that they catch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dataplane.program.model import CallNode, ConditionNode, Node, Pipeline, Program
from dataplane.program.objects import RegisterSpec
from dataplane.program.operations import (
    AddHeader,
    Assign,
    AssignHeader,
    Binary,
    BinaryOp,
    Choice,
    Constant,
    Expression,
    FieldRef,
    HeaderRef,
    HeadersEqual,
    JumpIfZero,
    Primitive,
    RegisterRead,
    RemoveHeader,
    Unary,
    UnaryOp,
)
from dataplane.switch.compiler.analysis import clear_elision, deferred_clears
from dataplane.switch.compiler.analysis import dataflow as flow
from dataplane.switch.compiler.analysis.dataflow import Effects, dominators, in_graph
from dataplane.switch.compiler.analysis.deferred_clears import deferred_fields
from dataplane.switch.compiler.analysis.validity import valid_where
from dataplane.switch.compiler.lowering import layout
from dataplane.switch.compiler.lowering.layout import Layout
from tests.dataplane.switch.compiler.both_pipelines import CompiledProgram, Twin
from tests.dataplane.switch.compiler.synthetic import chain, program_with

REGISTERS = {"r": RegisterSpec("r", size=4, width=8)}
OWN, KEPT, SOURCE, OTHER = FieldRef("own", "u3"), FieldRef("own", "u6"), FieldRef("wide", "u3"), FieldRef("other", "u3")
BIG = FieldRef("own", "big")
SHOW = FieldRef("wide", "u6")
"""Field that leaves with the packet."""

VALID_OTHER = Unary(UnaryOp.VALID, HeaderRef("other"))
VALID_WIDE = Unary(UnaryOp.VALID, HeaderRef("wide"))
ODD = Binary(BinaryOp.EQ, Binary(BinaryOp.AND, SOURCE, Constant(1)), Constant(1))


def both(left: Expression, right: Expression) -> Expression:
    return Binary(BinaryOp.LOGICAL_AND, left, right)


def either(left: Expression, right: Expression) -> Expression:
    return Binary(BinaryOp.LOGICAL_OR, left, right)


def fork(condition: Expression, yes: Sequence[Primitive], no: Sequence[Primitive], *then: Sequence[Primitive]) -> Any:
    """Return a control: a condition, an action on either side, then actions."""
    nodes: dict[str, Node] = dict(chain("ingress", [yes, no, *then]).nodes)
    following = "call_2" if then else None
    for name in ("call_0", "call_1"):
        call = nodes[name]
        assert isinstance(call, CallNode)
        nodes[name] = replace(call, next_node=following)
    nodes["fork"] = ConditionNode("fork", condition, "call_0", "call_1")
    return Pipeline("ingress", "fork", nodes)


def forking(
    condition: Expression, yes: Sequence[Primitive], no: Sequence[Primitive], *then: Any, **more: Any
) -> Program:
    return program_with([], ingress=fork(condition, yes, no, *then), registers=REGISTERS, **more)


def straight(*primitives: Primitive, **more: Any) -> Program:
    return program_with([primitives], registers=REGISTERS, **more)


def shown(value: Expression) -> Primitive:
    return Assign(SHOW, value)


NOTHING: Sequence[Primitive] = [Assign(KEPT, Constant(1))]
PERHAPS: Sequence[Primitive] = [JumpIfZero(SOURCE, 2), Assign(OWN, SOURCE), Assign(SHOW, OWN)]
PROGRAMS: dict[str, Callable[[], Program]] = {
    "read where it is not valid": lambda: forking(VALID_OTHER, NOTHING, [shown(OTHER)]),
    "read where one of two is valid": lambda: forking(either(VALID_OTHER, VALID_WIDE), [shown(OTHER)], NOTHING),
    "read where not both are valid": lambda: forking(
        Unary(UnaryOp.NOT, both(VALID_OTHER, VALID_WIDE)), [shown(OTHER)], NOTHING
    ),
    "read where two are not the same": lambda: forking(
        HeadersEqual(HeaderRef("other"), HeaderRef("wide"), negated=True), [shown(OTHER)], NOTHING
    ),
    "read behind both sides": lambda: forking(VALID_OTHER, NOTHING, NOTHING, [shown(OTHER)]),
    "read where one side has made it": lambda: forking(ODD, [AddHeader(HeaderRef("other"))], NOTHING, [shown(OTHER)]),
    "copied from one that is not there": lambda: straight(
        AssignHeader(HeaderRef("other"), HeaderRef("spare2")), shown(OTHER), headers=_with_spare()
    ),
    "jumped over": lambda: straight(JumpIfZero(VALID_OTHER, 2), shown(Constant(3)), shown(OTHER)),
    "chosen where it is not valid": lambda: straight(shown(Choice(VALID_OTHER, Constant(1), OTHER))),
    "written where it is not valid": lambda: straight(Assign(FieldRef("other", "u6"), SOURCE), shown(OTHER)),
    "a cell that may not be there": lambda: forking(ODD, [RegisterRead(OWN, "r", SOURCE), shown(OWN)], NOTHING),
    "late on both sides": lambda: forking(ODD, PERHAPS, PERHAPS),
    "written on one side, read behind": lambda: forking(ODD, [Assign(OWN, SOURCE)], NOTHING, [shown(OWN)]),
    "written in ingress, read in egress": lambda: program_with(
        [], ingress=fork(ODD, [Assign(OWN, SOURCE)], NOTHING), egress=chain("egress", [NOTHING, [shown(OWN)]])
    ),
    "wider than machine integers": lambda: forking(
        ODD, [JumpIfZero(SOURCE, 2), Assign(BIG, SOURCE), shown(BIG)], NOTHING
    ),
}


def _with_spare() -> Any:
    headers = dict(program_with([]).headers)
    return {**headers, "spare2": replace(headers["other"], name="spare2")}


def send_some(program: Program) -> None:
    """Send packets on different paths, each over memory filled with non-zero bytes."""
    twin = Twin(CompiledProgram(program))
    for byte in (0, 1, 2, 3, 255):
        twin.send(bytes([byte]) * 150)
    twin.send(b"")


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_packet_sees_what_another_left(name: str) -> None:
    send_some(PROGRAMS[name]())


# ---- mistakes, each caught by a program above


def _on_either_side(condition: object, _: bool, bits: Any) -> int:
    return valid_where(condition, True, bits) | valid_where(condition, False, bits)


def _one_is_both(condition: object, holds: bool, bits: Any) -> int:
    match condition:
        case Binary(BinaryOp.LOGICAL_AND | BinaryOp.LOGICAL_OR, left, right):
            return _one_is_both(left, holds, bits) | _one_is_both(right, holds, bits)
        case Unary(UnaryOp.NOT, operand):
            return _on_either_side(operand, holds, bits)
    return valid_where(condition, holds, bits)


def _different_is_equal(condition: object, holds: bool, bits: Any) -> int:
    if isinstance(condition, HeadersEqual):
        return valid_where(replace(condition, negated=not holds), holds, bits)
    return valid_where(condition, holds, bits)


def _only_first_edges(effects: Any, edges: Any, first: Any) -> Effects:
    return in_graph(effects, {vertex: outgoing[:1] for vertex, outgoing in edges.items()}, first)


def _known_for_ever(effects: Any, edges: Any, first: Any) -> Effects:
    """As if facts from one path through a vertex held for all."""
    written = {vertex: sum(way.known for way in edges[vertex]) for vertex in edges}
    return in_graph(
        {vertex: Effects(effect.exposed, effect.written | written[vertex]) for vertex, effect in effects.items()},
        edges,
        first,
    )


def _also_written(bit: Callable[[Any, Any], int]) -> Any:
    original = clear_elision._Dataflow._operation

    def operation(self: Any, item: object) -> Effects:
        use = original(self, item)
        return Effects(use.exposed, use.written | bit(self, item))

    return operation


def _copied(self: Any, item: Any) -> int:
    return sum(
        self.header_bits.get(ref.name, 0) for ref in [getattr(item, "target", None)] if isinstance(ref, HeaderRef)
    )


def _read_from_any_cell(self: Any, item: Any) -> int:
    return int(self.field_bits.get(item.target, 0)) if isinstance(item, RegisterRead) else 0


def _a_field(self: Any, item: Any) -> int:
    return sum(
        self.header_bits.get(ref.header, 0) for ref in [getattr(item, "target", None)] if isinstance(ref, FieldRef)
    )


def _last(following: Any, first: Any) -> Any:
    """As if a field belonged to its last mention."""
    order = flow.reverse_postorder(following, first)
    return lambda vertex, other: max(vertex, other, key=order.index)


def _each_for_itself(program: Program, candidates: Any) -> Any:
    """As if a control never saw another's writes."""
    nothing = Pipeline("nothing", None, {})
    alone = (replace(program, egress=nothing), replace(program, ingress=nothing))
    fields: dict[str, Any] = {}
    for part in alone:
        taken = {ref for refs in fields.values() for ref in refs}
        fields |= deferred_fields(part, [ref for ref in candidates if ref not in taken])
    return fields


MISTAKES: list[tuple[Any, str, Any, str]] = [
    (clear_elision, "valid_where", _on_either_side, "read where it is not valid"),
    (clear_elision, "valid_where", _on_either_side, "chosen where it is not valid"),
    (clear_elision, "valid_where", _on_either_side, "jumped over"),
    (clear_elision, "valid_where", _one_is_both, "read where one of two is valid"),
    (clear_elision, "valid_where", _one_is_both, "read where not both are valid"),
    (clear_elision, "valid_where", _different_is_equal, "read where two are not the same"),
    (clear_elision, "in_graph", _only_first_edges, "read where one side has made it"),
    (clear_elision, "in_graph", _known_for_ever, "read behind both sides"),
    (clear_elision._Dataflow, "_operation", _also_written(_copied), "copied from one that is not there"),
    (clear_elision._Dataflow, "_operation", _also_written(_a_field), "written where it is not valid"),
    (clear_elision._Dataflow, "_operation", _also_written(_read_from_any_cell), "a cell that may not be there"),
    (deferred_clears, "dominators", _last, "late on both sides"),
    (deferred_clears, "dominators", _last, "written on one side, read behind"),
    (layout, "deferred_fields", _each_for_itself, "written in ingress, read in egress"),
]


@pytest.mark.parametrize(("where", "what", "mistake", "program"), MISTAKES)
def test_each_mistake_shows(where: Any, what: str, mistake: Any, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, what, mistake)
    with pytest.raises(AssertionError):
        send_some(PROGRAMS[program]())


# ---- results of the analysis


@pytest.mark.parametrize(
    ("condition", "holds", "not_holds"),
    [
        (VALID_OTHER, {"other"}, set()),
        (Unary(UnaryOp.NOT, VALID_OTHER), set(), {"other"}),
        (FieldRef("other", "$valid$"), {"other"}, set()),
        (Unary(UnaryOp.DATA_TO_BOOL, Unary(UnaryOp.BOOL_TO_DATA, VALID_OTHER)), {"other"}, set()),
        (both(VALID_OTHER, VALID_WIDE), {"other", "wide"}, set()),
        (both(VALID_OTHER, ODD), {"other"}, set()),
        (either(VALID_OTHER, VALID_WIDE), set(), set()),
        (either(VALID_OTHER, both(VALID_WIDE, VALID_OTHER)), {"other"}, set()),
        (either(Unary(UnaryOp.NOT, VALID_OTHER), VALID_WIDE), set(), {"other"}),
        (either(Unary(UnaryOp.NOT, VALID_OTHER), ODD), set(), {"other"}),
        (both(Unary(UnaryOp.NOT, VALID_OTHER), VALID_WIDE), {"wide"}, set()),
        (HeadersEqual(HeaderRef("other"), HeaderRef("wide"), negated=False), {"other", "wide"}, set()),
        (HeadersEqual(HeaderRef("other"), HeaderRef("wide"), negated=True), set(), {"other", "wide"}),
        (Choice(VALID_OTHER, Constant(1), Constant(0)), set(), set()),
    ],
)
def test_what_a_condition_says_of_headers(condition: Expression, holds: set[str], not_holds: set[str]) -> None:
    bits = {"other": 1, "wide": 2}
    for outcome, expected in ((True, holds), (False, not_holds)):
        assert valid_where(condition, outcome, bits) == sum(bits[name] for name in expected)


@pytest.mark.parametrize(
    "program",
    [
        forking(VALID_OTHER, [shown(OTHER)], NOTHING),
        forking(both(VALID_OTHER, Binary(BinaryOp.EQ, OTHER, Constant(1))), NOTHING, NOTHING),
        forking(either(Unary(UnaryOp.NOT, VALID_OTHER), Binary(BinaryOp.EQ, OTHER, Constant(1))), NOTHING, NOTHING),
        straight(shown(Choice(VALID_OTHER, OTHER, Constant(1)))),
        straight(JumpIfZero(VALID_OTHER, 2), shown(OTHER)),
        straight(AddHeader(HeaderRef("other")), RemoveHeader(HeaderRef("other")), shown(OTHER)),
    ],
)
def test_header_read_only_where_valid_is_not_cleared(program: Program) -> None:
    layout = Layout(program)
    assert layout.fresh_bytes <= layout.headers["other"].data < layout.plain_bytes


def test_a_field_is_cleared_where_the_ways_to_it_begin() -> None:
    program = forking(
        ODD, PERHAPS, NOTHING, [Assign(BIG, SOURCE)], [JumpIfZero(SOURCE, 2), Assign(BIG, SOURCE), *PERHAPS]
    )
    layout = Layout(program)
    assert not layout.deferred  # OWN is mentioned on one side and behind; BIG is written before it is read
    alone = Layout(forking(ODD, PERHAPS, NOTHING, NOTHING))
    assert set(alone.deferred) == {"call_0"}
    span, own = alone.deferred["call_0"], alone.headers["own"]
    assert span.start == own.data + own.fields["u3"].offset_bits // 8 >= alone.plain_bytes
    assert span.size == 8


def test_gates_are_where_all_ways_lead_through() -> None:
    ways: dict[str, list[str | None]] = {
        "a": ["b", "c"],
        "b": ["d"],
        "c": ["d", "e"],
        "d": ["f"],
        "e": ["f", None],
        "f": [None],
        "lost": ["f"],
    }
    common = dominators(ways, "a")
    assert [common(*pair) for pair in ("bb", "bd", "de", "ef", "df", "ce")] == ["b", "a", "a", "a", "a", "c"]
