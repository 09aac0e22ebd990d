"""Values exchanged between the network's state, which sees stamps, and the estimator, which corrects them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from collectors.statistics.columns import UNKNOWN, Integers, Numbers, Places
from dataplane.clock import NS_PER_S
from dataplane.topology.values import LinkKey

FARTHEST_NS: Final = 3_600_000_000_000
"""Longest time over which a drift is extrapolated."""

NO_GROUP: Final = -1
"""Stands for the group of a node without an edge."""


@dataclass(frozen=True, slots=True)
class StampDifference:
    """The least difference of stamps that a directed link showed for a while: head's ingress minus tail's egress.

    Both stamps raw, each by its own switch's clock; `received_ns` is when the packet's report came, by the collector's.
    """

    link: LinkKey
    tail_stamp_ns: int
    flight_ns: int
    received_ns: int
    samples: int


@dataclass(frozen=True, slots=True)
class FlightColumns:
    """Flights of directed links as columns, in the topology's order; `samples` is 0 where there is none."""

    tail_stamp_ns: Integers
    flight_ns: Integers
    received_ns: Integers
    samples: Integers

    @classmethod
    def none(cls, count: int) -> FlightColumns:
        """Return columns of `count` links without observations."""
        return cls(*(np.zeros(count, np.int64) for _ in range(4)))

    def some(self, places: Places) -> FlightColumns:
        """Return the rows of some links."""
        return FlightColumns(
            self.tail_stamp_ns[places], self.flight_ns[places], self.received_ns[places], self.samples[places]
        )

    def over(self, older: FlightColumns) -> FlightColumns:
        """Return these flights, and `older` ones where there are none."""
        fresh = self.samples > 0
        return FlightColumns(
            np.where(fresh, self.tail_stamp_ns, older.tail_stamp_ns),
            np.where(fresh, self.flight_ns, older.flight_ns),
            np.where(fresh, self.received_ns, older.received_ns),
            np.where(fresh, self.samples, older.samples),
        )


@dataclass(frozen=True, slots=True)
class LinkCorrection:
    """Correction added to a directed link's stamp difference, for a packet that left at `at_ns` by the tail's clock.

    `drift_ppb` is its rate of change with the tail's stamps; `uncertainty_ns` is its largest error.
    """

    at_ns: int
    offset_ns: int
    drift_ppb: int
    uncertainty_ns: int

    def corrected(self, flight_ns: int, tail_stamp_ns: int) -> int:
        """Return a difference of stamps as if both clocks were one."""
        since_ns = min(max(tail_stamp_ns - self.at_ns, -FARTHEST_NS), FARTHEST_NS)
        return flight_ns + self.offset_ns + self.drift_ppb * since_ns // NS_PER_S


@dataclass(frozen=True, slots=True)
class CorrectionColumns:
    """Corrections of directed links as columns, in the topology's order; `uncertainty_ns` is UNKNOWN for none."""

    at_ns: Integers
    offset_ns: Integers
    drift_ppb: Integers
    uncertainty_ns: Integers

    @classmethod
    def none(cls, count: int) -> CorrectionColumns:
        """Return columns of `count` links without corrections."""
        zeros = np.zeros(count, np.int64)
        return cls(zeros, zeros, zeros, np.full(count, UNKNOWN))


class Corrections(Mapping[LinkKey, LinkCorrection]):
    """Current corrections of stamp differences, by link, where clocks are tied together well enough."""

    def __init__(self, places: Mapping[LinkKey, int], columns: CorrectionColumns) -> None:
        self._places = places
        self.columns = columns

    def __len__(self) -> int:
        return int(np.count_nonzero(self.columns.uncertainty_ns != UNKNOWN))

    def __iter__(self) -> Iterator[LinkKey]:
        corrected = (self.columns.uncertainty_ns != UNKNOWN).tolist()
        return (key for key, index in self._places.items() if corrected[index])

    def __getitem__(self, key: LinkKey) -> LinkCorrection:
        index, columns = self._places[key], self.columns
        uncertainty_ns = int(columns.uncertainty_ns[index])
        if uncertainty_ns == UNKNOWN:
            raise KeyError(key)
        at_ns, offset_ns, drift_ppb = (
            int(column[index]) for column in (columns.at_ns, columns.offset_ns, columns.drift_ppb)
        )
        return LinkCorrection(at_ns, offset_ns, drift_ppb, uncertainty_ns)


@dataclass(frozen=True, slots=True)
class Edges:
    """Cables with an observed offset: the head's clock minus the tail's; nodes are numbers from 0 on, no pair twice."""

    tails: Places
    heads: Places
    offset_ns: Integers
    drift_ppb: Numbers
    uncertainty_ns: Numbers


@dataclass(frozen=True, slots=True)
class Readings:
    """Nodes' clocks against the first node of their group; NO_GROUP without an edge. `uncertainty_ns` bounds errors."""

    group: Places
    offset_ns: Integers
    drift_ppb: Numbers
    uncertainty_ns: Numbers
