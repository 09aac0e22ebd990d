"""Cost of one cycle of the chain by stage: snapshot, the feed's message, its reader, the path server's step.

A leaf-spine fabric (20 switches) and a fat tree (180) in which telemetry shows 1,000, 4,096 and 20,000 flows between
hosts of different switches, each on a randomly drawn shortest path; every link is measured, with new delays in each
round. No link is full, so nothing is decided. CPU time of this process, which does nothing else: the minimum and the
median of several rounds. Limits on flows are raised above their defaults where needed.

    .venv/bin/python tests/benchmarks/flow_stages.py         # --quick: 20 switches, 1,000 flows
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

import numpy as np
from rich.console import Console
from rich.table import Table

from collectors.counters import Counters
from collectors.decode.samples import LinkSample
from collectors.decode.stitch import SeenPath
from collectors.feed import feed_pb2
from collectors.feed.snapshots import snapshot_message, snapshot_of
from collectors.native.accumulator import NativeStore
from collectors.native.fallback import NativeStitcher
from collectors.settings import StateSettings
from collectors.state.builder import NetworkStateBuilder
from collectors.values import DelaySource, FlowKey
from controller.network.algorithms.link_table import LinkTable
from controller.network.algorithms.trees import DestinationTrees
from controller.network.paths.core import PathServerCore
from controller.network.paths.settings import DecideSettings
from dataplane.clock import VirtualClock
from dataplane.rpc.messages import parse
from dataplane.topology.file import load_topology
from dataplane.topology.values import LinkKey, Topology
from dataplane.wire.ipv4 import PROTOCOL_UDP

FABRICS: Final = {20: "leaf-spine:spines=4,leaves=16,hosts=16", 180: "fat-tree:k=12"}
FLOWS: Final = (1000, 4096, 20_000)
STAGES: Final = ("snapshot", "message", "reader", "step")
INTERVAL_NS: Final = 100_000_000
_FRAME_BYTES: Final = 1000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Case:
    """CPU ms of each round by stage, and the length of a message."""

    switches: int
    flows: int
    took_ms: dict[str, list[float]]
    nbytes: int


class Chain:
    """A collector's state and a path server without sockets: what lies between reports and routes."""

    def __init__(self, topology: Topology, flows: int) -> None:
        self.topology, self.chance = topology, random.Random(1)
        self.clock = VirtualClock(10 * INTERVAL_NS)
        settings, counters = StateSettings(max_flows=max(flows, 8192), max_routes=20_000), Counters()
        self.store = NativeStore(topology, settings, counters)
        stitcher = NativeStitcher(topology, settings, counters, self.store)
        self.builder = NetworkStateBuilder(topology, self.clock, settings, counters, self.store, stitcher)
        self.core = PathServerCore(topology, DecideSettings(), max_flows=max(flows, 4096))
        self.paths = list(self._paths(flows))

    def _paths(self, count: int) -> Iterator[tuple[FlowKey, tuple[str, ...]]]:
        """Yield flows between hosts of different switches, each with a shortest path."""
        table = LinkTable.of(self.topology)
        trees, attachment = DestinationTrees(table, table.configured_costs()), self.topology.attachment
        for number in range(count):
            while True:
                src, dst = self.chance.sample(self.topology.hosts, 2)
                if attachment[src.name].node != attachment[dst.name].node:
                    break
            at, end = (table.switch_number[attachment[host.name].node] for host in (src, dst))
            way = [at]
            while way[-1] != end:
                way.append(int(table.head[self.chance.choice(list(trees.next_links(way[-1], end)))]))
            key = FlowKey(src.ipv4, dst.ipv4, PROTOCOL_UDP, 1024 + number % 60_000, 5001)
            yield key, tuple(table.switches[node] for node in way)

    def report(self) -> None:
        """Report new measurements of every link and flow."""
        self.clock.advance_to(self.clock.now_ns() + INTERVAL_NS)
        now_ns = self.clock.now_ns()
        for key, link in self.topology.directed_links.items():
            tail = self.topology.switch.get(key.src)
            if tail is not None:
                delay_ns = link.delay_ns + self.chance.randrange(20_000)
                self.store.take_sample(
                    LinkSample(key, tail.node_id, None, now_ns, delay_ns, DelaySource.STAMPS, 0, 100)
                )
        for flow, way in self.paths:
            self.store.take_packet(flow, _FRAME_BYTES, now_ns)
            delay_ns = 10_000 + self.chance.randrange(20_000)
            self.store.take_path(SeenPath(flow, way, tuple(map(LinkKey, way, way[1:])), None, now_ns, delay_ns))


def timed(took_ms: list[float], stage: Callable[[], T]) -> T:
    """Return what a stage returns, and note its CPU time."""
    begun_ns = time.process_time_ns()
    result = stage()
    took_ms.append((time.process_time_ns() - begun_ns) / 1e6)
    return result


def measure(switches: int, flows: int, rounds: int) -> Case:
    """Measure one size."""
    chain = Chain(load_topology(FABRICS[switches]), flows)
    took: dict[str, list[float]] = {stage: [] for stage in STAGES}
    data = b""
    for number in range(rounds + 1):
        chain.report()
        taken = timed(took["snapshot"], chain.builder.snapshot)
        data = timed(took["message"], lambda: snapshot_message(taken).SerializeToString())  # noqa: B023
        read = timed(took["reader"], lambda: snapshot_of(parse(feed_pb2.Snapshot, data)))  # noqa: B023
        timed(took["step"], lambda: chain.core.step(read, chain.clock.now_ns()))  # noqa: B023
        if number == 0:
            # The first round meets all flows for the first time.
            took = {stage: [] for stage in STAGES}
    assert chain.core.flows > flows // 2
    return Case(switches, flows, took, len(data))


def summary(cases: list[Case]) -> dict[str, float]:
    """Return the figures of the last line."""
    figures: dict[str, float] = {}
    for case in cases:
        name = f"{case.switches}_switches_{case.flows}_flows"
        figures |= {f"{stage}_ms_{name}": round(float(np.median(took)), 2) for stage, took in case.took_ms.items()}
        figures[f"bytes_{name}"] = case.nbytes
    return figures


def main(argv: list[str]) -> None:
    """Print a table and, last, one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20 switches, 1,000 flows")
    quick = parser.parse_args(argv).quick
    sizes = [(20, 1000)] if quick else [(switches, flows) for switches in FABRICS for flows in FLOWS]
    cases = [measure(*size, 3 if quick else 7) for size in sizes]
    table = Table("switches", "flows", *(f"{stage}, ms" for stage in STAGES), "bytes", title="CPU ms: median (least)")
    for case in cases:
        times = (f"{np.median(took):.1f} ({min(took):.1f})" for took in case.took_ms.values())
        table.add_row(str(case.switches), f"{case.flows:,}", *times, f"{case.nbytes:,}")
    Console(width=120).print(table)
    print(json.dumps(summary(cases)))


if __name__ == "__main__":
    main(sys.argv[1:])
