"""Cost of a large fabric to the collector besides reports: snapshots, rules over them, clocks of its switches.

A random regular fabric of 1,000 switches and 5,000 cables, every link measured, 100,000 flows over 4,000 paths. Each
comparison alternates both sides and takes the faster run of each; the other sides are the plain twins from the tests
(tests/collectors/events/reference_rules.py, tests/collectors/clocks/reference_network.py), with the same results. For
clocks the plain side skips least squares, so the ratio is an underestimate.

    .venv/bin/python tests/benchmarks/snapshots.py           # --quick: 100 switches
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Address

from rich.console import Console
from rich.table import Table

from collectors.clocks.estimator import ClockEstimator
from collectors.clocks.flights import Flights
from collectors.clocks.values import StampDifference
from collectors.counters import Counters
from collectors.decode.samples import LinkSample
from collectors.decode.stitch import SeenPath
from collectors.events.engine import EventEngine
from collectors.events.rules import ChangeSettings, Rule
from collectors.feed import feed_pb2
from collectors.feed.snapshots import snapshot_message, snapshot_of
from collectors.native.accumulator import NativeStore
from collectors.native.fallback import NativeStitcher
from collectors.settings import ClockSettings, StateSettings
from collectors.state.builder import NetworkStateBuilder
from collectors.values import DelaySource, FlowKey, Snapshot
from dataplane.clock import VirtualClock
from dataplane.rpc.messages import parse
from dataplane.topology.values import LinkKey, Topology
from tests.benchmarks.routing.scale import random_fabric
from tests.collectors.clocks import reference_network as plain_clocks
from tests.collectors.events.reference_rules import PlainEngine

NOW_NS = 1_000_000_000
INTERVAL_NS = 500_000_000
FIGURES = ("delay_p99_ns", "delay_p50_ns", "delay_mean_ns", "delay_max_ns", "utilisation", "available_bps", "samples")

NAMES = (
    "snapshot_ms",
    "snapshot_values_ratio",
    "limit_rules_ms",
    "limit_rules_ratio",
    "change_rule_ms",
    "change_rule_ratio",
    "clocks_ms",
    "clocks_ratio",
    "feed_write_ms",
    "feed_read_ms",
    "feed_bytes",
)


class Fabric:
    """A collector's state without reports: samples and paths go straight to its store."""

    def __init__(self, switches: int, flows: int) -> None:
        self.topology = random_fabric(switches, 10, 1)
        self.clock = VirtualClock()
        self.clock.advance_to(NOW_NS)
        settings, counters = StateSettings(max_flows=flows), Counters()
        self.store = NativeStore(self.topology, settings, counters)
        stitcher = NativeStitcher(self.topology, settings, counters, self.store)
        self.builder = NetworkStateBuilder(self.topology, self.clock, settings, counters, self.store, stitcher)
        self._chance = random.Random(1)
        self._measure_links()
        self._measure_flows(flows, list(self._ways(4 * switches)))

    def _measure_links(self) -> None:
        for key, link in self.topology.directed_links.items():
            switch = self.topology.switch.get(key.src)
            for _ in range(4 if switch else 0):
                delay_ns = link.delay_ns + self._chance.randrange(1_000_000)
                node_id = switch.node_id if switch else 0
                sample = LinkSample(key, node_id, None, NOW_NS, delay_ns, DelaySource.STAMPS, 3, 1000)
                self.store.take_sample(sample)

    def _ways(self, count: int) -> Iterator[tuple[str, ...]]:
        beside: dict[str, list[str]] = {}
        for key in self.topology.directed_links:
            if key.dst in self.topology.switch:
                beside.setdefault(key.src, []).append(key.dst)
        for _ in range(count):
            way = [self._chance.choice(self.topology.switches).name]
            while len(way) < 4:
                way.append(self._chance.choice(beside[way[-1]]))
            yield tuple(way)

    def _measure_flows(self, count: int, ways: Sequence[tuple[str, ...]]) -> None:
        for number in range(count):
            way = ways[number % len(ways)]
            source, target = (IPv4Address(0x0A00_0001 + int(end[1:])) for end in (way[0], way[-1]))
            flow = FlowKey(source, target, 17, number % 60_000, number // 60_000)
            self.store.take_packet(flow, 1000, NOW_NS)
            self.store.take_path(SeenPath(flow, way, tuple(map(LinkKey, way, way[1:])), None, NOW_NS, 1_000_000))

    def snapshot(self) -> Snapshot:
        """Return a snapshot as after new reports: nothing is kept of the last."""
        self.store.begin_batch(NOW_NS)
        return self.builder.snapshot()


def ms(*sides: Callable[[], object], rounds: int = 3) -> list[float]:
    """Return how long each side takes, taken in turns, in the best round."""
    best = [float("inf")] * len(sides)
    for _ in range(rounds):
        for index, side in enumerate(sides):
            begun = time.perf_counter()
            side()
            best[index] = min(best[index], (time.perf_counter() - begun) * 1e3)
    return best


def rules_ms(fabric: Fabric, rules: Sequence[Rule]) -> list[float]:
    """Return what a snapshot costs these rules, all links at once and one by one."""
    taken = fabric.snapshot()
    list(taken.links.values())
    engines: list[EventEngine | PlainEngine] = [EventEngine(rules), PlainEngine(rules)]

    def observing(engine: EventEngine | PlainEngine) -> Callable[[], object]:
        times = iter(range(NOW_NS, NOW_NS + 100 * INTERVAL_NS, INTERVAL_NS))
        return lambda: engine.observe(replace(taken, taken_ns=next(times)))

    sides = [observing(engine) for engine in engines]
    ms(*sides)
    return ms(*sides, rounds=5)


def clocks_ms(topology: Topology) -> list[float]:
    """Return what an update of all clocks costs, side by side and cable by cable."""
    chance, settings = random.Random(1), ClockSettings()
    places = {key: index for index, key in enumerate(topology.directed_links)}
    inner = [key for key in places if key.src in topology.switch and key.dst in topology.switch]
    ends = {(int(key.src[1:]), int(key.dst[1:])): key for key in inner if int(key.src[1:]) < int(key.dst[1:])}
    estimator = ClockEstimator(topology, settings)
    cables = {pair: plain_clocks.Cable(topology.directed_links[key].delay_ns, settings) for pair, key in ends.items()}

    def seen(now_ns: int) -> dict[LinkKey, StampDifference]:
        delays = ((key, topology.directed_links[key].delay_ns + chance.randrange(5000)) for key in inner)
        return {key: StampDifference(key, now_ns, flight_ns, now_ns, 1) for key, flight_ns in delays}

    def update_singly(now_ns: int, shown: Mapping[LinkKey, StampDifference]) -> None:
        offsets = {}
        for pair, cable in cables.items():
            cable.observe(shown[ends[pair]], shown[LinkKey(ends[pair].dst, ends[pair].src)])
            offset = cable.offset(now_ns)
            if offset is not None:
                offsets[pair] = offset
        plain_clocks.tree(offsets)

    best = [float("inf")] * 2
    for now_ns in range(NOW_NS, NOW_NS + 6 * INTERVAL_NS, INTERVAL_NS):
        shown, flights = seen(now_ns), Flights()
        for flight in shown.values():
            flights.add(flight)
        columns = flights.take(places)
        took = ms(lambda: estimator.update(now_ns, columns), lambda: update_singly(now_ns, shown), rounds=1)  # noqa: B023
        best = list(map(min, best, took))
    return best


def feed(fabric: Fabric) -> dict[str, float]:
    """Return the cost of encoding a new snapshot's message, and of reading it."""
    taken = [fabric.snapshot() for _ in range(3)]
    data = snapshot_message(taken[0]).SerializeToString()
    fresh = iter(taken[1:])
    (write_ms,) = ms(lambda: snapshot_message(next(fresh)).SerializeToString(), rounds=2)
    (read_ms,) = ms(lambda: snapshot_of(parse(feed_pb2.Snapshot, data)))
    return {"feed_write_ms": write_ms, "feed_read_ms": read_ms, "feed_bytes": len(data)}


def summary(figures: Mapping[str, float]) -> dict[str, float | None]:
    """Return the figures of the last line, None if not measured."""
    return {name: round(figures[name], 3) if name in figures else None for name in NAMES}


def measure(switches: int, flows: int) -> dict[str, float]:
    """Return all figures."""
    fabric = Fabric(switches, flows)

    def with_values() -> None:
        taken = fabric.snapshot()
        list(taken.links.values()), list(taken.paths.values())

    limits = [Rule(name=f"{figure} {number}", figure=figure, above=1e15) for number in range(2) for figure in FIGURES]
    change = [Rule(name="change", figure="delay_p99_ns", change=ChangeSettings(learn=2))]
    figures: dict[str, float] = {}
    for name, (ours, other) in {
        "snapshot": ms(fabric.snapshot, with_values),
        "limit_rules": rules_ms(fabric, limits[:10]),
        "change_rule": rules_ms(fabric, change),
        "clocks": clocks_ms(fabric.topology),
    }.items():
        ratio = "snapshot_values_ratio" if name == "snapshot" else f"{name}_ratio"
        figures |= {f"{name}_ms": ours, ratio: other / ours}
    return figures | feed(fabric)


def main(argv: list[str]) -> None:
    """Print a table and, last, one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100 switches, 1,000 flows")
    quick = parser.parse_args(argv).quick
    figures = summary(measure(*((100, 1000) if quick else (1000, 100_000))))
    table = Table("figure", "value")
    for name, value in figures.items():
        table.add_row(name, f"{value:.2f}")
    Console(width=120).print(table)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
