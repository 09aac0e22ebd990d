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
    Column("time", TIME, Merge.BUCKET, "time; of a merged row, when its interval began"),
    Column("interval_ns", _INT, Merge.BUCKET, "interval that the row covers"),
    _count("snapshots", "rows of the finest tier merged into this one"),
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
        _key("src", _TEXT, "sending node"),
        _key("dst", _TEXT, "receiving node"),
        *_columns_of_figures(LINK_FIGURES.values()),
        Column("delay_sketch", SKETCH, Merge.SKETCH, "number of delays in each bucket"),
    ),
)

PATHS: Final = Table(
    "paths",
    (
        *_WHEN,
        *_FLOW,
        _key("switches", pa.list_(_TEXT), "the path that packets took; each path has its own row"),
        Column("delay_ns", _INT, Merge.BY_SAMPLES, "mean delay"),
        Column("delay_p50_ns", _INT, Merge.BY_SAMPLES, "median delay; merged: mean of the medians"),
        Column("delay_p99_ns", _INT, Merge.MEASURED_GREATEST, "99th percentile; merged: an upper bound"),
        Column("loss", _REAL, Merge.BY_SAMPLES, "share of packets lost, null when unknown"),
        Column("bottleneck_bps", _INT, Merge.BY_SNAPSHOTS, "unused rate on the fullest link"),
        Column("rate_bps", _INT, Merge.BY_SNAPSHOTS, "rate of the flow, null while unknown"),
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
        _count("received", "reports received"),
        _count("lost", "skipped sequence numbers, less those that arrived late"),
        _count("late", "reports received late"),
        _count("duplicate", "reports received twice"),
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
        Column("uncertainty_ns", _INT, Merge.GREATEST, "uncertainty of the offset"),
    ),
)

DROPS: Final = Table(
    "drops",
    (
        *_WHEN,
        _key("node_id", _INT, "INT node id of the switch that dropped"),
        _key("node", _TEXT, "the topology's name of the node"),
        _key("ingress_port", _INT, "null where the report does not say, as for all below"),
        _key("egress_port", _INT, "the port that it would have left through"),
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
        _key("kind", _TEXT, "subject: link, flow, reporter, job or child"),
        _key("subject", _TEXT, "which one"),
        _key("figure", _TEXT, "the figure that the rule judges"),
        _key("value", _REAL, "value of the figure"),
        _key("threshold", _REAL, "limit that it crossed"),
        _key("phase", _TEXT, "raised, acknowledged, withdrawn (an acknowledgement), or cleared"),
        _key("evidence", _EVIDENCE, "figures of the subject, oldest first"),
        _key("note_by", _TEXT, "who acknowledged it, null if nobody has"),
        _key("note", _TEXT, "in which words"),
        _key("severity", _TEXT, "warning or critical; null in rows of before version 0.3"),
    ),
    is_merged=False,
)

MOVES: Final = Table(
    "moves",
    (
        _key("time", TIME, "when"),
        _key("src_host", _TEXT, "the flow's source"),
        _key("dst_host", _TEXT, "its destination"),
        _key("protocol", _INT, "IP protocol, null, as the ports, for all traffic between the hosts"),
        _key("src_port", _INT, "source port"),
        _key("dst_port", _INT, "destination port"),
        _key("old_switches", pa.list_(_TEXT), "the path that it left"),
        _key("new_switches", pa.list_(_TEXT), "the path that it took"),
        _key("reason", _TEXT, "why, in a sentence"),
        _key("gain_ns", _INT, "by how much the new path was shorter, null where that was not the reason"),
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
    _key("name", _TEXT, "its name, null if it has none"),
    _key("node", _TEXT, "the aggregating switch"),
)

JOBS: Final = Table(
    "jobs",
    (
        *_WHEN,
        *_JOB,
        _key("is_leaf", pa.bool_(), "whether it aggregates a single rack"),
        Column("epoch", _INT, Merge.NEWEST, "membership changes, null where unknown"),
        _count("items", "items aggregated, from their item numbers"),
        Column("items_per_s", _REAL, Merge.BY_SNAPSHOTS, "items per second"),
        _count("reported", "items reported by the switch"),
        _count("repeated", "repeated contributions to them"),
        Column("cells_used", _INT, Merge.GREATEST, "maximum number of cells in use at once"),
        Column("cells", _INT, Merge.NEWEST, "cells of the job, null where unknown"),
        Column("wait_mean_ns", _INT, Merge.BY_SAMPLES, "from an item's first contribution to its last: mean"),
        Column("wait_p50_ns", _INT, Merge.BY_SAMPLES, "median; merged: mean of the medians"),
        Column("wait_p99_ns", _INT, Merge.MEASURED_GREATEST, "99th percentile; merged: an upper bound"),
        Column("wait_max_ns", _INT, Merge.MEASURED_GREATEST, "the longest"),
        Column("age_ns", _INT, Merge.LEAST, "time since the newest report"),
        _count("samples", "reported items behind the waits"),
    ),
)

JOB_CHILDREN: Final = Table(
    "job_children",
    (
        *_WHEN,
        *_JOB,
        _key("number", _INT, "the child's number in the job at this switch"),
        _key("child", _TEXT, "contributor: a host, or a switch that aggregates a rack"),
        _count("last", "reported items to which it contributed last"),
        Column("last_share", _REAL, Merge.BY_SAMPLES, "share of the items to which it contributed last"),
        Column("wait_mean_ns", _INT, Merge.BY_SAMPLES, "mean wait of those, null where there are none"),
        Column("wait_max_ns", _INT, Merge.MEASURED_GREATEST, "the longest of them"),
        Column("wait_caused_ns", _INT, Merge.BY_SAMPLES, "wait that it caused, averaged over all items"),
        _count("samples", "reported items, whichever child was last"),
    ),
)

_ALL = (LINKS, PATHS, EVENTS, MOVES, DROPS, REPORTERS, CLOCKS, COUNTERS, JOBS, JOB_CHILDREN)
TABLES: Final = {table.name: table for table in _ALL}
