"""Time of one all-reduce against the number of workers, in virtual time: what the network needs, hosts need nothing.

Workers have 10 Gbit/s links, 64 at most on a leaf, leaves on one spine, 1 us of propagation a link; above 64 workers
switches add up in two levels. Each has as many values as are asked for; all begin at once, nothing is lost. Beside it
what hosts would need at the least, computed, if they all hung on one switch that takes no time: by a ring (2 (n - 1)
steps), which is best for long vectors, and by recursive halving and doubling (Thakur and others, 2005; 2 log2 n steps).
The ratio is that of the quicker of the two.

    .venv/bin/python tests/benchmarks/workers.py           # --quick: 64 workers at most
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.topology.families import leaf_spine
from tests.integration.virtual_allreduce import MS, World, ranks

SIZES = ((1, 2), (1, 8), (1, 64), (4, 2), (4, 16), (4, 64), (16, 64))
"""Leaves, and workers on each."""
RATE_BPS, DELAY_NS = 10_000_000_000, 1_000
HEADERS_BYTES, LEAST_FRAME, MOST_PAYLOAD = 66, 84, 1472
"""Ethernet with preamble and gap, IPv4, UDP; the shortest frame on the wire; UDP's payload at an MTU of 1,500."""
WINDOW = 64


@dataclass(frozen=True, slots=True)
class Measured:
    """One all-reduce: workers, levels of switches, time until the last has its result, least time among hosts."""

    workers: int
    levels: int
    time_us: float
    ring_us: float
    doubling_us: float

    @property
    def ratio(self) -> float:
        """Factor by which hosts without the switch are slower."""
        return min(self.ring_us, self.doubling_us) / self.time_us


def measure(leaves: int, hosts: int, size: int) -> Measured:
    """Run one all-reduce; its result is checked."""
    world = World(leaf_spine(1, leaves, hosts), pipeline_factory=compiled_pipeline)
    workers = leaves * hosts
    job = world.start([f"h{number + 1}" for number in range(workers)], window=WINDOW)
    working = list(ranks(world, job).values())
    values = np.random.default_rng(1).normal(size=(workers, size)).astype(np.float32)
    for rank, mine in zip(working, values, strict=True):
        rank.again_ns = 100 * MS
        rank.reduce(mine)
    world.run(90 * MS)
    exact = values.astype(np.float64).sum(axis=0)
    for rank in working:
        assert rank.done_ns, f"{rank.host} has no result"
        assert rank.worker is not None
        assert np.abs(rank.worker.result - exact).max() < 1e-3
    time_us = max(rank.done_ns for rank in working) / 1000
    return Measured(workers, 1 if leaves == 1 else 2, time_us, ring_us(workers, size), doubling_us(workers, size))


def ring_us(workers: int, size: int) -> float:
    """Return what a ring needs at the least: 2 (n - 1) steps of 1/n of the vector."""
    return 2 * (workers - 1) * _step_us(-(-4 * size // workers))


def doubling_us(workers: int, size: int) -> float:
    """Return what recursive halving and doubling needs at the least: halves, quarters and so on, then back."""
    steps = (workers - 1).bit_length()
    return 2 * sum(_step_us(-(-4 * size // (2 << step))) for step in range(steps))


def _step_us(chunk: int) -> float:
    """Return the time of a step: propagation over two links, and serialisation of a chunk once."""
    on_wire = max(chunk + -(-chunk // MOST_PAYLOAD) * HEADERS_BYTES, LEAST_FRAME)
    return (2 * DELAY_NS + 8e9 * on_wire / RATE_BPS) / 1000


def main(argv: list[str]) -> int:
    """Print a table and one line of figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--values", type=int, default=4096)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args(argv)
    table = Table("workers", "levels", "all-reduce, us", "ring, us", "halving and doubling, us", "ratio")
    results = []
    for leaves, hosts in SIZES:
        if not arguments.quick or leaves * hosts <= 64:
            result = measure(leaves, hosts, arguments.values)
            results.append(result)
            times = (f"{time:.1f}" for time in (result.time_us, result.ring_us, result.doubling_us))
            table.add_row(str(result.workers), str(result.levels), *times, f"{result.ratio:.1f}")
    Console().print(table)
    figures: dict[str, float] = {"values": arguments.values}
    for result in results:
        figures[f"allreduce_{result.workers}_workers_{result.levels}_levels_us"] = round(result.time_us, 1)
        figures[f"ratio_{result.workers}_workers_{result.levels}_levels"] = round(result.ratio, 2)
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
