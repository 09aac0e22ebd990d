"""Steps computed by torch, on a GPU or a processor: operators of bound plans over numbers without NULLs.

What torch would compute otherwise than DuckDB is refused with `CannotComputeError`, and DuckDB runs that step: NULLs,
NaN where values are compared, integers that may overflow, types other than numbers in what is computed. Other columns
stay in the host's memory, and only follow which rows are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import torch

from controller.acceleration.running.errors import RunError
from controller.acceleration.running.statements.bound import Node, children
from controller.acceleration.running.statements.literals import type_of
from controller.acceleration.running.statements.rendering import aggregate_name, limits
from controller.acceleration.running.steps.pushing import AGGREGATE, COMPARISON_JOIN, FILTER, PROJECTION

_TYPES: Final = {
    "TINYINT": torch.int8,
    "SMALLINT": torch.int16,
    "INTEGER": torch.int32,
    "BIGINT": torch.int64,
    "FLOAT": torch.float32,
    "DOUBLE": torch.float64,
    "BOOLEAN": torch.bool,
}
_MOST: Final = (1 << 63) - 1
_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "COMPARE_EQUAL": torch.eq,
    "COMPARE_NOTEQUAL": torch.ne,
    "COMPARE_LESSTHAN": torch.lt,
    "COMPARE_GREATERTHAN": torch.gt,
    "COMPARE_LESSTHANOREQUALTO": torch.le,
    "COMPARE_GREATERTHANOREQUALTO": torch.ge,
}


class CannotComputeError(RunError):
    """A step that torch would not compute as DuckDB does."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows of an operator: each column a tensor on the device, or an Arrow array in the host's memory."""

    columns: tuple[Any, ...]
    rows: int

    def tensor(self, index: int) -> torch.Tensor:
        """Return a column that is computed with; raise CannotComputeError for one that is no number, or has NULLs."""
        column = self.columns[index]
        if not isinstance(column, torch.Tensor):
            kind = f"{column.type} with NULLs" if column.null_count and _is_number(column.type) else str(column.type)
            raise CannotComputeError(f"a column is {kind}")
        return column

    def taken(self, at: torch.Tensor) -> Columns:
        """Return the rows at these positions."""
        held = pa.array(at.cpu().numpy())
        taken = [
            column[at] if isinstance(column, torch.Tensor) else column.take(held) for column in self.columns
        ]  # fmt: skip
        return Columns(tuple(taken), len(at))


def columns_of(table: pa.Table, device: str) -> Columns:
    """Move a table to a device."""
    return Columns(tuple(_moved(column.combine_chunks(), device) for column in table.columns), table.num_rows)


def table_of(columns: Columns) -> pa.Table:
    """Return rows as a table with the columns c0, c1, ..."""
    arrays = [
        pa.array(column.cpu().numpy()) if isinstance(column, torch.Tensor) else column for column in columns.columns
    ]
    return pa.table({f"c{index}": array for index, array in enumerate(arrays)})


def computed(node: Node, inputs: Sequence[Columns], device: str) -> Columns:
    """Return an operator's rows from those that it reads; raise CannotComputeError."""
    match node["type"]:
        case kind if kind == FILTER:
            return _filtered(node, inputs[0], device)
        case kind if kind == PROJECTION:
            return _projected(node, inputs[0], device)
        case kind if kind == COMPARISON_JOIN:
            return _joined(node, inputs[0], inputs[1], device)
        case kind if kind == AGGREGATE:
            return _grouped(node, inputs[0], device)
        case "LOGICAL_ORDER_BY":
            return _sorted(node, inputs[0], device)
        case "LOGICAL_LIMIT":
            limit, offset = limits(node)
            order = _sorted(children(node)[0], inputs[0], device)
            end = order.rows if limit is None else min(offset + limit, order.rows)
            at = torch.arange(min(offset, end), end, device=device)
            return order.taken(at)
        case other:
            raise CannotComputeError(f"{other.removeprefix('LOGICAL_').replace('_', ' ')} runs in DuckDB only")


# operators


def _filtered(node: Node, data: Columns, device: str) -> Columns:
    kept = torch.ones(data.rows, dtype=torch.bool, device=device)
    for condition in node["expressions"]:
        kept &= _value(condition, data, device)
    return data.taken(torch.nonzero(kept).flatten())


def _projected(node: Node, data: Columns, device: str) -> Columns:
    columns = [
        data.columns[each["index"]] if each["expression_class"] == "BOUND_REF" else _column(each, data, device)
        for each in node["expressions"]
    ]
    return Columns(tuple(columns), data.rows)


