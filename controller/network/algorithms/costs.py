"""Link costs: 48 bits of delay (ns) and, below, 16 bits of hops, so that one comparison of integers does both.

Every usable link costs at least one hop: costs are positive, so paths of least cost cannot contain a cycle.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

HOP_BITS: Final = 16
HOP: Final = 1
UNREACHABLE: Final = (1 << 64) - 1
"""The cost of a switch from which no path leads to the destination."""
FORBIDDEN: Final = UNREACHABLE
"""The cost of a link that must not be used."""
MAX_SWITCHES: Final = (1 << HOP_BITS) - 1
MAX_LINK_NS: Final = 1 << 31
"""Longer delays of one link (2.1 s) count as this, so that no path's cost can overflow."""

Costs = npt.NDArray[np.uint64]


def link_costs(delay_ns: npt.NDArray[np.int64], usable: npt.NDArray[np.bool_]) -> Costs:
    """Return the cost of each link, FORBIDDEN for those not usable; negative delays count as 0."""
    clipped = np.clip(delay_ns, 0, MAX_LINK_NS).astype(np.uint64)
    return np.where(usable, (clipped << np.uint64(HOP_BITS)) | np.uint64(HOP), np.uint64(FORBIDDEN))


def link_cost(delay_ns: int) -> int:
    """Return the cost of one usable link."""
    return min(max(delay_ns, 0), MAX_LINK_NS) << HOP_BITS | HOP


def delay_of(cost: int) -> int:
    """Return the delay (ns) in a path's cost."""
    return cost >> HOP_BITS


def hops_of(cost: int) -> int:
    """Return the links in a path's cost."""
    return cost & ((1 << HOP_BITS) - 1)
