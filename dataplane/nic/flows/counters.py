"""Hit counters of rules: memory that outlives every table, readable by any thread at any time."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass

from dataplane.native import sizeof
from dataplane.nic.flows.structures import STRIPE_BYTES, STRIPE_HITS, STRIPES, Hits


@dataclass(frozen=True, slots=True)
class RuleCount:
    """Hits of a rule, and failures of its Python function."""

    packets: int
    bytes: int
    failures: int = 0


class HitCounters:
    """Hits by their address in the first stripe; a driver thread may still add to them after the rule is gone."""

    def __init__(self) -> None:
        self._blocks: list[ctypes.Array[ctypes.c_uint8]] = []
        self._free: list[int] = []

    def take(self) -> int:
        """Return the address of zeroed hits."""
        if not self._free:
            block = (ctypes.c_uint8 * (STRIPES * STRIPE_BYTES))()
            self._blocks.append(block)
            first = ctypes.addressof(block)
            self._free += reversed(range(first, first + STRIPE_HITS * sizeof(Hits), sizeof(Hits)))
        return self._free.pop()

    def give_back(self, addresses: Iterable[int]) -> None:
        """Release hits for reuse, from 0; no thread may still add to them."""
        for address in addresses:
            for stripe in range(STRIPES):
                ctypes.memset(address + stripe * STRIPE_BYTES, 0, sizeof(Hits))
            self._free.append(address)


def read_hits(address: int, failures: int = 0) -> RuleCount:
    """Return the hits at an address."""
    stripes = [Hits.from_address(address + stripe * STRIPE_BYTES) for stripe in range(STRIPES)]
    return RuleCount(sum(hits.packets for hits in stripes), sum(hits.bytes for hits in stripes), failures)
