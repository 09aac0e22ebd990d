"""Observation of a request and the hosts of a pool: the six features, the network's, and those of load.

The features are those of the simulated pool (docs/cluster/learning-environment.md), so that an agent trained there can
decide here: operations and pages on logarithmic scales, the written part of the bytes, free fast memory, and the local
part of the data. Features of load are predicted from measured means: a real pool does not know when a request will end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.learning.agent.purpose import MadeFor
from controller.learning.environment.model import LOAD_BITS, LOAD_UNIT_NS, QUEUE_BITS
from controller.learning.policy.scales import PAGE_BYTES, logarithmic
from controller.learning.values import Floats, Observation
from controller.memory.pool.catalogue import Catalogue
from controller.memory.pool.values import Place, Request
from dataplane.clock import NS_PER_S

_UNKNOWN_NS: Final = 100_000
_UNKNOWN_BPS: Final = 1_000_000_000
"""Assumed delay and rate of a way that was not measured yet."""


@dataclass(frozen=True, slots=True)
class WayFigures:
    """Delay of half a round trip and rate of block transfers from one host to another."""

    delay_ns: int = _UNKNOWN_NS
    rate_bps: int = _UNKNOWN_BPS


@dataclass(frozen=True, slots=True)
class ActorLoad:
    """Load of a host with cores: assigned requests, blocks on their way to and from it, and measured means.

    `service_ns` is a request's time without its wait, `local_ns` that of reading a block of its own home, the rates are
    operations per second of a core.
    """

    assigned: int = 0
    arriving: int = 0
    leaving: int = 0
    service_ns: float = 0.0
    local_ns: float = 0.0
    float_ops_per_s: int = 1
    int_ops_per_s: int = 1


@dataclass(frozen=True, slots=True)
class Situation:
    """State of a pool at a decision; an action is a host with cores, `actors` has their numbers.

    `running` and `slots` count requests over the actors. `int_ratio` converts int operations to float ones: the ratio
    of the measured peak rates. `ways` are by destination and source.
    """

    catalogue: Catalogue
    actors: Sequence[int]
    block_bytes: int
    running: int
    slots: int
    int_ratio: float
    ways: Mapping[tuple[int, int], WayFigures]
    loads: Sequence[ActorLoad]

    def observe(self, request: Request, *, has_network: bool, has_load: bool = False) -> Observation:
        """Return the observation of a request."""
        blocks, catalogue = request.blocks, self.catalogue
        count = max(len(blocks), 1)
        fast = [Place(host, 0) for host in self.actors]
        written = len(set(request.writes))
        operations = request.float_operations + request.int_operations * self.int_ratio
        pages = -(-len(blocks) * self.block_bytes // PAGE_BYTES)
        delay, bandwidth = self._network(blocks) if has_network else (None, None)
        return Observation.of(
            utilisation=self.running / max(self.slots, 1),
            operations=float(logarithmic(operations)),
            size=float(logarithmic(pages)),
            is_write=written / count,
            free=[1 - catalogue.used(place) / catalogue.capacity(place) for place in fast],
            similarity=[catalogue.local(host, blocks) / count for host in self.actors],
            candidates=[self.can_run(host, len(blocks)) for host in self.actors],
            delay=delay,
            bandwidth=bandwidth,
            load=self._loads(request) if has_load else (),
        )

    def can_run(self, host: int, blocks: int) -> bool:
        """Return whether a host is there and has fast memory for so many blocks of each request that runs at a time."""
        place, cores = Place(host, 0), self.catalogue.hosts[host].cores
        return self.catalogue.up[host] and blocks * cores <= self.catalogue.capacity(place)

    def _loads(self, request: Request) -> Sequence[Floats]:
        """Return queued, wait, compute, arriving, leaving, fetching and evicting of each actor.

        1 stands for figures of a host that cannot run the request.
        """
        rows = [self._load(number, request) for number in range(len(self.actors))]
        queued, *others = np.array(rows, np.float64).T
        times = np.minimum(np.log2(1 + np.array(others) / LOAD_UNIT_NS) / LOAD_BITS, 1)
        return (
            np.minimum(np.log2(1 + queued) / QUEUE_BITS, 1).astype(np.float32),
            *times.astype(np.float32),
        )

    def _load(self, number: int, request: Request) -> tuple[float, ...]:
        host, load = self.actors[number], self.loads[number]
        cores, place = self.catalogue.hosts[host].cores, Place(host, 0)
        block_ns = self._block_ns(host)
        arriving, leaving = load.arriving * block_ns, load.leaving * block_ns
        if not self.can_run(host, len(request.blocks)):
            return load.assigned / cores, np.inf, np.inf, arriving, leaving, np.inf, np.inf
        known = {key: self.catalogue.blocks.get(key) for key in request.blocks}
        missing = [key for key, block in known.items() if block is None or block.cached != place]
        fetching = sum(
            load.local_ns if block.source.host == host else self._way_ns(host, block.source.host)
            for key in missing
            if key in request.reads and (block := known[key]) is not None
        )
        room = self.catalogue.capacity(place) - self.catalogue.used(place)
        computing = request.float_operations / load.float_ops_per_s + request.int_operations / load.int_ops_per_s
        return (
            load.assigned / cores,
            max(load.assigned - cores + 1, 0) / cores * load.service_ns,
            computing * NS_PER_S,
            arriving,
            leaving,
            fetching,
            max(len(missing) - room, 0) * self.block_bytes,
        )

    def _way_ns(self, host: int, source: int) -> float:
        way = self.ways.get((host, source), WayFigures())
        return 2 * way.delay_ns + 8 * self.block_bytes * NS_PER_S / way.rate_bps

    def _block_ns(self, host: int) -> float:
        """Return the mean time of a block on its way to a host."""
        times = [self._way_ns(to, source) for to, source in self.ways if to == host]
        return sum(times) / len(times) if times else 0.0

    def _network(self, blocks: Sequence[int]) -> tuple[list[float], list[float]]:
        """Return for each actor the longest delay to missing data, and the least bandwidth over the fastest."""
        sources = {
            block.source.host
            for key in blocks
            if (block := self.catalogue.blocks.get(key)) is not None and block.version
        }
        fastest = max((way.rate_bps for way in self.ways.values()), default=_UNKNOWN_BPS)
        delays, bandwidths = [], []
        for host in self.actors:
            ways = [self.ways.get((host, source), WayFigures()) for source in sources if source != host]
            delays.append(max((float(logarithmic(way.delay_ns)) for way in ways), default=0.0))
            bandwidths.append(min((way.rate_bps / fastest for way in ways), default=1.0))
        return delays, bandwidths


def example(made_for: MadeFor) -> Observation:
    """Return an observation like those of a pool with one host."""
    one, none = np.ones(1), np.zeros(1)
    return Observation.of(
        utilisation=0,
        operations=0,
        size=0,
        is_write=0,
        free=one,
        similarity=none,
        candidates=one,
        delay=none if made_for.network else None,
        bandwidth=one if made_for.network else None,
        load=[none] * 7 if made_for.load else (),
    )
