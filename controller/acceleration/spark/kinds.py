"""Names of nodes in Spark's plans: the kind of operator of each; those that only move data; unknown ones."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

_WORD: Final = re.compile(r"[^a-z0-9]+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NUMBER: Final = re.compile(r" \(\d+\)$")


class Role(Enum):
    """Role of a node in a plan.

    COMPUTES: one of the model's operators. SCANS reads storage or a cache. MOVES passes rows on, over the network or in
    another form. FRAMES is no operator but holds others. UNKNOWN: the model has no such operator.
    """

    COMPUTES = "computes"
    SCANS = "scans"
    MOVES = "moves"
    FRAMES = "frames"
    UNKNOWN = "unknown"


COMPUTED: Final = {
    "Filter": "filter",
    "Project": "project",
    "HashAggregate": "aggregate",
    "ObjectHashAggregate": "aggregate",
    "SortAggregate": "aggregate",
    "Sort": "sort",
    "TakeOrderedAndProject": "top-n",
    "SortMergeJoin": "join",
    "BroadcastHashJoin": "join",
    "ShuffledHashJoin": "join",
    "BroadcastNestedLoopJoin": "join",
    "CartesianProduct": "join",
}
"""Operators of the catalogue by the names of Spark's."""
_MOVED: Final = {
    "Exchange": "exchange",
    "BroadcastExchange": "broadcast",
    "ReusedExchange": "exchange",
    "ColumnarToRow": "conversion",
    "RowToColumnar": "conversion",
    "Coalesce": "limit",
    "CollectLimit": "limit",
    "CollectTail": "limit",
    "GlobalLimit": "limit",
    "LocalLimit": "limit",
}
_SCANS: Final = ("Scan", "FileScan", "BatchScan", "InMemoryTableScan", "LocalTableScan", "HiveTableScan", "Range")
SUBQUERIES: Final = frozenset(
    {"Subquery", "ReusedSubquery", "SubqueryBroadcast", "SubqueryAdaptiveBroadcast", "ReusedSubqueryBroadcast"}
)
"""Plans that are run first; a node holds only their results."""
SHUFFLES: Final = frozenset({"Exchange", "BroadcastExchange"})
"""Ends of stages."""
LOGICAL: Final = frozenset({"EmptyRelation", "LogicalRelation"})
"""Nodes that a plan leaves behind where it found no rows: not run, above stages that were."""
_FRAMES: Final = SUBQUERIES | {
    *("AdaptiveSparkPlan", "InputAdapter", "ResultQueryStage", "ShuffleQueryStage", "BroadcastQueryStage"),
    *("TableCacheQueryStage", "LogicalQueryStage", "WholeStageCodegen", "AQEShuffleRead", "CustomShuffleReader"),
    *("CommandResult", "Union", "OutputAdapter", "EmptyRelation", "LogicalRelation", "ResultQueryStage"),
}


def base_of(name: str) -> str:
    """Return a node's name without its number: `WholeStageCodegen (3)` is `WholeStageCodegen`."""
    return _NUMBER.sub("", name.strip())


def role_of(name: str) -> tuple[Role, str]:
    """Return a node's role and its kind of operator, '' for what is none."""
    base = base_of(name)
    first = base.partition(" ")[0]
    if base in COMPUTED:
        return Role.COMPUTES, COMPUTED[base]
    if base in _FRAMES:
        return Role.FRAMES, ""
    if base in _MOVED:
        return Role.MOVES, _MOVED[base]
    if first in _SCANS:
        return Role.SCANS, "table-scan"
    return Role.UNKNOWN, f"spark-{_word(first)}"


def shown_name(name: str) -> str:
    """Return a node's name for people: of a write or a command only its first word or two, without paths."""
    words = base_of(name).split()
    if words and role_of(name)[0] is Role.SCANS:
        return " ".join(words[:2])[:40]
    return " ".join(words[:2] if words[:1] == ["Execute"] else words[:1])[:60] or "unnamed"


def _word(name: str) -> str:
    return _WORD.sub("-", _HUMP.sub("-", name).lower()).strip("-")[:50] or "unnamed"
