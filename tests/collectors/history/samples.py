"""Snapshots as a collector would take them, and a history of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pyarrow as pa

from collectors.history.query import query
from collectors.history.rows import Observation, RowMaker
from collectors.history.settings import HistorySettings
from collectors.values import (
    ChildKey,
    ChildState,
    DelaySource,
    FlowKey,
    JobKey,
    JobState,
    LinkState,
    PathState,
    ReporterState,
    Snapshot,
)
from dataplane.topology.values import LinkKey
from tests.collectors.reports import build_topology

S_NS = 1_000_000_000
NOON_S = 1_700_000_040
"""A UNIX time that begins a minute."""
LINK = LinkKey("s1", "s2")
FLOW = FlowKey(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 17, 5000, 6001)


def link(
    delay_ns: int = 7000, samples: int = 10, utilisation: float = 0.25, source: DelaySource = DelaySource.STAMPS
) -> LinkState:
    return LinkState(
        LINK,
        1_000_000_000,
        delay_ns,
        delay_ns,
        2 * delay_ns,
        1.5,
        utilisation,
        round(1e9 * (1 - utilisation)),
        None,
        1000,
        samples,
        source,
        delay_max_ns=3 * delay_ns,
    )


def path(
    flow: FlowKey = FLOW, rate_bps: int | None = 1000, switches: tuple[str, ...] = ("s1", "s2", "s3")
) -> PathState:
    return PathState(flow, switches, 20_000, 500_000_000, 5, rate_bps, 19_000, 30_000, 0.0, 4)


def job(reported: int = 100, *, number: int = 3, last: int = 30, note: bool = True) -> JobState:
    """Return a job at s2 with contributions from h1 and, late, h2."""
    key = JobKey(number, "s2")
    children = (
        ChildState(ChildKey(number, "s2", 1, "h2"), last, 0.75, 4_000, 9_000, 3_000, 40),
        ChildState(ChildKey(number, "s2", 0, "h1"), 10, 0.25, 1_000, 1_000, 250, 40),
    )
    return JobState(
        key,
        "resnet" if note else None,
        2 if note else None,
        16 if note else None,
        is_leaf=False,
        items=4 * reported,
        items_per_s=reported / 4,
        reported=reported,
        repeated=reported // 50,
        repeated_per_item=0.02,
        cells_used=5,
        wait_mean_ns=3_250,
        wait_p50_ns=3_000,
        wait_p99_ns=8_000,
        wait_max_ns=9_000,
        samples=40,
        age_ns=700,
        children=children,
    )


def snapshot(
    links: Sequence[LinkState] = (), paths: Sequence[PathState] = (), received: int | None = None, lost: int = 0
) -> Snapshot:
    reporters = {} if received is None else {(11, 0): ReporterState(11, 0, received, lost, 0, 0, 0)}
    return Snapshot(5, {state.link: state for state in links}, {state.flow: state for state in paths}, reporters)


def rows_of(batches: Mapping[str, pa.RecordBatch], table: str) -> list[dict[str, Any]]:
    return batches[table].to_pylist() if table in batches else []


def maker(folder: Path, **settings: Any) -> RowMaker:
    return RowMaker(build_topology(), HistorySettings(folder=str(folder), **settings))


def links_at(rows: RowMaker, second: int, *states: LinkState) -> tuple[dict[str, pa.RecordBatch], int]:
    wall_ns = (NOON_S + second) * S_NS
    return rows.batches(Observation(wall_ns, snapshot(states or (link(),)))), wall_ns


def query_rows(folder: Path, statement: str, problems: list[str] | None = None) -> list[tuple[Any, ...]]:
    """Return a query's rows."""
    answer = query(folder, statement, (problems if problems is not None else []).append)
    return [tuple(row.values()) for batch in answer.batches for row in batch.to_pylist()]
