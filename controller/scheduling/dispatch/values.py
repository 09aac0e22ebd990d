"""What the task scheduler decides about, and by: tasks that wait, offers of centres, and what is known of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from controller.apiserver.resources.task import OperatorCount, UnitChoice
from controller.cluster.cost_map import CostMap
from controller.cluster.estimates import Estimate
from controller.cluster.estimates.values import FIRMNESS
from controller.scheduling.dispatch.slots import Slots
from dataplane.topology.values import DeviceKind

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
MOST_POINTS: Final = 1000


@dataclass(frozen=True, slots=True)
class Read:
    """Bytes that a task reads from a host of the topology."""

    host: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class PendingTask:
    """A task that waits. `task_type` is never empty: tasks of one type are taken to behave alike.

    `centre`, `unit` and `units` are what its user stated; None and empty for nothing. `kernels` are those of the probe
    tasks of its type, `operators` what it computes itself, as far as anybody said. Times are of the wall's clock,
    nanoseconds since 1970.
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

    @property
    def main_host(self) -> str:
        """The host that it reads most from, '' if it reads nothing."""
        return max(self.reads, key=lambda one: one.nbytes).host if self.reads else ""


@dataclass(frozen=True, slots=True)
class Offer:
    """A unit type of a centre: so many units, the probe kernels that they say they can run, and what each holds.

    `devices` are the kinds of those that one unit has beside its cores.
    """

    centre: str
    unit: str
    count: int
    operators: frozenset[str] = frozenset()
    devices: frozenset[DeviceKind] = frozenset()

    @property
    def key(self) -> tuple[str, str]:
        """What it is known by."""
        return (self.centre, self.unit)


@dataclass(frozen=True, slots=True)
class Window:
    """A time in which a centre's network is forecast good, nanoseconds since 1970."""

    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class CentreState:
    """A centre beside what it offers. `problem` says why it takes no tasks, '' if it does.

    `hosts` are the topology's hosts that it is.
    """

    name: str
    problem: str = ""
    hosts: tuple[str, ...] = ()
    is_probed: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """So many units of an offer, and how long tasks of a type take there; `above` why so many are too many, or ''."""

    offer: tuple[str, str]
    units: int
    estimate: Estimate
    above: str = ""


@dataclass(frozen=True, eq=False)
class Options:
    """All options for tasks of a type, as columns; `offer` is the place of each one's offer in the view.

    Times are NaN, and the firmness that of the weakest basis, where nothing is known. `points` are those of the fixed
    benchmark where a profile goes by it.
    """

    items: tuple[Option, ...]
    offer: Longs
    units: Longs
    seconds: Floats
    high: Floats
    firmness: Longs
    is_above: Flags

    @classmethod
    def of(cls, items: tuple[Option, ...], place: Mapping[tuple[str, str], int]) -> Options:
        """Return options of offers at these places."""
        times = np.array([_times(one.estimate) for one in items], np.float64).reshape(-1, 2)
        return cls(
            items,
            np.array([place[one.offer] for one in items], np.int64),
            np.array([one.units for one in items], np.int64),
            times[:, 0],
            times[:, 1],
            np.array([FIRMNESS.index(one.estimate.basis) for one in items], np.int64),
            np.array([bool(one.above) for one in items], np.bool_),
        )

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def rows_of(self) -> Mapping[int, Longs]:
        """Rows of each offer's place."""
        found: dict[int, list[int]] = {}
        for row, place in enumerate(self.offer.tolist()):
            found.setdefault(place, []).append(row)
        return {place: np.array(rows, np.int64) for place, rows in found.items()}


@dataclass(frozen=True, eq=False)
class CentresView:
    """All that centres offer at a time; `slots` are when the units of each offer are free."""

    now_ns: int
    offers: tuple[Offer, ...]
    centres: Mapping[str, CentreState]
    slots: tuple[Slots, ...]
    transfer_s: Mapping[tuple[str, str], tuple[float, bool]] = field(default_factory=dict)
    """Seconds a byte from a host to a centre, and whether that was measured; infinite where nothing leads there."""
    good: Mapping[tuple[str, str], tuple[Window, ...]] = field(default_factory=dict)
    """When the network from a host to a centre is forecast good; what is not there is not known."""
    costs: CostMap | None = None
    """What lies between hosts of the topology, None where nobody knows."""

    _supporting: dict[frozenset[str], Flags] = field(default_factory=dict)

    @cached_property
    def takes_tasks(self) -> Flags:
        """Whether each offer's centre has no problem."""
        return np.array([not self.centres[one.centre].problem for one in self.offers], np.bool_)

    @cached_property
    def is_probed(self) -> Flags:
        """Whether each offer's centre was probed."""
        return np.array([self.centres[one.centre].is_probed for one in self.offers], np.bool_)

    @cached_property
    def counts(self) -> Longs:
        """How many units each offer has."""
        return np.array([one.count for one in self.offers], np.int64)

    def supports(self, kernels: frozenset[str]) -> Flags:
        """Return whether each offer supports all of some kernels."""
        if kernels not in self._supporting:
            self._supporting[kernels] = np.array([kernels <= one.operators for one in self.offers], np.bool_)
        return self._supporting[kernels]

    @cached_property
    def place(self) -> Mapping[tuple[str, str], int]:
        """Where each offer stands."""
        return {one.key: place for place, one in enumerate(self.offers)}


def _times(estimate: Estimate) -> tuple[float, float]:
    if not estimate.is_known:
        return (np.nan, np.nan)
    _, seconds, high = estimate.times
    return (seconds, high)
