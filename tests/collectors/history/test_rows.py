"""Values to rows: every figure in its column, counts as increases, bounded in number."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from collectors.history.rows import LEFT_OUT, DropTally, Observation
from collectors.history.schema import TABLES
from collectors.statistics.sketch import Sketch
from collectors.values import (
    ClockState,
    DropRecord,
    Event,
    EventNote,
    Evidence,
    LossSource,
    Phase,
    ReporterState,
    Snapshot,
)
from tests.collectors.history.samples import FLOW, LINK, NOON_S, S_NS, job, link, maker, path, rows_of, snapshot

NOON = datetime.fromtimestamp(NOON_S, UTC)
WHEN = {"time": NOON, "interval_ns": S_NS, "snapshots": 1}


def test_a_link_is_a_row(tmp_path: Path) -> None:
    state = replace(
        link(),
        loss=0.01,
        loss_source=LossSource.DROP_REPORTS,
        delay_ewma_ns=1,
        delay_uncertainty_ns=2,
        buffer_occupancy_frames=3.5,
    )
    sketch = Sketch()
    for delay_ns in (5, 3, 5):
        sketch.add(delay_ns)
    batches = maker(tmp_path).batches(Observation(NOON_S * S_NS, snapshot([state]), delays={LINK: sketch}))
    assert rows_of(batches, "links") == [
        {
            **{column.name: None for column in TABLES["links"].columns},
            **WHEN,
            "src": "s1",
            "dst": "s2",
            "rate_bps": 1_000_000_000,
            "delay_mean_ns": 7000,
            "delay_p50_ns": 7000,
            "delay_p99_ns": 14000,
            "delay_ewma_ns": 1,
            "delay_max_ns": 21000,
            "delay_uncertainty_ns": 2,
            "queue_occupancy_frames": 1.5,
            "queue_max_frames": 1.5,
            "buffer_occupancy_frames": 3.5,
            "utilisation": 0.25,
            "utilisation_max": 0.25,
            "available_bps": 750_000_000,
            "loss": 0.01,
            "loss_source": "drop-reports",
            "age_ns": 1000,
            "samples": 10,
            "source": "stamps",
            "delay_sketch": [{"bucket": 3, "count": 1}, {"bucket": 5, "count": 2}],
        }
    ]


def test_a_path_is_a_row_with_the_names_of_its_hosts(tmp_path: Path) -> None:
    batches = maker(tmp_path).batches(Observation(NOON_S * S_NS, snapshot(paths=[path()])))
    assert rows_of(batches, "paths") == [
        {
            **WHEN,
            "src": "10.0.0.1",
            "dst": "10.0.0.2",
            "src_host": "h1",
            "dst_host": "h2",
            "protocol": 17,
            "src_port": 5000,
            "dst_port": 6001,
            "switches": ["s1", "s2", "s3"],
            "delay_ns": 20_000,
            "delay_p50_ns": 19_000,
            "delay_p99_ns": 30_000,
            "loss": 0.0,
            "bottleneck_bps": 500_000_000,
            "rate_bps": 1000,
            "age_ns": 5,
            "samples": 4,
        }
    ]


def test_only_the_fastest_paths_are_kept_and_others_counted(tmp_path: Path) -> None:
    rates = [5, None, 900, 70, 800]
    paths = [path(replace(FLOW, src_port=port), rate) for port, rate in enumerate(rates, 1)]
    batches = maker(tmp_path, max_paths=2).batches(Observation(NOON_S * S_NS, snapshot(paths=paths)))
    assert [row["rate_bps"] for row in rows_of(batches, "paths")] == [900, 800]
    assert [(row["name"], row["increase"]) for row in rows_of(batches, "counters")] == [(LEFT_OUT, 3)]


def test_reports_and_counters_are_increases(tmp_path: Path) -> None:
    rows = maker(tmp_path)
    seen = [
        (10, 2, {"reports": 10}),
        (15, 1, {"reports": 15, "malformed": 1}),
        (15, 1, {"reports": 15, "malformed": 1}),
    ]
    batches = [rows.batches(Observation(0, snapshot((), (), got, lost), counters)) for got, lost, counters in seen]
    reporter_rows = [row for batch in batches for row in rows_of(batch, "reporters")]
    assert [(row["node"], row["received"], row["lost"]) for row in reporter_rows] == [
        ("s1", 10, 2),
        ("s1", 5, -1),
        ("s1", 0, 0),
    ]
    counted = [{row["name"]: row["increase"] for row in rows_of(batch, "counters")} for batch in batches]
    assert counted == [{"reports": 10}, {"reports": 5, "malformed": 1}, {}]


def test_an_account_that_was_opened_again_begins_at_nothing(tmp_path: Path) -> None:
    rows = maker(tmp_path)
    for received in (100, 7):
        batches = rows.batches(Observation(0, snapshot((), (), received)))
    assert [row["received"] for row in rows_of(batches, "reporters")] == [7]


def test_a_job_is_a_row_and_so_is_each_of_its_children(tmp_path: Path) -> None:
    state = job()
    batches = maker(tmp_path).batches(Observation(NOON_S * S_NS, Snapshot(5, {}, {}, {}, {}, {state.key: state})))
    about = {"job": 3, "name": "resnet", "node": "s2"}
    assert rows_of(batches, "jobs") == [
        {
            **WHEN,
            **about,
            "is_leaf": False,
            "epoch": 2,
            "items": 400,
            "items_per_s": 25.0,
            "reported": 100,
            "repeated": 2,
            "cells_used": 5,
            "cells": 16,
            "wait_mean_ns": 3250,
            "wait_p50_ns": 3000,
            "wait_p99_ns": 8000,
            "wait_max_ns": 9000,
            "age_ns": 700,
            "samples": 40,
        }
    ]
    late, other = rows_of(batches, "job_children")
    assert late == {
        **WHEN,
        **about,
        "number": 1,
        "child": "h2",
        "last": 30,
        "last_share": 0.75,
        "wait_mean_ns": 4000,
        "wait_max_ns": 9000,
        "wait_caused_ns": 3000,
        "samples": 40,
    }
    assert (other["child"], other["last"]) == ("h1", 10)


def test_job_counts_are_increases_also_when_a_number_is_reused(tmp_path: Path) -> None:
    rows, increases = maker(tmp_path), []
    for reported, last in ((100, 30), (150, 35), (150, 35), (50, 3)):
        states = {state.key: state for state in (job(reported, last=last),)}
        batches = rows.batches(Observation(0, Snapshot(0, {}, {}, {}, {}, states)))
        (row,), (child, _) = rows_of(batches, "jobs"), rows_of(batches, "job_children")
        increases.append((row["items"], row["reported"], row["repeated"], child["last"]))
    assert increases == [(400, 100, 2, 30), (200, 50, 1, 5), (0, 0, 0, 0), (200, 50, 1, 3)]


def test_a_node_that_the_topology_lacks_has_no_name(tmp_path: Path) -> None:
    seen = Snapshot(0, {}, {}, {(99, 1): ReporterState(99, 1, 1, 0, 0, 0, 0)}, {99: ClockState(99, 11, 5, -3, 2)})
    batches = maker(tmp_path).batches(Observation(0, seen))
    assert [(row["node_id"], row["node"]) for row in rows_of(batches, "reporters")] == [(99, None)]
    (clock,) = rows_of(batches, "clocks")
    assert [clock[name] for name in ("node", "clock_group", "offset_ns", "drift_ppb", "uncertainty_ns")] == [
        None,
        11,
        5,
        -3,
        2,
    ]


def test_drops_of_a_kind_are_one_row(tmp_path: Path) -> None:
    drop, tally = DropRecord(0, 11, 1, 11, 1, 2, 0, 9, FLOW), DropTally(max_kinds=2)
    others = [replace(drop, flow=replace(FLOW, src_port=port)) for port in (1, 2, 3)]
    tally.add([drop, others[0], drop, others[1], others[2], others[0], replace(drop, reason=77)])
    batches = maker(tmp_path).batches(Observation(0, snapshot(), {}, (), tally.take()))
    rows = rows_of(batches, "drops")
    drops = [(row["reason"], row["node"], row["egress_port"], row["src_port"], row["packets"]) for row in rows]
    assert drops == [
        ("queue_full", "s1", 2, 5000, 2),
        ("queue_full", "s1", 2, 1, 2),
        ("queue_full", "s1", None, None, 2),
        ("reason 77", "s1", None, None, 1),
    ]
    assert tally.take() == {}


def test_an_event_has_unix_time(tmp_path: Path) -> None:
    taken_ns = 77 * S_NS
    event = Event(
        taken_ns - S_NS, "slow", LINK, "delay_p99_ns", 5.0, 4.0, Phase.RAISED, (Evidence(taken_ns, "samples", 3.0),)
    )
    seen = Observation((NOON_S + 1) * S_NS, replace(snapshot(), taken_ns=taken_ns), {}, (event,))
    (row,) = rows_of(maker(tmp_path).batches(seen), "events")
    assert row == {
        "time": NOON,
        "rule": "slow",
        "kind": "link",
        "subject": "s1->s2",
        "figure": "delay_p99_ns",
        "value": 5.0,
        "threshold": 4.0,
        "phase": "raised",
        "evidence": [{"time": datetime.fromtimestamp(NOON_S + 1, UTC), "figure": "samples", "value": 3.0}],
        "note_by": None,
        "note": None,
        "severity": "warning",
    }


def test_acknowledgement_has_a_row_of_its_own(tmp_path: Path) -> None:
    event = Event(1, "slow", LINK, "delay_p99_ns", 5.0, 4.0, Phase.RAISED, note=EventNote("ada", "on it", 7))
    notes = ((NOON_S * S_NS, event), (NOON_S * S_NS, replace(event, note=None)))
    rows = rows_of(maker(tmp_path).batches(Observation(0, snapshot(), notes=notes)), "events")
    assert [(row["time"], row["phase"], row["note_by"], row["note"]) for row in rows] == [
        (NOON, "acknowledged", "ada", "on it"),
        (NOON, "withdrawn", None, None),
    ]


def test_tables_without_rows_are_left_out(tmp_path: Path) -> None:
    assert maker(tmp_path).batches(Observation(0, snapshot())) == {}


def test_every_column_says_what_it_means() -> None:
    assert all(column.meaning for table in TABLES.values() for column in table.columns)
