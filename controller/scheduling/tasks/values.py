"""Values of the task scheduler: waiting tasks, offers of centres, and the estimates for both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from controller.apiserver.resources.task import OperatorCount, UnitChoice
from controller.cluster.cost_map import CostMap
from controller.cluster.estimates import Estimate
from controller.cluster.estimates.values import FIRMNESS
from controller.probing.hours import NetworkWindow
from controller.scheduling.framework.policies import Flags, Floats, Longs
from controller.scheduling.tasks.slots import Slots
from dataplane.topology.values import DeviceKind

Way = tuple[float, bool]
"""Seconds per byte, infinite if there is no path, and whether they are measured."""


@dataclass(frozen=True, slots=True)
class Read:
    """Bytes that a task reads from a host of the topology, or from the centre where a predecessor left them."""

    host: str
    nbytes: int
    centre: str = ""

    @property
    def source(self) -> str:
        """Its host or centre, in words."""
        return f"centre {self.centre}" if self.centre else self.host


def no_way(source: str, centre: str) -> Way | None:  # noqa: ARG001 - any two
    """Return None: nothing is known about the network between two centres."""
    return None


@dataclass(frozen=True, slots=True)
class PendingTask:
    """A task that waits. `task_type` is never empty: tasks of one type are assumed to behave alike.

    `centre`, `unit` and `units` are what its user stated; None and empty for nothing. `kernels` are those of its type's
    probe tasks, `operators` are the known ones that it computes itself. Times are wall-clock nanoseconds since 1970. No
    probe can be built for a task that `measures_itself`: its own run is the first measurement of its type.
    """

    name: str
    task_type: str
    priority: int = 0
    since_ns: int = 0
    centre: str | None = None
    unit: str | None = None
    units: tuple[int, ...] = ()
    choice: UnitChoice = UnitChoice.CONFIGURATION
    kernels: frozenset[str] = frozenset()
    reads: tuple[Read, ...] = ()
    not_before_ns: int | None = None
    deadline_ns: int | None = None
    operators: tuple[OperatorCount, ...] = ()
    measures_itself: bool = False
    centres: int = 1
    """Number of centres that it needs at the same time."""
    expected_s: tuple[tuple[DeviceKind, float], ...] = ()
    """Run times that its user expects, by kind of device."""
    ready_s: float = 0.0
    """Seconds until its predecessors have ended, by the plan."""
    rank_s: float = 0.0
    """Expected seconds from its start to the end of its graph, along the longest path; 0 without successors."""
    graph_since_ns: int | None = None
    """Submission of the first waiting task of its graph, None for a task without one."""

    @property
    def main_host(self) -> str:
        """The host that it reads most from, '' if it reads nothing from hosts."""
        hosts = [read for read in self.reads if not read.centre]
        return max(hosts, key=lambda read: read.nbytes).host if hosts else ""


@dataclass(frozen=True, slots=True)
class Offer:
    """A unit type of a centre: the number of units, the probe kernels that they claim to run, and what each holds.

    `devices` are the kinds of the devices that one unit has in addition to its cores.
    """

    centre: str
    unit: str
    count: int
    operators: frozenset[str] = frozenset()
    devices: frozenset[DeviceKind] = frozenset()

    @property
    def key(self) -> tuple[str, str]:
        """Identifying key."""
        return (self.centre, self.unit)


@dataclass(frozen=True, slots=True)
class CentreState:
    """A centre apart from its offers. `problem` says why it takes no tasks, '' if it does.

    `hosts` are the hosts of the topology that belong to it, `corrections` its factors of operators' expected times by
    kind, `type_corrections` those by type of task.
    """

    name: str
    problem: str = ""
    hosts: tuple[str, ...] = ()
    is_probed: bool = False
    corrections: tuple[tuple[str, float], ...] = ()
    type_corrections: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Option:
    """So many units of an offer, and the run time of a type's tasks there; `above` says why that is too many, or ''."""

    offer: tuple[str, str]
    units: int
    estimate: Estimate
    above: str = ""


