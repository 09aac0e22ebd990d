"""Systems for inputs, stated figure by figure: engines, memories, distances."""

from __future__ import annotations

from itertools import cycle, islice
from typing import Final

import numpy as np

from controller.learning.environment.values import (
    Engine,
    EngineKind,
    Medium,
    Memory,
    Network,
    Node,
    System,
)
from dataplane.config import Settings, Strict

MIB: Final = 1 << 20
GIB: Final = 1 << 30

ENGINES: Final = {
    EngineKind.CPU: Engine(EngineKind.CPU, 4, 20_000_000_000, 20_000_000_000),
    EngineKind.GPU: Engine(EngineKind.GPU, 1, 800_000_000_000, 200_000_000_000, tasks_per_core=2),
    EngineKind.FPGA: Engine(EngineKind.FPGA, 1, 100_000_000_000, 400_000_000_000),
    EngineKind.XPU: Engine(EngineKind.XPU, 2, 200_000_000_000, 400_000_000_000),
}
"""Engines of a pool's nodes, with the peak operations/s of one of their cores. Stated, not measured."""
COMBINED: Final = (
    (EngineKind.CPU,),
    (EngineKind.CPU, EngineKind.GPU),
    (EngineKind.CPU, EngineKind.FPGA),
    (EngineKind.XPU,),
)
"""Engines alone and combined: the kinds of nodes, in turn."""


class Racks(Settings, frozen=True):
    """Delay and rate between nodes: those of a rack are nearer to one another than to the rest."""

    nodes_a_rack: int = 4
    near_ns: int = 2_000
    far_ns: int = 10_000
    near_bps: int = 25_000_000_000
    far_bps: int = 10_000_000_000

    def network(self, nodes: int) -> Network:
        """Return the network between this many nodes."""
        racks = np.arange(nodes) // self.nodes_a_rack
        is_near = racks[:, None] == racks[None, :]
        delay_ns = np.where(is_near, self.near_ns, self.far_ns).astype(np.int64)
        rate_bps = np.where(is_near, self.near_bps, self.far_bps).astype(np.int64)
        return Network(np.zeros(1, np.int64), delay_ns[None], rate_bps[None])


class PoolSystem(Strict, frozen=True):
    """Nodes with engines alone and combined, DRAM as fast memory, SCM and NVM in turn as homes of data."""

    nodes: int = 16
    fast_bytes: int = 16 * MIB
    home_bytes: int = GIB
    racks: Racks = Racks()

    def made(self) -> System:
        """Return the system."""
        kinds = islice(cycle(COMBINED), self.nodes)
        media = islice(cycle((Medium.SCM, Medium.NVM)), self.nodes)
        nodes = tuple(
            Node(
                f"n{number}",
                tuple(ENGINES[kind] for kind in combined),
                (Memory.of(Medium.DRAM, self.fast_bytes), Memory.of(medium, self.home_bytes)),
            )
            for number, (combined, medium) in enumerate(zip(kinds, media, strict=True))
        )
        return System(nodes, self.racks.network(self.nodes))