def _joined(node: Node, left: Columns, right: Columns, device: str) -> Columns:
    """Join by one equation, by a search in the other side's sorted keys."""
    conditions = node["conditions"]
    if node["join_type"] != "INNER" or len(conditions) != 1 or conditions[0]["comparison"] != "COMPARE_EQUAL":
        raise CannotComputeError("only inner joins by one equation run here")
    if node.get("left_projection_map") or node.get("right_projection_map"):
        raise CannotComputeError("this join drops columns")
    own = _whole(_column(conditions[0]["left"], left, device))
    other = _whole(_column(conditions[0]["right"], right, device))
    keys, order = torch.sort(other, stable=True)
    first = torch.searchsorted(keys, own, side="left")
    counts = torch.searchsorted(keys, own, side="right") - first
    at = torch.repeat_interleave(torch.arange(len(counts), device=device), counts)
    inside = torch.arange(len(at), device=device) - (torch.cumsum(counts, 0) - counts)[at]
    partners = order[first[at] + inside]
    return Columns((*left.taken(at).columns, *right.taken(partners).columns), len(at))


def _grouped(node: Node, data: Columns, device: str) -> Columns:
    if len(node.get("grouping_sets", [])) > 1 or node.get("grouping_functions"):
        raise CannotComputeError("grouping sets run in DuckDB only")
    groups = [_whole(_column(each, data, device)) for each in node.get("groups", [])]
    if not groups:
        if not data.rows:
            raise CannotComputeError("aggregates over no rows may be NULL")
        places, number, keys = torch.zeros(data.rows, dtype=torch.int64, device=device), 1, []
    elif len(groups) == 1:
        unique, places = torch.unique(groups[0], return_inverse=True)
        number, keys = len(unique), [unique]
    else:
        table = torch.stack([key.long() for key in groups], dim=1)
        unique, places = torch.unique(table, dim=0, return_inverse=True)
        number = len(unique)
        keys = [unique[:, index].to(key.dtype) for index, key in enumerate(groups)]
    values = [_aggregate(each, data, places, number, device) for each in node.get("expressions", [])]
    return Columns((*keys, *values), number)


def _aggregate(node: Node, data: Columns, places: torch.Tensor, number: int, device: str) -> torch.Tensor:
    name, arguments = aggregate_name(node), node.get("children", [])
    if node.get("filter") or node["aggregate_type"] == "DISTINCT" or node.get("order_bys"):
        raise CannotComputeError(f"{name} with FILTER, DISTINCT or an order runs in DuckDB only")
    counts = torch.bincount(places, minlength=number)
    if name in {"count", "count_star"}:
        for each in arguments:
            _column(each, data, device)  # without NULLs, so that all rows count
        return counts
    if name not in {"sum", "min", "max", "avg"} or len(arguments) != 1:
        raise CannotComputeError(f"{name} runs in DuckDB only")
    values = _comparable(_column(arguments[0], data, device))
    if values.dtype is torch.bool:
        raise CannotComputeError(f"{name} of truth values runs in DuckDB only")
    if name in {"min", "max"}:
        start = torch.zeros(number, dtype=values.dtype, device=device)
        return start.scatter_reduce(0, places, values, "a" + name, include_self=False)
    # DuckDB adds floating-point numbers as doubles.
    wide = values.double() if values.is_floating_point() else values.long()
    if not wide.is_floating_point():
        _check_range(int(wide.abs().max()) * len(wide) if len(wide) else 0)
    total = torch.zeros(number, dtype=wide.dtype, device=device).index_add_(0, places, wide)
    return total if name == "sum" else total.double() / counts


def _sorted(node: Node, data: Columns, device: str) -> Columns:
    if node.get("projection_map"):
        raise CannotComputeError("this sort drops columns")
    at = torch.arange(data.rows, device=device)
    # Stable sorts from the last key to the first; without NULLs their place does not matter.
    for order in reversed(node["orders"]):
        key = _comparable(_column(order["expression"], data, device))[at]
        key = key.byte() if key.dtype is torch.bool else key
        at = at[torch.sort(key, stable=True, descending=order["type"] == "DESCENDING").indices]
    return data.taken(at)


# expressions


def _column(node: Node, data: Columns, device: str) -> torch.Tensor:
    """Return an expression's values, one a row."""
    value = _value(node, data, device)
    if isinstance(value, torch.Tensor) and value.dim():
        return value
    return torch.full((data.rows,), value, dtype=_type(type_of(node)), device=device)


