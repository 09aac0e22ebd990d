"""Least differences of stamps per link since the last query, from which clocks are estimated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from collectors.clocks.values import FlightColumns, StampDifference
from dataplane.topology.values import LinkKey


class Flights:
    """The least difference of each link; bounded by the topology's links."""

    def __init__(self) -> None:
        self._least: dict[LinkKey, StampDifference] = {}

    def add(self, seen: StampDifference | None) -> None:
        """Take a link's difference from one packet, or several already compared; None: nothing."""
        if seen is None:
            return
        least = self._least.get(seen.link)
        if least is None:
            self._least[seen.link] = seen
            return
        less = seen if seen.flight_ns < least.flight_ns else least
        self._least[seen.link] = replace(less, samples=least.samples + seen.samples)

    def take(self, places: Mapping[LinkKey, int]) -> FlightColumns:
        """Return the least of each link since the last call, each at its link's index."""
        columns = FlightColumns.none(len(places))
        at = [places[key] for key in self._least]
        columns.tail_stamp_ns[at] = [seen.tail_stamp_ns for seen in self._least.values()]
        columns.flight_ns[at] = [seen.flight_ns for seen in self._least.values()]
        columns.received_ns[at] = [seen.received_ns for seen in self._least.values()]
        columns.samples[at] = [seen.samples for seen in self._least.values()]
        self._least.clear()
        return columns
