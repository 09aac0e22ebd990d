"""Tables of the history: every column with its type, its meaning and how several rows of it become one.

Times are UTC. A row of the finest tier is the state of the snapshot at `time`; a merged row covers the `interval_ns`
from `time` on. Tables of counts hold increases, so that sums over any span are correct.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from collectors.figures import DeclaredFigure, Merge
from collectors.history.sketches import SKETCH, sketch_array
from collectors.values import LINK_FIGURES


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    kind: pa.DataType
    merge: Merge
    meaning: str


@dataclass(frozen=True)
class Table:
    """A table and view of the history; `is_merged` says whether its rows become coarser with age."""

    name: str
    columns: tuple[Column, ...]
    is_merged: bool = True

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns as Arrow and Parquet have them."""
        return pa.schema([(column.name, column.kind) for column in self.columns])

    @cached_property
    def has_samples(self) -> bool:
        """Return whether rows carry the number of samples behind them."""
        return any(column.name == "samples" for column in self.columns)

    def batch(self, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
        """Return rows, at least one, as a batch."""
        columns = [
            _array(values, kind) for values, kind in zip(zip(*rows, strict=True), self.schema.types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return sketch_array(values) if kind == SKETCH else pa.array(values, kind)


TIME: Final = pa.timestamp("us", "UTC")
_INT, _REAL, _TEXT = pa.int64(), pa.float64(), pa.string()
_EVIDENCE = pa.list_(pa.struct([("time", TIME), ("figure", _TEXT), ("value", _REAL)]))


def _key(name: str, kind: pa.DataType, meaning: str) -> Column:
    return Column(name, kind, Merge.KEY, meaning)


def _count(name: str, meaning: str) -> Column:
    return Column(name, _INT, Merge.SUM, meaning)


_WHEN = (
    Column("time", TIME, Merge.BUCKET, "when; of a merged row, when its interval began"),
    Column("interval_ns", _INT, Merge.BUCKET, "what the row stands for"),
    _count("snapshots", "rows of the finest tier that became this one"),
)

_FLOW = (
    _key("src", _TEXT, "source address"),
    _key("dst", _TEXT, "destination address"),
    _key("src_host", _TEXT, "the topology's name of the source, null if it has none"),
    _key("dst_host", _TEXT, "the topology's name of the destination"),
    _key("protocol", _INT, "IP protocol"),
    _key("src_port", _INT, "source port"),
    _key("dst_port", _INT, "destination port"),
)


def _columns_of_figures(figures: Iterable[DeclaredFigure]) -> Iterator[Column]:
    """Yield the columns of figures, in the order of `figure_values`."""
    kinds = {int: _INT, float: _REAL}
    for figure in figures:
        if figure.uses.merge is not None:
            kind = kinds.get(figure.kind, _TEXT)
            unknown = ", null while unknown" if figure.is_optional else ""
            yield Column(figure.name, kind, figure.uses.merge, figure.uses.meaning + unknown)
            if figure.uses.greatest:
                yield Column(figure.uses.greatest, kind, Merge.GREATEST, f"greatest {figure.name}")


LINKS: Final = Table(
    "links",
    (
        *_WHEN,
        _key("src", _TEXT, "node that sends"),
        _key("dst", _TEXT, "node that receives"),
        *_columns_of_figures(LINK_FIGURES.values()),
        Column("delay_sketch", SKETCH, Merge.SKETCH, "how many delays fell into which bucket"),
    ),
)

PATHS: Final = Table(
    "paths",
    (
        *_WHEN,
        *_FLOW,
        _key("switches", pa.list_(_TEXT), "the way that packets took; another way is another row"),
        Column("delay_ns", _INT, Merge.BY_SAMPLES, "mean delay"),
        Column("delay_p50_ns", _INT, Merge.BY_SAMPLES, "median delay; merged: mean of the medians"),
        Column("delay_p99_ns", _INT, Merge.MEASURED_GREATEST, "99th percentile; merged: an upper bound"),
        Column("loss", _REAL, Merge.BY_SAMPLES, "share of packets lost, null when unknown"),
        Column("bottleneck_bps", _INT, Merge.BY_SNAPSHOTS, "rate not in use on the fullest link"),
        Column("rate_bps", _INT, Merge.BY_SNAPSHOTS, "what the flow sends, null while unknown"),
        Column("age_ns", _INT, Merge.LEAST, "since the flow's last report"),
        _count("samples", "whole packets behind the figures"),
    ),
)

REPORTERS: Final = Table(
    "reporters",
    (
        *_WHEN,
        _key("node_id", _INT, "INT node id"),
        _key("hw_id", _INT, "hardware id"),
        _key("node", _TEXT, "the topology's name of the node, null if it has none"),
        _count("received", "reports that came"),
        _count("lost", "numbers passed over, less those that came late after all"),
        _count("late", "reports that came late"),
        _count("duplicate", "reports that came twice"),
        _count("restarts", "restarts of the switch"),
    ),
)

CLOCKS: Final = Table(
    "clocks",
    (
        *_WHEN,
        _key("node_id", _INT, "INT node id"),
        _key("node", _TEXT, "the topology's name of the node"),
        _key("clock_group", _INT, "clocks of one group are comparable; its lowest node id"),
        Column("offset_ns", _INT, Merge.NEWEST, "reading, minus that of the group's reference"),
        Column("drift_ppb", _INT, Merge.NEWEST, "how fast the offset grows"),
        Column("uncertainty_ns", _INT, Merge.GREATEST, "by how much the offset may be off"),
    ),
)

DROPS: Final = Table(
    "drops",
    (
        *_WHEN,
        _key("node_id", _INT, "INT node id of the switch that dropped"),
        _key("node", _TEXT, "the topology's name of the node"),
        _key("ingress_port", _INT, "null where the report does not say, as for all below"),
        _key("egress_port", _INT, "the port that it would have left by"),
        _key("queue_id", _INT, "the queue that was full"),
        _key("reason", _TEXT, "why"),
        *_FLOW,
        _count("packets", "drops that were reported"),
    ),
)

EVENTS: Final = Table(
    "events",
    (
        _key("time", TIME, "when"),
        _key("rule", _TEXT, "the rule's name"),
        _key("kind", _TEXT, "what it is about: link, flow, reporter, job or child"),
        _key("subject", _TEXT, "which one"),
        _key("figure", _TEXT, "the figure that the rule looks at"),
        _key("value", _REAL, "what the figure was"),
        _key("threshold", _REAL, "what it crossed"),
        _key("phase", _TEXT, "raised or cleared"),
        _key("evidence", _EVIDENCE, "figures of the subject, oldest first"),
    ),
    is_merged=False,
)

COUNTERS: Final = Table(
    "counters",
    (
        *_WHEN,
        _key("name", _TEXT, "a counter of the collector"),
        _count("increase", "by how much it grew; rows without growth are left out"),
    ),
)

_JOB = (
    _key("job", _INT, "the job's number"),
    _key("name", _TEXT, "its name, null where none was given"),
    _key("node", _TEXT, "the switch that adds up"),
)

JOBS: Final = Table(
    "jobs",
    (
        *_WHEN,
        *_JOB,
        _key("is_leaf", pa.bool_(), "whether what it adds up is one rack's"),
        Column("epoch", _INT, Merge.NEWEST, "changes of who is a member, null where it is not known"),
        _count("items", "items added up, by their numbers"),
        Column("items_per_s", _REAL, Merge.BY_SNAPSHOTS, "items a second"),
        _count("reported", "items that the switch reported"),
        _count("repeated", "contributions to them that had come before"),
        Column("cells_used", _INT, Merge.GREATEST, "the most cells in use at once"),
        Column("cells", _INT, Merge.NEWEST, "cells that the job has, null where it is not known"),
        Column("wait_mean_ns", _INT, Merge.BY_SAMPLES, "from an item's first contribution to its last: mean"),
        Column("wait_p50_ns", _INT, Merge.BY_SAMPLES, "median; merged: mean of the medians"),
        Column("wait_p99_ns", _INT, Merge.MEASURED_GREATEST, "99th percentile; merged: an upper bound"),
        Column("wait_max_ns", _INT, Merge.MEASURED_GREATEST, "the longest"),
        Column("age_ns", _INT, Merge.LEAST, "since the newest report"),
        _count("samples", "reported items behind the waits"),
    ),
)

JOB_CHILDREN: Final = Table(
    "job_children",
    (
        *_WHEN,
        *_JOB,
        _key("number", _INT, "the child's number in the job at this switch"),
        _key("child", _TEXT, "who contributes: a host, or a switch that adds up a rack"),
        _count("last", "reported items that it was the last of"),
        Column("last_share", _REAL, Merge.BY_SAMPLES, "share of the items that it was the last of"),
        Column("wait_mean_ns", _INT, Merge.BY_SAMPLES, "mean wait of those, null where there are none"),
        Column("wait_max_ns", _INT, Merge.MEASURED_GREATEST, "the longest of them"),
        Column("wait_caused_ns", _INT, Merge.BY_SAMPLES, "what it made an item wait, on the average of all"),
        _count("samples", "reported items, whichever child was last"),
    ),
)

_ALL = (LINKS, PATHS, EVENTS, DROPS, REPORTERS, CLOCKS, COUNTERS, JOBS, JOB_CHILDREN)
TABLES: Final = {table.name: table for table in _ALL}
