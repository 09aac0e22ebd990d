"""Moves the conditions of a bound plan down to the rows that they are about, as DuckDB's optimizer would.

A bound plan is unoptimized: `FROM a, b WHERE a.x = b.x` is a filter over a cross product. DuckDB optimizes whatever SQL
it gets, but a step that runs elsewhere, or that is planned by its size, must be the one that is worth running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from controller.acceleration.running.statements.bound import GET, Node, children

FILTER: Final = "LOGICAL_FILTER"
PROJECTION: Final = "LOGICAL_PROJECTION"
CROSS: Final = "LOGICAL_CROSS_PRODUCT"
COMPARISON_JOIN: Final = "LOGICAL_COMPARISON_JOIN"
AGGREGATE: Final = "LOGICAL_AGGREGATE_AND_GROUP_BY"
_ONE_SIDED: Final = frozenset({"SEMI", "ANTI"})
_SAME_WIDTH: Final = frozenset({FILTER, "LOGICAL_ORDER_BY", "LOGICAL_LIMIT", "LOGICAL_DISTINCT"})


def pushed(plan: Node) -> Node:
    """Return a plan whose filters stand where their rows come from, and whose cross products are joins if possible.

    An operator that several others read stays one, unless a filter of one of them moves into it.
    """
    known: dict[int, Node] = {}

    def of(node: Node) -> Node:
        if id(node) not in known:
            known[id(node)] = _pushed_here(_with_children(node, [of(child) for child in children(node)]))
        return known[id(node)]

    return of(plan)


def _pushed_here(plan: Node) -> Node:
    if plan["type"] != FILTER or plan.get("projection_map"):
        return plan
    (child,) = children(plan)
    left = []
    for condition in _conjuncts(plan["expressions"]):
        deeper = _below(child, condition)
        if deeper is None:
            left.append(condition)
        else:
            child = deeper
    return _filter(child, left) if left else child


def width(node: Node) -> int:
    """Return the number of an operator's columns."""
    inputs = children(node)
    match node["type"]:
        case kind if kind == GET:
            return len(node.get("projection_ids") or node.get("column_indexes", []))
        case kind if kind == PROJECTION:
            return len(node["expressions"])
        case kind if kind == AGGREGATE:
            return len(node.get("groups", [])) + len(node.get("expressions", []))
        case kind if kind in _SAME_WIDTH:
            return width(inputs[0])
        case "LOGICAL_UNION":
            return int(node["column_count"])
        case _ if node.get("join_type") in _ONE_SIDED:
            return width(inputs[0])
        case _ if node.get("join_type") == "MARK":
            return width(inputs[0]) + 1
        case _:
            return sum(map(width, inputs))


def references(expression: object) -> Iterator[int]:
    """Yield the columns that an expression reads."""
    if isinstance(expression, Mapping):
        if expression.get("expression_class") == "BOUND_REF":
            yield int(expression["index"])
        for part in expression.values():
            yield from references(part)
    elif isinstance(expression, list):
        for part in expression:
            yield from references(part)


def is_reference(expression: Node) -> bool:
    """Return whether an expression is a column as it is."""
    return bool(expression["expression_class"] == "BOUND_REF")


def _below(node: Node, condition: Node) -> Node | None:
    """Return an operator whose rows satisfy a condition on its columns, None if the condition has to stay above it."""
    kind, inputs = node["type"], children(node)
    if kind == FILTER and not node.get("projection_map"):
        (child,) = inputs
        return _with_children(node, [deeper]) if (deeper := _below(child, condition)) else _filter(
            child, [*node["expressions"], condition]
        )  # fmt: skip
    if kind == PROJECTION:
        expressions = node["expressions"]
        if not all(is_reference(expressions[index]) for index in references(condition)):
            return None
        return _with_children(node, [_on(inputs[0], _renumbered(condition, lambda at: int(expressions[at]["index"])))])
    if kind == CROSS:
        return _into_join(node, condition, moves_right=True, joins=True)
    if kind == COMPARISON_JOIN and not (node.get("left_projection_map") or node.get("right_projection_map")):
        is_inner = node["join_type"] == "INNER"
        if is_inner or node["join_type"] in {"LEFT", "SEMI", "ANTI", "MARK"}:
            return _into_join(node, condition, moves_right=is_inner, joins=is_inner)
    return None


def _into_join(node: Node, condition: Node, *, moves_right: bool, joins: bool) -> Node | None:
    left, right = children(node)
    columns, many = set(references(condition)), width(left)
    if columns and max(columns) < many:
        return _with_children(node, [_on(left, condition), right])
    if columns and min(columns) >= many:
        if not moves_right:
            return None
        return _with_children(node, [left, _on(right, _renumbered(condition, lambda at: at - many))])
    pair = _equality(condition, many) if joins else None
    if pair is None:
        return None
    if node["type"] == COMPARISON_JOIN:
        return node | {"conditions": [*node["conditions"], pair]}
    return {"type": COMPARISON_JOIN, "join_type": "INNER", "conditions": [pair], "children": [left, right]}


def _equality(condition: Node, many: int) -> Node | None:
    """Return a join's condition for an equation between columns of its sides, None for any other condition."""
    if condition["type"] != "COMPARE_EQUAL" or condition["expression_class"] != "BOUND_FUNCTION":
        return None
    one, other = condition["children"]
    sides = [{at >= many for at in references(each)} for each in (one, other)]
    if sides == [{True}, {False}]:
        one, other = other, one
    elif sides != [{False}, {True}]:
        return None
    return {"left": one, "right": _renumbered(other, lambda at: at - many), "comparison": "COMPARE_EQUAL"}


def _on(node: Node, condition: Node) -> Node:
    return _below(node, condition) or _filter(node, [condition])


def _filter(child: Node, conditions: list[Node]) -> Node:
    return {"type": FILTER, "expressions": conditions, "children": [child]}


def _conjuncts(conditions: list[Node]) -> Iterator[Node]:
    for condition in conditions:
        if condition["type"] == "CONJUNCTION_AND":
            yield from _conjuncts(condition["children"])
        else:
            yield condition


def _renumbered(expression: Any, number: Callable[[int], int]) -> Any:  # noqa: ANN401 - a part of a JSON tree
    if isinstance(expression, Mapping):
        changed = {name: _renumbered(part, number) for name, part in expression.items()}
        if changed.get("expression_class") == "BOUND_REF":
            changed["index"] = number(changed["index"])
        return changed
    return [_renumbered(part, number) for part in expression] if isinstance(expression, list) else expression


def _with_children(node: Node, inputs: list[Node]) -> Node:
    return node | {"children": inputs} if inputs else node
