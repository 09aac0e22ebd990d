"""Figures of the benchmark of large chains."""

from __future__ import annotations

import math

from dataplane.topology.values import LinkKey
from tests.benchmarks.chaining.chain import SMALL
from tests.benchmarks.chaining.events import Event
from tests.benchmarks.chaining.scaling import Outcome, figures
from tests.benchmarks.chaining.shards import merge_error

KEYS = {
    "report_to_route_p50_ms",
    "report_to_route_p99_ms",
    "cores",
    "feed_mbytes_per_s",
    "shard_merge_error",
    "links_unowned_s",
}


def outcome(*seen_ms: float) -> Outcome:
    """Return a run whose events were seen after these times; infinite: never."""
    events = [Event(LinkKey("a", "b"), frozenset({1}), frozenset({1}), begun_ns=0) for _ in seen_ms]
    for event, took_ms in zip(events, seen_ms, strict=True):
        event.seen_ns = round(took_ms * 1e6) if math.isfinite(took_ms) else None
    cores = {"collector": 0.25, "paths": 0.5, "sender": 9.0}
    return Outcome(tuple(events), 10.0, cores, {}, {}, 20_000_000, 5, 5, {}, 0)


def test_figures_have_the_keys_of_the_results() -> None:
    made = figures(outcome(10.0, 30.0, 20.0))
    assert made.keys() == KEYS
    assert made["report_to_route_p50_ms"] == 20.0
    assert made["report_to_route_p99_ms"] == 30.0
    assert (made["cores"], made["feed_mbytes_per_s"], made["shard_merge_error"]) == (0.75, 2.0, 0)
    assert made["links_unowned_s"] is None


def test_events_that_are_not_seen_have_no_figure() -> None:
    assert figures(outcome(10.0, math.inf))["report_to_route_p99_ms"] is None


def test_shards_of_real_collectors_merge_without_error() -> None:
    assert merge_error(SMALL, 40) == 0
