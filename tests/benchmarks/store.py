"""Named content: how many requests a switch answers, how much sooner, and how many a second.

Hit rates: 10,000 names are asked for by Zipf's law (exponent 0.99), 500 of them have a copy. The controller's decision,
with the switch's sketch and counters, over the same requests as the best choice that never changes (known beforehand),
LRU, and LFU that remembers all names; once as it is, and once while the ranks move on by 200 names every fifth
interval. An interval has 20,000 requests.

Latency: in virtual time, reader and producer in two racks, 10 Gbit/s, 1 us of propagation a link, a producer that takes
10 us for an answer, values of 1,000 bytes.

Rates: the compiled program memory to memory, one core: interests that the switch answers, interests for names that it
counts in its sketch, and the same packets without a name, which are only forwarded.

Names: six readers in three racks of a leaf-spine of 1 Gbit/s read 60 values of 8,000 bytes by name, each one after the
other, by Zipf's law (0.99), from a producer in the fourth; what the spines send for a read, and how long it takes.

    .venv/bin/python tests/benchmarks/store.py             # --quick: fewer requests
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from controller.network.content.settings import RecordedSettings, StoreSettings
from controller.network.tables.store import MAX_THRESHOLD
from dataplane.store.dialogues import reading, recording
from dataplane.store.names import digest
from dataplane.topology.addressing import gateway_mac
from dataplane.topology.families import leaf_spine
from dataplane.wire.packet import udp_frame
from dataplane.wire.store import UDP_PORT, Kind, Message
from tests.benchmarks.storing.policies import LeastFrequent, LeastRecent, Load, Policy, Static, Switch, hit_rate
from tests.benchmarks.storing.spines import MODES, measure
from tests.benchmarks.traffic.memory import CompiledMemory
from tests.integration.test_virtual_store import rack
from tests.integration.virtual_store import MS, Client, Server, World

NAMES, CELLS, EXPONENT, PER_INTERVAL = 10_000, 500, 0.99, 20_000
WARM = 8
SHIFT_INTERVALS, SHIFT_BY = 5, 200
VALUE = bytes(1000)
RECORDED = 256
STEP_NS = 50


def hit_rates(intervals: int, *, shift: bool) -> dict[str, float]:
    """Return the hit rate of each policy after a few intervals."""
    every, by = (SHIFT_INTERVALS * PER_INTERVAL, SHIFT_BY) if shift else (0, 0)
    requests = Load(NAMES, EXPONENT, intervals * PER_INTERVAL, every, by).draw(1)
    after = WARM * PER_INTERVAL
    best = [name for name, _ in Counter(requests[after:]).most_common(CELLS)]
    policies: dict[str, Policy] = {
        "controller": Switch(CELLS, PER_INTERVAL),
        "best static": Static(best),
        "LRU": LeastRecent(CELLS),
        "LFU": LeastFrequent(CELLS),
    }
    return {name: hit_rate(policy, requests, after) for name, policy in policies.items()}


def world() -> tuple[World, Server, Client]:
    """Return two racks; h4 serves eight names, which its switch has copies of."""
    settings = StoreSettings(producers=("h4",), interval_ns=10 * MS)
    there = World(leaf_spine(1, 2, 2), settings)
    server, client = Server(there, "h4"), Client(there, "h1", "h4")
    names = [f"/{number}" for number in range(8)]
    for name in names:
        server.producer_core.publish(name, VALUE, 0)
    while not all(hits(there, server, client, name) for name in names):
        there.run(MS)
    return there, server, client


def hits(there: World, server: Server, client: Client, name: str) -> bool:
    """Read a name, and return whether it was the switch that answered."""
    before = server.interests
    client.talk(reading(name))
    return server.interests == before


def latencies_us(there: World, server: Server, client: Client, reads: int) -> tuple[float, float]:
    """Return the medians of reads that the switch answers, and that the producer does."""
    latencies: dict[bool, list[float]] = {True: [], False: []}
    for number in range(reads):
        server.producer_core.publish(f"/other/{number}", VALUE, 0)
        for name in (f"/{number % 8}", f"/other/{number}"):
            before, began_ns = server.interests, there.fabric.now_ns
            talk = client.begin(reading(name))
            while not talk.is_over:
                there.run(STEP_NS)
            latencies[server.interests == before].append((there.fabric.now_ns - began_ns) / 1000)
            there.run(MS)
    return statistics.median(latencies[True]), statistics.median(latencies[False])


def rates() -> dict[str, float]:
    """Return packets a second that the compiled program takes: answered, counted in the sketch, plain."""
    recorded = tuple(
        RecordedSettings(name=f"/{number}", bytes=1000, writers=("h1",), server="h4", forward=False)
        for number in range(RECORDED)
    )
    # Nobody would read what the switch tells, so it is to tell nothing.
    there = World(rack(), StoreSettings(producers=("h4",), recorded=recorded, threshold=MAX_THRESHOLD))
    writer = Client(there, "h1", "h4")
    for name in recorded:
        writer.talk(recording(name.name, VALUE, version=1))
    switch, port = there.fabric.switch("s1"), there.topology.attachment["h1"].port
    state, program = switch.state, switch.program
    assert state is not None
    assert program is not None
    memory = CompiledMemory(program)
    frames = {
        "answered by the switch": [_interest(there, digest(name.name)) for name in recorded],
        "counted in the sketch": [_interest(there, number << 90 | number << 40) for number in range(1, 4097)],
        "without a name": [_interest(there, number << 40, named=False) for number in range(1, 65)],
    }
    return {name: memory.measure(state, frame, port).pps for name, frame in frames.items()}


def _interest(there: World, name: int, *, named: bool = True) -> bytes:
    frame = udp_frame(
        src_mac=there.topology.host["h1"].mac,
        dst_mac=gateway_mac(there.topology, "h1"),
        src=there.topology.host["h1"].ipv4,
        dst=there.topology.host["h4"].ipv4,
        src_port=30_000,
        dst_port=UDP_PORT,
        payload=Message(Kind.INTEREST, name, content=bytes(1024)).encode(),
    )
    return frame[:40] + b"\0\0" + frame[42:] if named else frame


def table(title: str, rows: Sequence[tuple[str, ...]], *columns: str) -> Table:
    """Return a table for people."""
    made = Table(*columns, title=title)
    for row in rows:
        made.add_row(*row)
    return made


def main() -> None:
    """Measure, print tables, and figures as JSON in the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer requests")
    quick = parser.parse_args().quick
    intervals = 12 if quick else 40
    console = Console()
    steady, shifting = hit_rates(intervals, shift=False), hit_rates(intervals, shift=True)
    rows = [(name, f"{steady[name]:.3f}", f"{shifting[name]:.3f}") for name in steady]
    console.print(table("hit rate", rows, "policy", "steady", "shifting"))
    there, server, client = world()
    with closing(server):
        hit_us, miss_us = latencies_us(there, server, client, 10 if quick else 50)
    console.print(table("latency, us", [(f"{hit_us:.1f}", f"{miss_us:.1f}")], "hit", "miss"))
    results = rates()
    console.print(table("million a second", [(name, f"{pps / 1e6:.2f}") for name, pps in results.items()], "", "rate"))
    loads = {mode: measure(mode, 600 if quick else 3000) for mode in MODES}
    costs = [
        (mode, f"{load.bytes_a_read:,.0f}", f"{load.median_us:.0f}", f"{load.p95_us:.0f}", f"{load.answered:.2f}")
        for mode, load in loads.items()
    ]
    console.print(table("long values by name", costs, "copies", "bytes of spines a read", "us", "us, p95", "answered"))
    figures = {
        "hit_rate": round(steady["controller"], 4),
        "hit_rate_over_best_static": round(steady["controller"] / steady["best static"], 4),
        "hit_rate_over_lru": round(steady["controller"] / steady["LRU"], 4),
        "shifting_hit_rate_over_best_static": round(shifting["controller"] / shifting["best static"], 4),
        "shifting_hit_rate_over_lru": round(shifting["controller"] / shifting["LRU"], 4),
        "miss_over_hit_latency": round(miss_us / hit_us, 3),
        "answers_per_s": round(results["answered by the switch"]),
        "name_cache_bytes_ratio": round(loads["none"].bytes_a_read / loads["all switches"].bytes_a_read, 2),
        "name_cache_delay_ratio": round(loads["none"].median_us / loads["all switches"].median_us, 2),
        "answers_over_forwarding": round(results["answered by the switch"] / results["without a name"], 4),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