def _value(node: Node, data: Columns, device: str) -> Any:  # noqa: ANN401 - a tensor, or a constant for all rows
    match node["expression_class"]:
        case "BOUND_REF":
            return data.tensor(node["index"])
        case "BOUND_CONSTANT":
            return _constant(node)
        case "BOUND_CONJUNCTION":
            return _conjunction(node, data, device)
        case "BOUND_FUNCTION":
            return _function(node, data, device)
        case "BOUND_OPERATOR" if node["type"] == "OPERATOR_NOT":
            return ~_column(node["children"][0], data, device)
        case "BOUND_OPERATOR" if node["type"] in {"COMPARE_IN", "COMPARE_NOT_IN"}:
            return _member(node, data, device)
        case _:
            raise CannotComputeError(f"{node['type'].replace('_', ' ')} runs in DuckDB only")


def _member(node: Node, data: Columns, device: str) -> torch.Tensor:
    first, *others = node["children"]
    value = _comparable(_column(first, data, device))
    found = torch.zeros(data.rows, dtype=torch.bool, device=device)
    for other in others:
        found |= value == _column(other, data, device)
    return ~found if node["type"] == "COMPARE_NOT_IN" else found


def _constant(node: Node) -> Any:  # noqa: ANN401 - a number or a truth value
    kind, value = type_of(node)["id"], node["value"]
    if kind not in _TYPES or value["is_null"] or isinstance(value["value"], str):
        raise CannotComputeError(f"a constant of type {kind} runs in DuckDB only")
    return value["value"]


def _conjunction(node: Node, data: Columns, device: str) -> torch.Tensor:
    first, *others = (_column(each, data, device) for each in node["children"])
    for other in others:
        first = first & other if node["type"] == "CONJUNCTION_AND" else first | other
    return first


def _function(node: Node, data: Columns, device: str) -> torch.Tensor:
    arguments = [_column(each, data, device) for each in node["children"]]
    if node["type"] in _COMPARISONS:
        compared: torch.Tensor = _COMPARISONS[node["type"]](*map(_comparable, arguments))
        return compared
    kind = _type(type_of(node))
    if node["type"] == "OPERATOR_CAST":
        return _cast(node, arguments[0], kind)
    name = node["qname"]["path"][-1]
    if node["type"] != "BOUND_FUNCTION" or name not in {"+", "-", "*"} or len(arguments) != 2:
        raise CannotComputeError(f"function {name} runs in DuckDB only")
    left, right = arguments
    if not kind.is_floating_point:
        sizes = [int(each.long().abs().max()) if len(each) else 0 for each in arguments]
        _check_range(sizes[0] * sizes[1] if name == "*" else sum(sizes), kind)
        left, right = left.long(), right.long()
    result = left * right if name == "*" else left + right if name == "+" else left - right
    return result.to(kind)


def _cast(node: Node, value: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """Return a value in a wider type; DuckDB checks and rounds where it is narrower."""
    if node["function_data"]["try_cast"] or value.dtype is torch.bool or kind is torch.bool:
        raise CannotComputeError("this cast runs in DuckDB only")
    is_wider = kind.is_floating_point or not value.dtype.is_floating_point
    is_exact = torch.finfo(kind).bits >= 64 if kind.is_floating_point else kind.itemsize >= value.dtype.itemsize
    if not (is_wider and is_exact) and value.dtype is not kind:
        raise CannotComputeError("a cast to a narrower type runs in DuckDB only")
    return value.to(kind)


def _type(kind: Node) -> torch.dtype:
    if kind["id"] not in _TYPES:
        raise CannotComputeError(f"values of type {kind['id']} run in DuckDB only")
    return _TYPES[kind["id"]]


def _comparable(values: torch.Tensor) -> torch.Tensor:
    """Return values that torch compares as DuckDB does, in which NaN is equal to itself and the greatest."""
    if values.is_floating_point() and bool(torch.isnan(values).any()):
        raise CannotComputeError("a column has NaN")
    return values


def _whole(values: torch.Tensor) -> torch.Tensor:
    if values.is_floating_point() or values.dtype is torch.bool:
        raise CannotComputeError("only whole numbers are joined and grouped by here")
    return values.long()


def _check_range(most: int, kind: torch.dtype = torch.int64) -> None:
    if most > min(_MOST, torch.iinfo(kind).max):
        raise CannotComputeError("whole numbers may exceed their type")


def _moved(column: pa.Array, device: str) -> Any:  # noqa: ANN401 - a tensor, or what stays
    if column.null_count or not _is_number(column.type):
        return column
    values = column.to_numpy(zero_copy_only=False)
    return torch.from_numpy(values if values.flags.writeable else values.copy()).to(device)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))
