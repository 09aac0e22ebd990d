"""Rates of the modes in which every hop reports by itself: memory to state, joined by packet."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from collectors.collector import Collector
from collectors.decode.payloads import Payloads
from collectors.settings import CollectorSettings, Core
from dataplane.clock import MonotonicClock
from dataplane.topology.addressing import switch_ipv4
from dataplane.topology.values import Endpoint, Link, SwitchNode, Topology
from dataplane.wire.completion import Completion
from tests.collectors.reports import MICRO, Hop, Reporter, build_topology

PACKETS = 2000
FLOWS = 1000
BATCH = 4096

QUEUE = "congested queue"
MODES: dict[str, Callable[[Reporter, list[Hop], bytes], list[bytes]]] = {
    "hop by hop": lambda reporter, hops, payload: reporter.hop_by_hop(hops, payload=payload),
    "MX": lambda reporter, hops, payload: reporter.postcards(hops, mx=True, payload=payload),
    "XD": lambda reporter, hops, payload: reporter.postcards(hops, mx=False, payload=payload),
    QUEUE: lambda reporter, hops, _: [reporter.congested(hop) for hop in hops],
}


def mode_rate(mode: str, core: Core = Core.NATIVE, *, hops: int = 4) -> float:
    """Measure one mode: reports per second of a core, of packets with this many hops in order."""
    sequences: dict[int, int] = {}
    payloads = []
    for number in range(PACKETS):
        reporter = Reporter(src_port=1000 + number * 7 % FLOWS, sequences=sequences)
        payloads += MODES[mode](reporter, way(hops, number * 10 * MICRO, number % 7), number.to_bytes(4, "big"))
    collector = Collector(line(hops), MonotonicClock(), CollectorSettings(core=core))
    rate = _rate(collector, payloads, copies=20 if core is Core.NATIVE else 1)
    if collector.counters["incomplete packets"] or (len(collector.snapshot().paths) < FLOWS and mode != QUEUE):
        raise RuntimeError(f"{dict(collector.counters)}: not every packet was joined")
    return rate


def item_rate(core: Core = Core.NATIVE) -> float:
    """Measure reports of items that switches have added up, of a job of 64 workers: items a second of a core's time."""
    reporter = Reporter()
    items = (Completion(1, n, n % 64, n * 37 % 5000, n % 3, n % 16) for n in range(PACKETS))
    payloads = [reporter.item(11, item) for item in items]
    return _rate(Collector(line(1), MonotonicClock(), CollectorSettings(core=core)), payloads, copies=10)


def line(hops: int) -> Topology:
    """Return a row of switches with a host at each end; packets enter by port 1 and leave by port 2."""
    names = [*(f"s{n}" for n in range(1, hops + 1)), "h2"]
    cables = [(name, 2, after, 1 if after != "h2" else 0) for name, after in pairwise(names)]
    return Topology(
        "line",
        tuple(SwitchNode(name, 10 + n) for n, name in enumerate(names[:-1], start=1)),
        build_topology().hosts,
        tuple(
            Link(Endpoint(a, p), Endpoint(b, q), rate_bps=1_000_000_000, delay_ns=5_000, queue_frames=100)
            for a, p, b, q in [("h1", 0, "s1", 1), *cables]
        ),
        None,
        True,
    )


def way(hops: int, start_ns: int, queue: int) -> list[Hop]:
    """Return a packet's hops along the row."""
    times = [start_ns + n * 7 * MICRO for n in range(hops)]
    return [Hop(11 + n, at_ns, at_ns + 2 * MICRO, 1, 2, queue) for n, at_ns in enumerate(times)]


def _rate(collector: Collector, payloads: list[bytes], *, copies: int) -> float:
    """Take the payloads so often, with sequence numbers that go on; return the rate of all but the first time."""
    lengths = np.array([len(payload) for payload in payloads], np.uint32)
    places = np.concatenate([[0], np.cumsum(lengths[:-1], dtype=np.uint64)]).astype(np.uint64)
    data = np.frombuffer(b"".join(payloads), np.uint8).copy()
    addresses = np.array([int(switch_ipv4(int.from_bytes(payload[4:8], "big"))) for payload in payloads], np.uint32)
    sequence_at = places[:, None].astype(np.int64) + np.arange(1, 4)
    sequences = data[sequence_at].astype(np.int64) @ [1 << 16, 1 << 8, 1]
    grows = int(sequences.max()) + 1
    took_s = 0.0
    for copy in range(copies + 1):
        numbers = sequences + copy * grows & 0x3F_FFFF
        data[sequence_at] = numbers[:, None] >> [16, 8, 0] & 0xFF
        begun = time.thread_time()
        for first in range(0, len(payloads), BATCH):
            some = slice(first, first + BATCH)
            collector.receive_many(Payloads(data, places[some], lengths[some], addresses=addresses[some]))
        took_s += time.thread_time() - begun if copy else 0.0
    taken, lost = (
        collector.counters["reports"],
        sum(reporter.lost for reporter in collector.snapshot().reporters.values()),
    )
    if taken != (copies + 1) * len(payloads) or lost or collector.counters["repeated"]:
        raise RuntimeError(f"{dict(collector.counters)}, {lost} lost: not what was given")
    return copies * len(payloads) / took_s