@dataclass(frozen=True, eq=False)
class Options:
    """All options for tasks of a type, as columns; `offer` is the position of each one's offer in the view.

    Unknown times are NaN, with the firmness of the weakest basis. `points` are those of the fixed
    benchmark if the profile uses one.
    """

    items: tuple[Option, ...]
    offer: Longs
    units: Longs
    seconds: Floats
    high: Floats
    firmness: Longs
    is_above: Flags

    @classmethod
    def of(cls, items: tuple[Option, ...], positions: Mapping[tuple[str, str], int]) -> Options:
        """Return the options of the offers at these positions."""
        times = np.array([_times(option.estimate) for option in items], np.float64).reshape(-1, 2)
        return cls(
            items,
            np.array([positions[option.offer] for option in items], np.int64),
            np.array([option.units for option in items], np.int64),
            times[:, 0],
            times[:, 1],
            np.array([FIRMNESS.index(option.estimate.basis) for option in items], np.int64),
            np.array([bool(option.above) for option in items], np.bool_),
        )

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def mean_s(self) -> float:
        """Mean over offers of the shortest expected run time at each, NaN if all are unknown."""
        shortest: Floats = np.full(int(self.offer.max(initial=-1)) + 1, np.inf)
        known = np.isfinite(self.seconds)
        np.minimum.at(shortest, self.offer[known], self.seconds[known])
        finite = shortest[np.isfinite(shortest)]
        return float(finite.mean()) if len(finite) else float("nan")

    @cached_property
    def rows_of(self) -> Mapping[int, Longs]:
        """Option rows of each offer, by its position."""
        by_offer: dict[int, list[int]] = {}
        for row, position in enumerate(self.offer.tolist()):
            by_offer.setdefault(position, []).append(row)
        return {position: np.array(rows, np.int64) for position, rows in by_offer.items()}


@dataclass(frozen=True, eq=False)
class CentresView:
    """All offers of the centres at one time; `slots` are the free times of each offer's units."""

    now_ns: int
    offers: tuple[Offer, ...]
    centres: Mapping[str, CentreState]
    slots: tuple[Slots, ...]
    transfer_s: Mapping[tuple[str, str], tuple[float, bool]] = field(default_factory=dict)
    """Seconds per byte from a host to a centre, and whether that was measured; infinite if unreachable."""
    network: Mapping[tuple[str, str], tuple[NetworkWindow, ...]] = field(default_factory=dict)
    """Forecast of the network from a host to a centre; missing pairs are unknown."""
    costs: CostMap | None = None
    """Cost map of the topology's hosts, None if unknown."""
    between: Callable[[str, str], Way | None] = no_way
    """The way from one centre to another, None if it is unknown."""

    _supporting: dict[frozenset[str], Flags] = field(default_factory=dict)

    @cached_property
    def takes_tasks(self) -> Flags:
        """True for each offer whose centre has no problem."""
        return np.array([not self.centres[offer.centre].problem for offer in self.offers], np.bool_)

    @cached_property
    def is_probed(self) -> Flags:
        """True for each offer whose centre was probed."""
        return np.array([self.centres[offer.centre].is_probed for offer in self.offers], np.bool_)

    @cached_property
    def counts(self) -> Longs:
        """Number of units of each offer."""
        return np.array([offer.count for offer in self.offers], np.int64)

    def supports(self, kernels: frozenset[str]) -> Flags:
        """Return whether each offer supports all the given kernels."""
        if kernels not in self._supporting:
            self._supporting[kernels] = np.array([kernels <= offer.operators for offer in self.offers], np.bool_)
        return self._supporting[kernels]

    def way(self, read: Read, centre: str) -> Way | None:
        """Return the way of what is read to a centre; None if it is unknown."""
        if read.centre:
            return (0.0, True) if read.centre == centre else self.between(read.centre, centre)
        return self.transfer_s.get((read.host, centre))

    @cached_property
    def place(self) -> Mapping[tuple[str, str], int]:
        """Position of each offer."""
        return {offer.key: position for position, offer in enumerate(self.offers)}


@dataclass(frozen=True, eq=False)
class TimedOptions:
    """The candidates of a task: its options, with the start and duration of each.

    Columns are seconds: `start_s` from now until units are free and `waits_s`, which it includes, for a better network;
    `transfer_s` until its input has arrived (infinite if unreachable), and the bounds of the run time in `options`.
    `slowdown` is the factor by which transfers are forecast to take longer at its start than in good hours.
    """

    view: CentresView
    options: Options
    start_s: Floats
    transfer_s: Floats
    is_measured_way: Flags
    slowdown: Floats
    waits_s: Floats

    def __len__(self) -> int:
        return len(self.options)

    @property
    def finish_s(self) -> Floats:
        """Upper bound of the seconds from now until an option has ended."""
        finish: Floats = self.start_s + self.transfer_s + self.options.high
        return finish

    def offer(self, row: int) -> Offer:
        """Return the offer of an option."""
        return self.view.offers[int(self.options.offer[row])]


def _times(estimate: Estimate) -> tuple[float, float]:
    if not estimate.is_known:
        return (np.nan, np.nan)
    _, seconds, high = estimate.times
    return (seconds, high)
