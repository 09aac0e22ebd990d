"""The history at the size of 10,000 directed links: what an interval costs, what a file has, what questions take.

Run: python -m tests.benchmarks.history [--links N] [--minutes N]. Compared with writing the same rows as JSON lines,
which is what one has without a history (bytes), and with reading those (time).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TypeVar

from collectors.history.query import query
from collectors.history.retention import HistoryKeeper
from collectors.history.rows import Observation, RowMaker
from collectors.history.settings import HistorySettings, Tier
from collectors.history.writer import HistoryWriter
from collectors.metrics.families import Reading, StateCollector
from collectors.statistics.sketch import Sketch
from collectors.values import CollectorStatus, DelaySource, LinkState, Snapshot
from dataplane.clock import NS_PER_S
from dataplane.topology.values import LinkKey, Topology

T = TypeVar("T")
VARIED = 60
"""Seconds after which figures come again, so that no file has the same twice."""
NOON_S = 1_700_000_040
QUESTIONS = {
    "all links, mean and p99": "select src, dst, avg(delay_mean_ns), max(delay_p99_ns) from links group by all",
    "one link over time": "select time, delay_p99_ns from links where src = 's1' and dst = 's2' order by time",
    "the ten fullest": "select src, dst, max(utilisation_max) as used from links group by all order by 3 desc limit 10",
}


def snapshot_of(links: int, random: Random) -> Snapshot:
    """Return a snapshot of links with figures that vary as measured ones do."""
    states = {}
    for number in range(links):
        key = LinkKey(f"s{number}", f"s{number + 1}")
        delay_ns, used = int(random.lognormvariate(10, 0.4)), random.random()
        states[key] = LinkState(
            link=key,
            rate_bps=10**10,
            delay_mean_ns=delay_ns,
            delay_p50_ns=delay_ns,
            delay_p99_ns=3 * delay_ns,
            queue_occupancy_frames=round(random.expovariate(1), 3),
            utilisation=used,
            available_bps=round(1e10 * (1 - used)),
            loss=None,
            age_ns=1000 * random.randrange(1000),
            samples=random.randrange(1, 5000),
            source=DelaySource.STAMPS,
            delay_ewma_ns=delay_ns,
            delay_max_ns=5 * delay_ns,
        )
    return Snapshot(0, states, {}, {})


def sketches_of(links: int, random: Random) -> dict[LinkKey, Sketch]:
    """Return a sketch a link, of 200 delays that vary as measured ones do: about 100 buckets."""
    sketches = {}
    for number in range(links):
        sketch = sketches[LinkKey(f"s{number}", f"s{number + 1}")] = Sketch()
        for _ in range(200):
            sketch.add(int(random.lognormvariate(10, 0.4)))
    return sketches


def timed(call: Callable[..., T], *arguments: object) -> tuple[float, T]:
    """Return the duration of a call, in ms, and its result."""
    began = time.perf_counter()
    result = call(*arguments)
    return (time.perf_counter() - began) * 1e3, result


def ask(folder: Path, statement: str) -> int:
    """Return how many rows a question finds."""
    return sum(batch.num_rows for batch in query(folder, statement).batches)


def main() -> None:
    """Measure, print a table, and the figures as JSON on the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--links", type=int, default=10_000)
    parser.add_argument("--minutes", type=int, default=6)
    options = parser.parse_args()
    figures: dict[str, float] = {}
    for with_sketches in (False, True):
        links = options.links // 20 if with_sketches else options.links
        with TemporaryDirectory(prefix="millrace-history") as name:
            results = measure(Path(name), links, options.minutes, with_sketches=with_sketches)
        suffix = f" ({links} links, with sketches)" if with_sketches else f" ({links} links)"
        for key, value in results.items():
            print(f"{key + suffix:64} {value:14.3f}")
        figures |= {key + ("_with_sketches" if with_sketches else ""): value for key, value in results.items()}
    print(json.dumps({key: round(value, 4) for key, value in figures.items()}))


def measure(folder: Path, links: int, minutes: int, *, with_sketches: bool) -> dict[str, float]:
    """Write `minutes` of one row a link and second, merge the older half, ask."""
    tiers = (Tier(interval_ns=10 * NS_PER_S, keep_ns=10**15),)
    settings = HistorySettings(
        folder=str(folder), tiers=tiers, keep_ns=minutes * 30 * NS_PER_S, file_span_ns=60 * NS_PER_S, merge_files=1
    )
    topology = Topology("none", (), (), ())
    rows, writer, random = RowMaker(topology, settings), HistoryWriter(settings), Random(1)
    varied = [snapshot_of(links, random) for _ in range(VARIED)]
    delays = [sketches_of(links, random) if with_sketches else {} for _ in varied]
    making, writing, completing = [], [], []
    for second in range(60 * minutes):
        wall_ns = (NOON_S + second) * NS_PER_S
        made_ms, batches = timed(
            rows.batches, Observation(wall_ns, varied[second % VARIED], delays=delays[second % VARIED])
        )
        making.append(made_ms)
        writing.append(timed(writer.write, batches, wall_ns)[0])
        if second and second % 60 == 0:
            completing.append(timed(writer.complete)[0])
    in_journal_ms, _ = timed(ask, folder, "select count(*) from links")
    writer.close()
    total_rows = links * 60 * minutes
    fine_bytes = sum(file.stat().st_size for file in folder.glob("*/*.parquet"))
    answers = {name: timed(ask, folder, statement)[0] for name, statement in QUESTIONS.items()}
    keeper = HistoryKeeper(settings, sys.exit)
    merging_ms, _ = timed(keeper.tidy, NOON_S + 60 * minutes)
    as_json = sum(len(json.dumps(row, default=str)) + 1 for row in batches["links"].to_pylist())
    status = CollectorStatus(0, {}, None)
    metrics = StateCollector(topology, lambda: Reading(varied[0], status))
    scrape_ms, _ = timed(lambda: list(metrics.collect()))
    return {
        "rows_ms": statistics.median(making),
        "journal_ms": statistics.median(writing),
        "complete_file_ms": statistics.median(completing) if completing else 0.0,
        "bytes_per_row": fine_bytes / total_rows,
        "ratio_json_bytes": as_json / links / (fine_bytes / total_rows),
        "merge_rows_per_s": total_rows / 2 / merging_ms * 1e3,
        "merged_bytes_share": sum(file.stat().st_size for file in folder.glob("*/*.parquet")) / fine_bytes,
        "query_with_journal_ms": in_journal_ms,
        **{f"query {name} ms": took for name, took in answers.items()},
        "scrape_ms": scrape_ms,
    }


if __name__ == "__main__":
    main()
