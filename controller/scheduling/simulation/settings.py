"""Settings of a simulation."""

from __future__ import annotations

from controller.scheduling.simulation.network import Spreading
from controller.scheduling.simulation.queue import Order
from dataplane.config import Strict


class SimulationSettings(Strict, frozen=True):
    """Settings for replaying a workload.

    `order`: whether units that do not fit may be overtaken. `spreading`: whether a transfer takes one of several paths,
    or a part of all. `seed` draws paths; a profile's own seed breaks ties between nodes.
    """

    order: Order = Order.OVERTAKING
    spreading: Spreading = Spreading.HASH
    seed: int = 0
