"""Merged rows against plain Python that adds up the same rows, and merging in steps against merging at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from collectors.figures import Merge
from collectors.history.downsample import statement
from collectors.history.rows import Observation
from collectors.history.schema import LINKS, PATHS, REPORTERS, TABLES, Column, Table
from collectors.history.views import connect, define_view
from collectors.statistics.sketch import Sketch, bucket_of
from collectors.values import DelaySource, LinkState
from dataplane.topology.values import LinkKey
from tests.collectors.history.samples import FLOW, LINK, NOON_S, S_NS, link, maker, path, snapshot
from tests.collectors.history.test_sketches import quantile_of

Rows = list[dict[str, Any]]
EPOCH = datetime.fromtimestamp(0, UTC)


database = cache(connect)


def merged(table: Table, rows: Rows, interval_ns: int) -> Rows:
    connection = database()
    define_view(connection, table, [], pa.Table.from_pylist(rows, table.schema))
    try:
        result = connection.sql(statement(table, interval_ns)).to_arrow_table().cast(table.schema)
    finally:
        connection.execute(f"DROP VIEW {table.name}")
    return sorted(result.to_pylist(), key=key_of(table))


def key_of(table: Table) -> Any:
    keys = [column.name for column in table.columns if column.merge is Merge.KEY]
    return lambda row: (row["time"], *(repr(row[key]) for key in keys))


def reference(table: Table, rows: Rows, interval_ns: int) -> Rows:
    """Merge rows as `Merge` specifies, one at a time."""

    def bucket(row: Mapping[str, Any]) -> datetime:
        passed_us = round((row["time"] - EPOCH).total_seconds() * 1e6)
        step_us = interval_ns // 1000
        return datetime.fromtimestamp(passed_us // step_us * step_us / 1e6, UTC)

    placed = sorted(({**row, "time": bucket(row), "_at": row["time"]} for row in rows), key=key_of(table))
    return [reference_row(table, list(group), interval_ns) for _, group in groupby(placed, key_of(table))]


def reference_row(table: Table, rows: Rows, interval_ns: int) -> dict[str, Any]:
    row = {column.name: reference_value(column, rows) for column in table.columns}
    return {**row, "time": rows[0]["time"], "interval_ns": interval_ns}


def reference_value(column: Column, rows: Rows) -> Any:
    rows = sorted(rows, key=lambda row: row["_at"])
    present = [row for row in rows if row[column.name] is not None]
    measured = [row for row in present if row.get("samples", 1)] or present
    if not present:
        return None
    match column.merge:
        case Merge.KEY | Merge.BUCKET:
            return present[0][column.name]
        case Merge.SUM:
            return sum(row[column.name] for row in present)
        case Merge.LEAST:
            return min(row[column.name] for row in present)
        case Merge.GREATEST:
            return max(row[column.name] for row in present)
        case Merge.MEASURED_GREATEST:
            return max(row[column.name] for row in measured)
        case Merge.NEWEST:
            return measured[-1][column.name]
        case Merge.BY_SAMPLES:
            is_measured = sum(row["samples"] for row in present) > 0
            return mean(column, present, "samples" if is_measured else "snapshots")
        case Merge.BY_SNAPSHOTS:
            return mean(column, present, "snapshots")
        case _:
            return reference_of_sketch(column, rows, present, measured)


def reference_of_sketch(column: Column, rows: Rows, present: Rows, measured: Rows) -> Any:
    sketch = sketch_of(rows)
    if column.merge is Merge.SKETCH:
        return [{"bucket": bucket, "count": count} for bucket, count in sorted(sketch.buckets.items())]
    is_median = column.merge is Merge.MEDIAN
    if sketch.count and all(row["delay_sketch"] is not None for row in rows if row["samples"]):
        return min(quantile_of(sketch, 0.5 if is_median else 0.99) or 0, sketch.greatest)
    if not is_median:
        return max(row[column.name] for row in measured)
    return mean(column, present, "samples" if any(row["samples"] for row in present) else "snapshots")


def sketch_of(rows: Rows) -> Sketch:
    """Return what the rows' sketches have taken together."""
    sketch = Sketch(greatest=max(row["delay_max_ns"] for row in [row for row in rows if row["samples"]] or rows))
    for entry in chain.from_iterable(row["delay_sketch"] or () for row in rows):
        sketch.buckets[entry["bucket"]] += entry["count"]
        sketch.count += entry["count"]
    return sketch


def mean(column: Column, rows: Rows, weight: str) -> float:
    average: float = sum(row[column.name] * row[weight] for row in rows) / sum(row[weight] for row in rows)
    return round(average) if pa.types.is_integer(column.kind) else average


def close(rows: Rows, other: Rows) -> bool:
    """Return whether rows are equal, numbers to within rounding."""
    return len(rows) == len(other) and all(
        ours.keys() == theirs.keys()
        and all(value == theirs[name] or abs(value - theirs[name]) <= 1 + 1e-9 * abs(value) if isinstance(value, int)
                else value == pytest.approx(theirs[name]) if isinstance(value, float) else value == theirs[name]
                for name, value in ours.items())
        for ours, theirs in zip(rows, other, strict=True)
    )  # fmt: skip


