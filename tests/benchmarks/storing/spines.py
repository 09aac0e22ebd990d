"""Cost of readers of long values in a leaf-spine: without copies, with the producer switch's, with all switches'."""

from __future__ import annotations

import statistics
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate

from controller.network.content.settings import StoreSettings
from controller.network.tables.store import CELLS
from dataplane.store.dialogues import Content, reading
from dataplane.store.talk import Talk
from dataplane.topology.families import leaf_spine
from tests.integration.virtual_store import MS, US, Client, Server, World

RACKS, PRODUCER = 4, "h8"
READERS = tuple(f"h{number}" for number in range(1, 7))
VALUES, BYTES, EXPONENT = 60, 8_000, 0.99
STEP_NS = 20 * US
MODES = {
    "none": StoreSettings(producers=(PRODUCER,), interval_ns=10 * MS, copies=0),
    "producer's switch": StoreSettings(producers=(PRODUCER,), interval_ns=10 * MS, copies=CELLS),
    "all switches": StoreSettings(producers=(PRODUCER,), interval_ns=10 * MS, copies=CELLS, on_the_way=True),
}


@dataclass(frozen=True, slots=True)
class SpineLoad:
    """Bytes that spines sent for a read, and the median and the longest of 20 reads in us."""

    bytes_a_read: float
    median_us: float
    p95_us: float
    answered: float
    """Share of interests that did not reach the producer."""


def measure(mode: str, reads: int) -> SpineLoad:
    """Let all readers read by Zipf's law at once, each one value after the other; the first half is not counted."""
    world = World(leaf_spine(2, RACKS, 2, rate="1 Gbit/s"), MODES[mode])
    server = Server(world, PRODUCER)
    with closing(server):
        names = [f"/model/{number}" for number in range(VALUES)]
        for number, name in enumerate(names):
            server.producer_core.publish(name, number.to_bytes(2, "big") * (BYTES // 2), world.fabric.now_ns)
        server.announce("/model")
        world.run(50 * MS)
        _read(world, names, reads // 2)
        before, asked = _spine_bytes(world), server.interests
        times_us = _read(world, names, reads // 2)
        sent, interests = _spine_bytes(world) - before, server.interests - asked
    every = len(times_us) * (1 + -(-BYTES // 1024))
    return SpineLoad(
        sent / len(times_us),
        statistics.median(times_us),
        statistics.quantiles(times_us, n=20)[-1],
        max(0.0, 1 - interests / every),
    )


def _read(world: World, names: list[str], reads: int) -> list[float]:
    weights = list(accumulate(1 / (rank + 1) ** EXPONENT for rank in range(len(names))))
    clients = [Client(world, host, None) for host in READERS]
    busy: list[tuple[Client, Talk, int] | None] = [None] * len(clients)
    times_us: list[float] = []
    while len(times_us) < reads:
        for place, (client, current) in enumerate(zip(clients, busy, strict=True)):
            if current is None or current[1].is_over:
                if current is not None:
                    assert isinstance(current[1].result, Content), current[1].error
                    times_us.append((current[1].ended_ns - current[2]) / US)
                (name,) = world.chance.choices(names, cum_weights=weights)
                busy[place] = client, client.begin(reading(name)), world.fabric.now_ns
        world.run(STEP_NS)
    return times_us


def _spine_bytes(world: World) -> int:
    spines = (node.name for node in world.topology.switches if node.name.startswith("spine"))
    return sum(port.tx_bytes for spine in spines for port in world.fabric.switch(spine).counters().ports.values())
