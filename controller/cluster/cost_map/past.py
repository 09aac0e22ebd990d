"""Snapshots of links from a history, at a moment or over a period, to build cost maps from."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from collectors.errors import HistoryError
from collectors.history.query import query
from collectors.values import DelaySource, LinkState, Snapshot
from dataplane.topology.values import LinkKey

_OLDEST: Final = timedelta(minutes=1)
"""Rows that ended longer than this before a moment do not count."""

# Weight means by samples, as the history does when merging rows; figures without samples by rows.
_FIGURES: Final = """
    select src, dst, max(rate_bps),
        coalesce(sum(delay_mean_ns * samples) / nullif(sum(samples), 0), avg(delay_mean_ns)),
        sum(available_bps * snapshots) / sum(snapshots),
        sum(loss * samples) / nullif(sum(case when loss is null then 0 else samples end), 0),
        sum(samples), arg_max(source, time), sum(utilisation * snapshots) / sum(snapshots),
        max(time), arg_max(age_ns, time)
    from ({rows}) group by src, dst
"""
_AT: Final = """
    select * from links where time <= {moment} and time + to_microseconds(interval_ns // 1000) > {oldest}
    qualify row_number() over (partition by src, dst order by time desc) = 1
"""
_OVER: Final = "select * from links where time >= {start} and time < {end}"


def snapshot_at(folder: Path, moment: datetime) -> Snapshot:
    """Return a history's figures of links at a moment (with a time zone), from rows no older than a minute.

    Raise HistoryError if it has none.
    """
    rows = _AT.format(moment=_sql(moment), oldest=_sql(moment - _OLDEST))
    return _snapshot(folder, rows, moment, f"at {moment.isoformat()}")


def snapshot_over(folder: Path, start: datetime, end: datetime) -> Snapshot:
    """Return the mean figures of links in a history over a period; HistoryError if there are none."""
    if end <= start:
        raise HistoryError(f"a window from {start.isoformat()} to {end.isoformat()} is empty")
    rows = _OVER.format(start=_sql(start), end=_sql(end))
    return _snapshot(folder, rows, end, f"from {start.isoformat()} to {end.isoformat()}")


def _snapshot(folder: Path, rows: str, end: datetime, when: str) -> Snapshot:
    links = {state.link: state for state in _states(folder, _FIGURES.format(rows=rows), end)}
    if not links:
        raise HistoryError(f"{folder}: no link figures {when}")
    return Snapshot(_ns(end), links, {}, {})


def _states(folder: Path, statement: str, end: datetime) -> Iterator[LinkState]:
    for batch in query(folder, statement).batches:
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield _state(row, end)


def _state(row: tuple[Any, ...], end: datetime) -> LinkState:
    src, dst, rate_bps, delay_ns, available_bps, loss, samples, source, utilisation, newest, age_ns = row
    behind_ns = max(0, _ns(end) - _ns(newest))
    return LinkState(
        link=LinkKey(src, dst),
        rate_bps=rate_bps,
        delay_mean_ns=round(delay_ns),
        delay_p50_ns=round(delay_ns),
        delay_p99_ns=round(delay_ns),
        queue_occupancy_frames=0.0,
        utilisation=utilisation,
        available_bps=round(available_bps),
        loss=loss,
        age_ns=None if age_ns is None else age_ns + behind_ns,
        samples=int(samples),
        source=DelaySource(source),
    )


def _sql(moment: datetime) -> str:
    if moment.tzinfo is None:
        raise HistoryError(f"{moment.isoformat()} has no time zone")
    return f"make_timestamptz({_ns(moment) // 1000})"


def _ns(moment: datetime) -> int:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    # In integers: a float of today's seconds is exact only to some 240 ns.
    return (moment - epoch) // timedelta(microseconds=1) * 1000
