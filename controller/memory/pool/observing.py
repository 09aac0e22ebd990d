"""Observation of a request and the hosts of a pool: the six features, and the network's.

The features are those of the simulated pool (docs/cluster/learning-environment.md), so that an agent trained there can
decide here: operations and pages on logarithmic scales, the written part of the bytes, free fast memory, and the local
part of the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.learning.agent.purpose import MadeFor
from controller.learning.policy.scales import PAGE_BYTES, logarithmic
from controller.learning.values import Observation
from controller.memory.pool.catalogue import Catalogue
from controller.memory.pool.values import Place, Request

_UNKNOWN_NS: Final = 100_000
_UNKNOWN_BPS: Final = 1_000_000_000
"""Assumed delay and rate of a way that was not measured yet."""


@dataclass(frozen=True, slots=True)
class WayFigures:
    """Delay of half a round trip and rate of block transfers from one host to another."""

    delay_ns: int = _UNKNOWN_NS
    rate_bps: int = _UNKNOWN_BPS


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

    def observe(self, request: Request, *, has_network: bool) -> Observation:
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
        )

    def can_run(self, host: int, blocks: int) -> bool:
        """Return whether a host is there and has fast memory for so many blocks of each request that runs at a time."""
        place, cores = Place(host, 0), self.catalogue.hosts[host].cores
        return self.catalogue.up[host] and blocks * cores <= self.catalogue.capacity(place)

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
