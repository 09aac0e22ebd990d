"""Programs made by hand: headers of many widths, one parser state, and arbitrary actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from dataplane.program.model import (
    CORE_ERRORS,
    Action,
    CallNode,
    Deparser,
    Extract,
    FieldSpec,
    Header,
    HeaderStack,
    HeaderType,
    Node,
    Parser,
    ParserState,
    Pipeline,
    Program,
)
from dataplane.program.objects import ActionSpec
from dataplane.program.operations import Binary, BinaryOp, Constant, HeaderRef, LastFieldRef, Primitive, StackRef
from tests.dataplane.switch.interpreter.harness import own_program

WIDTHS = (1, 3, 4, 8, 5, 11, 16, 9, 23, 32, 33, 15, 48, 64, 65, 63, 128, 2, 6)
SIGNED = (8, 13, 3, 32, 64, 72)

WIDE = HeaderType(
    "wide_t",
    (
        *(FieldSpec(f"u{number}", width) for number, width in enumerate(WIDTHS)),
        *(FieldSpec(f"s{number}", width, signed=True) for number, width in enumerate(SIGNED)),
    ),
)
OPTIONS = HeaderType(
    "options_t", (FieldSpec("size", 5), FieldSpec("v", 96, variable=True), FieldSpec("left", 3), FieldSpec("tail", 8))
)
"""Its varbit begins in the middle of a byte, unlike p4c's."""

ELEMENT = HeaderType("element_t", (FieldSpec("a", 4), FieldSpec("b", 12)))
OPTIONS_BITS = Binary(BinaryOp.MUL, LastFieldRef("stack", "a"), Constant(8))
METADATA = HeaderType("own_t", (*WIDE.fields, FieldSpec("which", 8), FieldSpec("big", 200)))
STACK_SIZE = 3
assert WIDE.fixed_bits % 8 == 0, WIDE.fixed_bits


@cache
def _base() -> Program:
    return own_program("arithmetic")


def program_with(
    actions: Sequence[Sequence[Primitive]],
    *,
    arguments: Sequence[tuple[int, int]] = (),
    extracted: int = 2,
    **changes: Any,
) -> Program:
    """Return a program that extracts `wide`, `extracted` elements of a stack, and runs one action behind the other.

    `arguments` are value and width of what every action gets.
    """
    base = _base()
    elements = tuple(f"stack[{index}]" for index in range(STACK_SIZE))
    headers: Mapping[str, Header] = {
        "standard_metadata": base.headers["standard_metadata"],
        "own": Header("own", METADATA, metadata=True),
        "wide": Header("wide", WIDE, metadata=False),
        "other": Header("other", WIDE, metadata=False),
        "options": Header("options", OPTIONS, metadata=False),
        "spare": Header("spare", OPTIONS, metadata=False),
        **{name: Header(name, ELEMENT, metadata=False) for name in elements},
    }
    operations = (
        Extract(HeaderRef("wide")),
        *[Extract(StackRef("stack"))] * extracted,
        Extract(HeaderRef("options"), OPTIONS_BITS),
    )
    state = ParserState("start", operations, (), (), None)
    fresh: dict[str, Any] = {
        "tables": {},
        "actions": {},
        "profiles": {},
        "counters": {},
        "registers": {},
        "meters": {},
        "digests": {},
        "value_sets": {},
        "headers": headers,
        "stacks": {"stack": HeaderStack("stack", ELEMENT, elements)},
        "unions": {},
        "union_stacks": {},
        "errors": {name: code for code, name in enumerate(CORE_ERRORS)},
        "aliases": {},
        "field_lists": {},
        "parser": Parser("parser", "start", {"start": state}),
        "ingress": chain("ingress", actions, arguments),
        "egress": Pipeline("egress", None, {}),
        "deparser": Deparser("deparser", ("wide", "other", *elements, "options", "spare")),
        "checksums": (),
    }
    return replace(base, **(fresh | changes))


def chain(name: str, actions: Sequence[Sequence[Primitive]], arguments: Sequence[tuple[int, int]] = ()) -> Pipeline:
    """Return a control that runs actions one behind the other."""
    nodes: dict[str, Node] = {}
    parameters = tuple((f"p{number}", width) for number, (_, width) in enumerate(arguments))
    for number, primitives in enumerate(actions):
        action = Action(ActionSpec(f"{name}_action_{number}", parameters), tuple(primitives))
        following = f"call_{number + 1}" if number + 1 < len(actions) else None
        values = tuple(value for value, _ in arguments)
        nodes[f"call_{number}"] = CallNode(f"call_{number}", action, values, following)
    return Pipeline(name, "call_0" if actions else None, nodes)
