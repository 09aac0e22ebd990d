"""Plans of operators with the data between them, their placement, and its explanation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from controller.acceleration.values import Decision, Machines, Work
from controller.cluster.operators import OperatorGraph

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Edge:
    """Data that an operator reads from another one, GB on each machine; both by their position in the plan."""

    src: int
    dst: int
    gb: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A graph's operators as work on each machine, each after all of its inputs; outputs of `ends` leave the plan."""

    graph: OperatorGraph
    works: tuple[Work, ...]
    edges: tuple[Edge, ...]
    ends: frozenset[int]


@dataclass(frozen=True, eq=False)
class Problem:
    """Objective: the operators' own seconds, and those of moving data along each edge between two devices.

    `seconds` [operator, device] is infinite if an operator cannot run; `moves` [edge, of src, of dst]. The edges go
    from lower to higher operators, two operators have at most one. Device 0, the CPU, runs everything.
    """

    seconds: Floats
    edges: tuple[tuple[int, int], ...]
    moves: Floats

    def cost_s(self, devices: tuple[int, ...]) -> float:
        """Return the cost of a choice of a device for each operator."""
        own = sum(float(self.seconds[at, device]) for at, device in enumerate(devices))
        return own + sum(float(self.moves[at, devices[src], devices[dst]]) for at, (src, dst) in enumerate(self.edges))


class Method(StrEnum):
    """Method of choosing devices for a whole plan; all but `search` find the minimum."""

    TREE = "dynamic programming over the tree of operators, exact"
    CONDITIONED = "dynamic programming for each choice for results that several operators read, exact"
    CUT = "minimum cut between two devices, exact"
    SEARCH = "search from the best single device, changing one result that several operators read at a time; no proof"


@dataclass(frozen=True, slots=True)
class Placement:
    """A device for each operator, by number, the cost, and the method."""

    devices: tuple[int, ...]
    cost_s: float
    method: Method


class Quantity(StrEnum):
    """Quantity whose change can flip an operator's device."""

    RATE = "rate"
    DATA = "data"
    CPU_TIME = "cpu-time"


@dataclass(frozen=True, slots=True)
class Flip:
    """A break-even: at `quantity` = `value`, `factor` times its present value, and beyond, `to` takes over.

    Gbit/s between machines, GB of input of the whole job, or CPU seconds for 100 MB. Both are None if no value changes
    the device; everything else, including the devices of neighbouring operators, stays the same.
    """

    quantity: Quantity
    to: str
    value: float | None = None
    factor: float | None = None


@dataclass(frozen=True, slots=True)
class ExplainedOperator:
    """An operator of a plan: alone (`decision`), in the plan (`device`, with `why`), and what would flip that.

    `moved_s` is the part of its seconds for moving its inputs from other operators, as placed. `tied` is its device in
    a plan without a tie band, '' if that is the same.
    """

    decision: Decision
    device: str
    computes: str
    reads: tuple[str, ...]
    moved_s: float
    why: str
    flips: tuple[Flip, ...]
    tied: str = ""


@dataclass(frozen=True, slots=True)
class Explained:
    """A plan with a device for each operator.

    Seconds are sums over operators: as placed, with each alone (every intermediate through the machine's memory), and
    all on the CPU. Operators of unknown time are excluded, as `notes` state.
    """

    name: str
    machines: Machines
    preset: float
    labels: tuple[str, ...]
    operators: tuple[ExplainedOperator, ...]
    edges: tuple[Edge, ...]
    method: Method
    placed_s: float
    one_by_one_s: float
    cpu_s: float
    notes: tuple[str, ...] = ()
    tie_band: float = 0.0
