"""Scenario of the named-content demo: reads by popularity, a write, a value replaced at the producer, new names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from controller.apps.demo.store.world import US, Client, Server, World
from controller.network.content.settings import StoreSettings
from dataplane.clock import NS_PER_MS
from dataplane.errors import FabricError
from dataplane.store.dialogues import Content, reading, writing
from dataplane.store.producer_core import ProducerSettings
from dataplane.topology.values import Topology

NAMES: Final = 60
COPIES: Final = 12
FRESHNESS_MS: Final = 40
INTERVAL_NS: Final = 50 * NS_PER_MS
SERVICE_NS: Final = 10 * US
_MOST_READERS: Final = 8
_PAUSE_NS: Final = 200 * US
_FIRST_READS: Final = 100
_READS: Final = 300
_LEARNING_READS: Final = 480
_AFTER_WRITE: Final = 50
_FIRST_PORT: Final = 30_000


@dataclass(frozen=True, slots=True)
class Read:
    """One read: its start, duration, responder, and whether the version was older than allowed."""

    began_ns: int
    took_ns: int
    by_switch: bool
    version: int
    is_old: bool


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the demo: its name, its reads, and its outcome in words."""

    name: str
    reads: tuple[Read, ...]
    remark: str = ""


@dataclass(frozen=True, slots=True)
class StoreOutcome:
    """Results of the demo; `switch` is the producer's, which keeps the copies."""

    topology: Topology
    producer: str
    writer: str
    readers: tuple[str, ...]
    switch: str
    phases: tuple[Phase, ...]
    copies: int


def roles(topology: Topology, producer: str | None = None) -> tuple[str, str, tuple[str, ...]]:
    """Return the producer (by default the last host), the writer and the readers; raise FabricError for too few."""
    collector = None if topology.collector is None else topology.collector.host
    hosts = [host.name for host in topology.hosts if host.name != collector]
    if producer is not None and producer not in topology.host:
        raise FabricError(f"topology {topology.name} has no host {producer!r}")
    serving = producer or (hosts[-1] if hosts else "")
    others = [host for host in hosts if host != serving]
    if len(others) < 2:
        raise FabricError(f"topology {topology.name}: needs three hosts: producer, writer and reader")
    return serving, others[-1], tuple(others[:-1][:_MOST_READERS])


class StoreRun:
    """One run of the demo; `run` returns what it showed."""

    def __init__(self, topology: Topology, producer: str | None, seed: int) -> None:
        self.producer, self.writer, self.readers = roles(topology, producer)
        settings = StoreSettings(producers=(self.producer,), interval_ns=INTERVAL_NS, copies=COPIES)
        self.topology = topology
        self._world = World(topology, settings, seed=seed)
        fresh = ProducerSettings(freshness_ms=FRESHNESS_MS)
        self._server = Server(self._world, self.producer, service_ns=SERVICE_NS, settings=fresh)
        ports = range(_FIRST_PORT, _FIRST_PORT + len(self.readers))
        self._clients = [
            Client(self._world, host, self.producer, port=p) for host, p in zip(self.readers, ports, strict=True)
        ]
        self._writing = Client(self._world, self.writer, self.producer, port=_FIRST_PORT - 1)
        self._names = [f"/model/part-{number}" for number in range(NAMES)]
        self._least: dict[str, int] = {}
        self._count = 0

    def run(self) -> StoreOutcome:
        """Run the phases one after the other."""
        with closing(self._server):
            return self._run()

    def _run(self) -> StoreOutcome:
        names, server, world = self._names, self._server, self._world
        for name in names:
            self._least[name] = server.producer_core.publish(name, name.encode() * 10, world.fabric.now_ns)
        switch = world.topology.attachment[self.producer].node
        phases = [
            Phase("first reads", self._by_popularity(names, _FIRST_READS), "no copies yet"),
            Phase("copies are chosen", self._by_popularity(names, _LEARNING_READS), "by what the switch counts"),
            Phase("copies in the switch", self._by_popularity(names, _READS)),
        ]
        copies = len(world.stores[switch].copies)
        phases[-1] = replace(phases[-1], remark=f"{copies} of {NAMES} names are cached")
        phases += [self._write(names[0]), self._publish(names[1])]
        fashion = names[NAMES // 2 :] + names[: NAMES // 2]
        phases += [
            Phase("other names become popular", self._by_popularity(fashion, _LEARNING_READS), "copies are replaced"),
            Phase("copies have followed", self._by_popularity(fashion, _READS)),
        ]
        return StoreOutcome(world.topology, self.producer, self.writer, self.readers, switch, tuple(phases), copies)

    def _by_popularity(self, names: Sequence[str], count: int) -> tuple[Read, ...]:
        """Read this many times, by the readers in turn, with the first names most popular (Zipf)."""
        chances = list(accumulate(1 / (rank + 1) for rank in range(len(names))))
        return tuple(map(self._read, self._world.chance.choices(names, cum_weights=chances, k=count)))

    def _write(self, name: str) -> Phase:
        """Write a name with a cached copy while others read it; no read may return the old value afterwards."""
        self._read(name)
        before, began_ns = self._least[name], self._world.fabric.now_ns
        write = self._writing.begin(writing(name, b"by a worker"))
        reads = self._read_until(name, lambda: write.is_over)
        if write.error is not None:
            raise write.error
        took_us = (write.ended_ns - began_ns) / US
        assert isinstance(write.result, int)
        self._least[name] = write.result
        reads += [self._read(name) for _ in range(_AFTER_WRITE)]
        remark = f"version {write.result} after {before}, acknowledged after {took_us:.0f} us"
        return Phase(f"{name} is written", tuple(reads), remark)

    def _publish(self, name: str) -> Phase:
        """Replace a value at the producer, without a packet: switches may serve their copy while it is fresh."""
        self._read(name)
        at_ns = self._world.fabric.now_ns
        version = self._server.producer_core.publish(name, b"from the producer", at_ns)
        reads: list[Read] = []
        self._read_until(name, lambda: bool(reads) and reads[-1].version >= version, reads)
        self._least[name] = version
        late = sum(read.version < version for read in reads)
        seen_ms = (reads[-1].began_ns + reads[-1].took_ns - at_ns) / NS_PER_MS
        remark = f"{late} reads of the old version, for {seen_ms:.1f} ms: a copy is fresh for {FRESHNESS_MS} at most"
        return Phase(f"{name} is replaced at the producer", tuple(reads), remark)

    def _read_until(self, name: str, over: Callable[[], bool], reads: list[Read] | None = None) -> list[Read]:
        collected = [] if reads is None else reads
        while not over():
            collected.append(self._read(name))
        return collected

    def _read(self, name: str) -> Read:
        """Read a name by the next reader, and wait a little."""
        client = self._clients[self._count % len(self._clients)]
        self._count += 1
        asked, began_ns, least = self._server.interests, self._world.fabric.now_ns, self._least[name]
        content, took_ns = client.timed(reading(name))
        assert isinstance(content, Content)
        by_switch = self._server.interests == asked
        self._world.run(_PAUSE_NS)
        return Read(began_ns, took_ns, by_switch, content.version, content.version < least)
