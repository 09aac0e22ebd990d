"""The history's tables: every column with its type, its meaning and how several rows of it become one.

Times are UTC. A row of the finest tier is what the snapshot said at `time`; a merged row stands for the `interval_ns`
from `time` on. Tables of counts hold increases, so that sums over any span are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from collectors.history.sketches import SKETCH, sketch_array


class Merge(Enum):
    """How the values of rows that become one row are merged."""

    KEY = "equal in all of them"
    BUCKET = "the merged interval's begin or length"
    SUM = "their sum"
    LEAST = "the least"
    GREATEST = "the greatest"
    MEASURED_GREATEST = "the greatest of rows with samples, of all rows where none has any"
    NEWEST = "the newest of rows with samples, of all rows where none has any"
    SKETCH = "all that the sketches have taken"
    MEDIAN = "the median of the merged sketch; the mean by samples where a row with samples has none"
    PERCENTILE_99 = "the 99th percentile of the merged sketch; the greatest where a row with samples has none"
    BY_SAMPLES = "their mean by samples; by snapshots where there are none"
    BY_SNAPSHOTS = "their mean by snapshots"


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
        """Whether rows tell how many samples are behind them."""
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

_WHEN = (
    Column("time", TIME, Merge.BUCKET, "when; of a merged row, when its interval began"),
    Column("interval_ns", _INT, Merge.BUCKET, "what the row stands for"),
    Column("snapshots", _INT, Merge.SUM, "rows of the finest tier that became this one"),
)

_FLOW = (
    Column("src", _TEXT, Merge.KEY, "source address"),
    Column("dst", _TEXT, Merge.KEY, "destination address"),
    Column("src_host", _TEXT, Merge.KEY, "the topology's name of the source, null if it has none"),
    Column("dst_host", _TEXT, Merge.KEY, "the topology's name of the destination"),
    Column("protocol", _INT, Merge.KEY, "IP protocol"),
    Column("src_port", _INT, Merge.KEY, "source port"),
    Column("dst_port", _INT, Merge.KEY, "destination port"),
)

LINKS: Final = Table(
    "links",
    (
        *_WHEN,
        Column("src", _TEXT, Merge.KEY, "node that sends"),
        Column("dst", _TEXT, Merge.KEY, "node that receives"),
        Column("rate_bps", _INT, Merge.GREATEST, "the link's rate"),
        Column("delay_mean_ns", _INT, Merge.BY_SAMPLES, "mean delay"),
        Column("delay_p50_ns", _INT, Merge.MEDIAN, "median delay"),
        Column("delay_p99_ns", _INT, Merge.PERCENTILE_99, "99th percentile of the delay"),
        Column("delay_ewma_ns", _INT, Merge.NEWEST, "exponentially weighted mean delay"),
        Column("delay_max_ns", _INT, Merge.MEASURED_GREATEST, "greatest delay"),
        Column("delay_uncertainty_ns", _INT, Merge.GREATEST, "by how much the delays may all be off"),
        Column("queue_occupancy_frames", _REAL, Merge.BY_SNAPSHOTS, "mean queue"),
        Column("queue_max_frames", _REAL, Merge.GREATEST, "greatest queue_occupancy_frames"),
        Column("buffer_occupancy_frames", _REAL, Merge.BY_SNAPSHOTS, "mean buffer of the sending switch"),
        Column("utilisation", _REAL, Merge.BY_SNAPSHOTS, "share of the rate in use"),
        Column("utilisation_max", _REAL, Merge.GREATEST, "greatest utilisation"),
        Column("available_bps", _INT, Merge.BY_SNAPSHOTS, "rate not in use"),
        Column("loss", _REAL, Merge.BY_SAMPLES, "share of frames lost, null when unknown"),
        Column("loss_source", _TEXT, Merge.NEWEST, "where the loss is known from"),
        Column("age_ns", _INT, Merge.LEAST, "since the newest sample, null if there never was one"),
        Column("samples", _INT, Merge.SUM, "delays behind the figures"),
        Column("source", _TEXT, Merge.NEWEST, "where the delay is known from"),
        Column("delay_sketch", SKETCH, Merge.SKETCH, "how many delays fell into which bucket"),
    ),
)

PATHS: Final = Table(
    "paths",
    (
        *_WHEN,
        *_FLOW,
        Column("switches", pa.list_(_TEXT), Merge.KEY, "the way that packets took; another way is another row"),
        Column("delay_ns", _INT, Merge.BY_SAMPLES, "mean delay"),
        Column("delay_p50_ns", _INT, Merge.BY_SAMPLES, "median delay; merged: mean of the medians"),
        Column("delay_p99_ns", _INT, Merge.MEASURED_GREATEST, "99th percentile; merged: an upper bound"),
        Column("loss", _REAL, Merge.BY_SAMPLES, "share of packets lost, null when unknown"),
        Column("bottleneck_bps", _INT, Merge.BY_SNAPSHOTS, "rate not in use on the fullest link"),
        Column("rate_bps", _INT, Merge.BY_SNAPSHOTS, "what the flow sends, null while unknown"),
        Column("age_ns", _INT, Merge.LEAST, "since the flow's last report"),
        Column("samples", _INT, Merge.SUM, "whole packets behind the figures"),
    ),
)

REPORTERS: Final = Table(
    "reporters",
    (
        *_WHEN,
        Column("node_id", _INT, Merge.KEY, "INT node id"),
        Column("hw_id", _INT, Merge.KEY, "hardware id"),
        Column("node", _TEXT, Merge.KEY, "the topology's name of the node, null if it has none"),
        Column("received", _INT, Merge.SUM, "reports that came"),
        Column("lost", _INT, Merge.SUM, "numbers passed over, less those that came late after all"),
        Column("late", _INT, Merge.SUM, "reports that came late"),
        Column("duplicate", _INT, Merge.SUM, "reports that came twice"),
        Column("restarts", _INT, Merge.SUM, "restarts of the switch"),
    ),
)

CLOCKS: Final = Table(
    "clocks",
    (
        *_WHEN,
        Column("node_id", _INT, Merge.KEY, "INT node id"),
        Column("node", _TEXT, Merge.KEY, "the topology's name of the node"),
        Column("clock_group", _INT, Merge.KEY, "clocks of one group are comparable; its lowest node id"),
        Column("offset_ns", _INT, Merge.NEWEST, "reading, minus that of the group's reference"),
        Column("drift_ppb", _INT, Merge.NEWEST, "how fast the offset grows"),
        Column("uncertainty_ns", _INT, Merge.GREATEST, "by how much the offset may be off"),
    ),
)

DROPS: Final = Table(
    "drops",
    (
        *_WHEN,
        Column("node_id", _INT, Merge.KEY, "INT node id of the switch that dropped"),
        Column("node", _TEXT, Merge.KEY, "the topology's name of the node"),
        Column("ingress_port", _INT, Merge.KEY, "null where the report does not say, as for all below"),
        Column("egress_port", _INT, Merge.KEY, "the port that it would have left by"),
        Column("queue_id", _INT, Merge.KEY, "the queue that was full"),
        Column("reason", _TEXT, Merge.KEY, "why"),
        *_FLOW,
        Column("packets", _INT, Merge.SUM, "drops that were reported"),
    ),
)

EVENTS: Final = Table(
    "events",
    (
        Column("time", TIME, Merge.KEY, "when"),
        Column("rule", _TEXT, Merge.KEY, "the rule's name"),
        Column("kind", _TEXT, Merge.KEY, "what it is about: link, flow or reporter"),
        Column("subject", _TEXT, Merge.KEY, "which one"),
        Column("figure", _TEXT, Merge.KEY, "the figure that the rule looks at"),
        Column("value", _REAL, Merge.KEY, "what the figure was"),
        Column("threshold", _REAL, Merge.KEY, "what it crossed"),
        Column("phase", _TEXT, Merge.KEY, "raised or cleared"),
        Column(
            "evidence",
            pa.list_(pa.struct([("time", TIME), ("figure", _TEXT), ("value", _REAL)])),
            Merge.KEY,
            "figures of the subject, oldest first",
        ),
    ),
    is_merged=False,
)

COUNTERS: Final = Table(
    "counters",
    (
        *_WHEN,
        Column("name", _TEXT, Merge.KEY, "a counter of the collector"),
        Column("increase", _INT, Merge.SUM, "by how much it grew; rows without growth are left out"),
    ),
)

TABLES: Final = {table.name: table for table in (LINKS, PATHS, EVENTS, DROPS, REPORTERS, CLOCKS, COUNTERS)}
