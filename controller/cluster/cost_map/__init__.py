"""Costs between any two hosts of a fabric, as its packets go now: delay, free bandwidth, loss, age and path.

The term cost map is RFC 7285's (ALTO).
"""

from __future__ import annotations

from controller.cluster.cost_map.cost_map import CostMap
from controller.cluster.cost_map.model import CostModel
from controller.cluster.cost_map.values import (
    UNLIMITED_BPS,
    UNREACHABLE_NS,
    Basis,
    HostCost,
    HostLinkState,
    LinkUse,
    Load,
    PathShare,
)

__all__ = [
    "UNLIMITED_BPS",
    "UNREACHABLE_NS",
    "Basis",
    "CostMap",
    "CostModel",
    "HostCost",
    "HostLinkState",
    "LinkUse",
    "Load",
    "PathShare",
]
