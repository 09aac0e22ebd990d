"""Rates of the modes in which every hop reports by itself: memory to state, joined by packet or not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from collectors.collector import Collector
from collectors.payloads import Payloads
from collectors.settings import CollectorSettings
from dataplane.clock import MonotonicClock
from tests.collectors.reports import MICRO, Hop, Reporter, build_topology, long_way

PACKETS = 2000
BATCH = 4096
ALL = 1_000_000_000

MODES: dict[str, Callable[[Reporter, list[Hop], bytes], list[bytes]]] = {
    "hop by hop": lambda reporter, hops, payload: reporter.hop_by_hop(hops, payload=payload),
    "MX": lambda reporter, hops, payload: reporter.postcards(hops, mx=True, payload=payload),
    "XD": lambda reporter, hops, payload: reporter.postcards(hops, mx=False, payload=payload),
    "congested queue": lambda reporter, hops, _: [reporter.congested(hop) for hop in hops],
}


@dataclass(frozen=True, slots=True)
class ModeRate:
    """Reports a second of a core's time: natively by themselves, and joined to packets (Python)."""

    alone: float
    joined: float


def mode_rate(mode: str) -> ModeRate:
    """Measure one mode, packets of three hops."""
    reporter = Reporter()
    payloads = [
        one
        for number in range(PACKETS)
        for one in MODES[mode](reporter, long_way(number * 10 * MICRO, queue=number % 7), number.to_bytes(4, "big"))
    ]
    return ModeRate(_rate(payloads, joined_per_s=1, copies=20), _rate(payloads, joined_per_s=ALL, copies=1))


def _rate(payloads: list[bytes], *, joined_per_s: int, copies: int) -> float:
    """Take the payloads so often, with sequence numbers that go on; return the rate of all but the first time."""
    collector = Collector(build_topology(), MonotonicClock(), CollectorSettings(joined_reports_per_s=joined_per_s))
    lengths = np.array([len(one) for one in payloads], np.uint32)
    places = np.concatenate([[0], np.cumsum(lengths[:-1], dtype=np.uint64)]).astype(np.uint64)
    data = np.frombuffer(b"".join(payloads), np.uint8).copy()
    sequence_at = places[:, None].astype(np.int64) + np.arange(1, 4)
    sequences = data[sequence_at].astype(np.int64) @ [1 << 16, 1 << 8, 1]
    grows = int(sequences.max()) + 1
    took_s = 0.0
    for copy in range(copies + 1):
        numbers = sequences + copy * grows & 0x3F_FFFF
        data[sequence_at] = numbers[:, None] >> [16, 8, 0] & 0xFF
        begun = time.thread_time()
        for first in range(0, len(payloads), BATCH):
            collector.receive_many(Payloads(data, places[first : first + BATCH], lengths[first : first + BATCH]))
        took_s += time.thread_time() - begun if copy else 0.0
    taken, lost = collector.counters["reports"], sum(one.lost for one in collector.snapshot().reporters.values())
    if taken != (copies + 1) * len(payloads) or lost or collector.counters["repeated"]:
        raise RuntimeError(f"{dict(collector.counters)}, {lost} lost: not what was given")
    return copies * len(payloads) / took_s
