"""Settings of a simulation."""

from __future__ import annotations

from controller.scheduling.simulation.network import Spreading
from controller.scheduling.simulation.queue import Order
from dataplane.config import Strict


class SimulationSettings(Strict, frozen=True):
    """How a workload is replayed.

    `order`: may what does not fit be overtaken. `spreading`: does a transfer take one of several paths, or a part of
    all. `seed` draws paths; a profile's own seed breaks ties between nodes.
    """

    order: Order = Order.OVERTAKING
    spreading: Spreading = Spreading.HASH
    seed: int = 0
