"""Collectors that each take the reports of some switches, one that takes all, and how far their sums differ."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from collectors.collector import Collector
from collectors.decode.payloads import Payloads
from collectors.settings import CollectorSettings, StateSettings
from collectors.statistics.link_windows import LinkWindows, figures_of, merged
from collectors.statistics.sketch import BUCKETS
from dataplane.clock import VirtualClock
from dataplane.topology.file import load_topology
from dataplane.topology.values import Topology
from tests.benchmarks.chaining.flows import Mix, make_flows
from tests.benchmarks.chaining.reports import Congestion, Reports

SHARDS = 3
BATCHES, BATCH, STEP_NS = 20, 1000, 50_000_000
WINDOW_NS = 10_000_000_000
"""Longer than all batches together: a shard puts a packet behind the newest that it has seen of a switch, so that only
whole windows have the same counts, not each of their slots."""


def merge_error(topology: str, flows: int, seed: int = 1) -> int:
    """Return the greatest difference, over all links, of a count or sum of the merged shards from that of the one."""
    fabric = load_topology(topology)
    shards, whole = [_Shard(fabric) for _ in range(SHARDS)], _Shard(fabric)
    for rows, reporter in _batches(fabric, flows, seed):
        whole.take(rows)
        for number, shard in enumerate(shards):
            shard.take(rows[reporter % SHARDS == number])
    together, wanted = merged([shard.windows() for shard in shards]), whole.windows()
    if not wanted.delay_counts().any():
        raise ValueError(f"no delay on {topology} was measured")
    pairs = [*zip(sums(together), sums(wanted), strict=True), (_p99_ns(together), _p99_ns(wanted))]
    return int(max(abs(one - other).max() for one, other in pairs))


class _Shard:
    """One collector in memory."""

    def __init__(self, topology: Topology) -> None:
        self._clock = VirtualClock()
        settings = CollectorSettings(relays=None, state=StateSettings(window_ns=WINDOW_NS))
        self._collector = Collector(topology, self._clock, settings)

    def take(self, rows: NDArray[np.uint8]) -> None:
        """Take reports, a step later than those before."""
        self._clock.advance_to(self._clock.now_ns() + STEP_NS)
        count, size = rows.shape
        places = np.arange(count, dtype=np.uint64) * np.uint64(size)
        self._collector.receive_many(Payloads(rows.reshape(-1).copy(), places, np.full(count, size, np.uint32)))

    def windows(self) -> LinkWindows:
        """Return the sums of all links."""
        return self._collector.link_windows()


def _batches(topology: Topology, flows: int, seed: int) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """Yield reports with the node ids of the switches that send them."""
    drawn = make_flows(topology, flows, Mix.UNIFORM, seed)
    reports = Reports(drawn, np.random.default_rng(seed), BATCH)
    for number in range(BATCHES):
        reports.fill(BATCH, number * STEP_NS, STEP_NS // BATCH, Congestion.of(drawn))
        rows = reports.rows[:BATCH]
        yield rows.copy(), rows[:, 4:8].copy().view(">u4").reshape(-1).astype(np.int64)


def _p99_ns(windows: LinkWindows) -> NDArray[np.int64]:
    return figures_of(windows).delay_p99_ns


def sums(windows: LinkWindows) -> Iterator[NDArray[np.int64]]:
    """Yield the counts and sums of each link's window, and its counts by bucket in order."""
    slots, buckets = windows.slots, windows.buckets
    for column in (slots.delays, slots.total_ns, slots.queues, slots.queue_frames):
        yield np.bincount(slots.link, column, windows.links).astype(np.int64)
    width = BUCKETS
    yield np.bincount(buckets.link * width + buckets.bucket, buckets.count, windows.links * width).astype(np.int64)