delays = st.integers(1, 10**10)
states = st.builds(
    lambda key, delay, samples, utilisation, source, loss, age: replace(
        link(delay, samples, utilisation, source), link=key, loss=loss, age_ns=age
    ),
    st.sampled_from([LINK, LinkKey("s2", "s3")]),
    delays,
    st.integers(0, 512),
    st.floats(0, 1),
    st.sampled_from(DelaySource),
    st.none() | st.floats(0, 1),
    st.none() | st.integers(0, 10**10),
)
known_states = states.map(lambda state: replace(state, loss=state.loss or 0.5))


def observations(of: st.SearchStrategy[LinkState]) -> st.SearchStrategy[list[tuple[int, LinkState]]]:
    return st.lists(st.tuples(st.integers(0, 130), of), min_size=1, max_size=25, unique_by=lambda entry: entry[0])


def sketched(state: LinkState) -> dict[LinkKey, Sketch]:
    """Return a sketch of a link's delays: all the mean, but the greatest."""
    if not state.samples:
        return {}
    delays = Counter({bucket_of(state.delay_mean_ns): state.samples - 1})
    delays[bucket_of(state.delay_max_ns or 0)] += 1
    return {state.link: Sketch(count=state.samples, buckets=+delays)}


def rows_at(table: Table, observed: Sequence[tuple[int, LinkState]], without_sketch: int | None = None) -> Rows:
    """Return the rows of observations; those at the second `without_sketch` have none."""
    rows = maker(Path("unused"))
    collected: Rows = []
    for second, state in observed:
        seen = snapshot(
            [state],
            [replace(path(), samples=state.samples, delay_ns=state.delay_mean_ns, loss=state.loss)],
            received=second,
            lost=second % 3,
        )
        delays = {} if second == without_sketch else sketched(state)
        observation = Observation((NOON_S + second) * S_NS, seen, delays=delays)
        collected += rows.batches(observation)[table.name].to_pylist()
    return collected


MERGED = pytest.mark.parametrize("table", [LINKS, PATHS, REPORTERS], ids=lambda table: table.name)
FEW = settings(
    phases=[Phase.explicit, Phase.generate],
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@MERGED
@FEW
@given(observed=observations(states), without=st.none() | st.integers(0, 130))
def test_merged_rows_are_what_adding_up_gives(
    table: Table, observed: list[tuple[int, LinkState]], without: int | None
) -> None:
    rows = rows_at(table, observed, without)
    merged_rows = merged(table, rows, 60 * S_NS)
    assert close(merged_rows, reference(table, rows, 60 * S_NS))
    assert sum(row["snapshots"] for row in merged_rows) == len(rows)


@MERGED
@FEW
@given(observed=observations(known_states))
def test_merging_in_steps_is_merging_at_once(table: Table, observed: list[tuple[int, LinkState]]) -> None:
    rows = rows_at(table, observed)
    in_steps = merged(table, merged(table, rows, 10 * S_NS), 60 * S_NS)
    assert close(in_steps, merged(table, rows, 60 * S_NS))


def test_figures_without_samples_do_not_count_beside_those_with() -> None:
    nominal = link(5000, 0, 0.0, DelaySource.NOMINAL)
    (row,) = merged(
        LINKS, rows_at(LINKS, [(0, link(9000, 5)), (1, nominal), (2, link(1000, 15)), (3, nominal)]), 10 * S_NS
    )
    assert (row["delay_mean_ns"], row["samples"], row["source"], row["snapshots"]) == (3000, 20, "stamps", 4)
    assert (row["utilisation"], row["utilisation_max"]) == (0.125, 0.25)
    assert row["delay_p50_ns"] == pytest.approx(1000, rel=1 / 128)
    assert row["delay_p99_ns"] == row["delay_max_ns"] == 27000
    (row,) = merged(LINKS, rows_at(LINKS, [(0, nominal), (1, nominal)]), 10 * S_NS)
    assert (row["delay_mean_ns"], row["delay_p99_ns"], row["source"]) == (5000, 10000, "nominal")


def test_no_percentile_is_greater_than_the_greatest_delay() -> None:
    # 2,976 begins a bucket with its middle at 2,992.
    observed = [(0, link(992, 5)), (1, link(10**6, 0, 0.0, DelaySource.NOMINAL))]
    (row,) = merged(LINKS, rows_at(LINKS, observed), 10 * S_NS)
    assert (row["delay_p99_ns"], row["delay_max_ns"]) == (2976, 2976)


def test_another_way_is_another_row() -> None:
    rows = maker(Path("unused"))
    ways = [("s1", "s3"), ("s1", "s2", "s3"), ("s1", "s3")]
    collected: Rows = []
    for second, way in enumerate(ways):
        seen = snapshot(paths=[path(FLOW, 1000, way)])
        collected += rows.batches(Observation((NOON_S + second) * S_NS, seen))["paths"].to_pylist()
    assert {tuple(row["switches"]): row["snapshots"] for row in merged(PATHS, collected, 10 * S_NS)} == {
        ("s1", "s3"): 2,
        ("s1", "s2", "s3"): 1,
    }


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_every_tables_statement_is_valid(table: Table) -> None:
    assert merged(table, [], 60 * S_NS) == []
