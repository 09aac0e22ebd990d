"""Links' figures from devices' own counters, where telemetry has none.

A link's load is that of the counters at its tail, else at its head; what was lost are frames that its tail discarded
and those that its head received with errors. Delays are the transit times of sampled packets plus the propagation.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from collectors.state.link_states import LOAD_SOURCES, LOSS_SOURCES, LinkStates
from collectors.statistics.columns import UNKNOWN, Integers, Numbers
from collectors.statistics.window import RANK
from collectors.values import DelaySource, LoadSource, LossSource
from dataplane.clock import NS_PER_S
from dataplane.topology.values import Endpoint, Topology

LONGEST_INTERVAL_NS: Final = 3600 * NS_PER_S
"""Readings further apart say nothing about the load, and most likely the device restarted between them."""
_OCTETS, _PACKETS = 1 << 64, 1 << 32
"""Counters wrap at these."""
_FASTEST: Final = 2
"""More than this multiple of the link's rate is not traffic: the counters were reset."""
_TRANSITS: Final = 64
"""Transit times kept for a link."""


@dataclass(frozen=True, slots=True)
class PortCounters:
    """Counters of a switch's port at a time of the device's own clock, which may start anywhere."""

    device_ns: int
    in_octets: int
    in_packets: int
    in_errors: int
    out_octets: int
    out_packets: int
    out_lost: int


class _End(IntEnum):
    """End of a link at which frames were counted."""

    TAIL = 0
    HEAD = 1


@dataclass(slots=True, eq=False)
class _Counted:
    """Last counts of one end of each link, by the link's number."""

    at_ns: Integers
    used_bps: Integers
    frames: Integers
    lost: Integers

    @classmethod
    def of(cls, links: int) -> _Counted:
        return cls(*(np.full(links, UNKNOWN) for _ in range(4)))


@dataclass(slots=True)
class _Transits:
    """The newest transit times through a link's tail."""

    at_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_TRANSITS))
    transit_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_TRANSITS))


class ExportedLinks:
    """Figures of a topology's links by one kind of exporter; its methods may be called from any thread."""

    def __init__(
        self,
        topology: Topology,
        source: LoadSource,
        stale_after_ns: int,
        clock_ns: int = 0,
        delay_source: DelaySource = DelaySource.HOP_LATENCY,
    ) -> None:
        """`clock_ns` is the resolution of the devices' clocks, `delay_source` what transit times are said to be of."""
        self._delay_source = delay_source
        links = topology.directed_links
        number = {key: index for index, key in enumerate(links)}
        self._leaving = {link.tail: number[key] for key, link in links.items()}
        self._arriving = {link.head: number[key] for key, link in links.items()}
        self._rate_bps = np.array([link.rate_bps for link in links.values()], np.int64)
        self._delay_ns = np.array([link.delay_ns for link in links.values()], np.int64)
        self._source, self._stale_ns, self._clock_ns = source, stale_after_ns, clock_ns
        self._counters: dict[Endpoint, PortCounters] = {}
        self._arrived_ns: dict[Endpoint, int] = {}
        self._counted = {end: _Counted.of(len(links)) for end in _End}
        self._lost = np.zeros(len(links), np.int64)
        self._transits: dict[int, _Transits] = {}
        self._lock = threading.Lock()

    def take(self, port: Endpoint, counters: PortCounters, now_ns: int) -> bool:
        """Take a port's counters; return whether they continue those before, so that rates follow from them."""
        with self._lock:
            before = self._counters.get(port)
            self._counters[port] = counters
            arrived_ns, self._arrived_ns[port] = self._arrived_ns.get(port, now_ns), now_ns
            if before is None:
                return False
            elapsed_ns = self._elapsed_ns(counters.device_ns - before.device_ns, now_ns - arrived_ns)
            if not 0 < elapsed_ns <= LONGEST_INTERVAL_NS:
                return False
            in_octets = (counters.in_octets - before.in_octets) % _OCTETS
            out_octets = (counters.out_octets - before.out_octets) % _OCTETS
            leaving, arriving = self._leaving.get(port), self._arriving.get(port)
            links = ((leaving, out_octets), (arriving, in_octets))
            loads = [None if link is None else self._used_bps(link, octets, elapsed_ns) for link, octets in links]
            if any(load is None and link is not None for load, (link, _) in zip(loads, links, strict=True)):
                return False
            packets, lost = _increase(before.out_packets, counters.out_packets), counters.out_lost - before.out_lost
            self._note(_End.TAIL, leaving, now_ns, loads[0], packets, lost % _PACKETS)
            packets, errors = _increase(before.in_packets, counters.in_packets), counters.in_errors - before.in_errors
            self._note(_End.HEAD, arriving, now_ns, loads[1], packets, errors % _PACKETS)
            return True

    def _elapsed_ns(self, device_ns: int, arrival_ns: int) -> int:
        """Return the time between two readings: that between their arrivals, as far as the device's clock allows."""
        return min(max(arrival_ns, device_ns - self._clock_ns), device_ns + self._clock_ns)

    def _used_bps(self, link: int, octets: int, elapsed_ns: int) -> int | None:
        """Return a link's load, None if it is more than the link can carry."""
        used_bps, rate_bps = 8 * octets * NS_PER_S // elapsed_ns, int(self._rate_bps[link])
        return None if used_bps > _FASTEST * rate_bps else min(used_bps, rate_bps)

    def _note(  # noqa: PLR0917 - one end's figures, in the order of the columns
        self, end: _End, link: int | None, now_ns: int, used_bps: int | None, frames: int, lost: int
    ) -> None:
        if link is None or used_bps is None:
            return
        counted = self._counted[end]
        counted.at_ns[link], counted.used_bps[link] = now_ns, used_bps
        counted.frames[link], counted.lost[link] = frames, lost
        self._lost[link] += lost

    def take_transit(self, port: Endpoint, transit_ns: int, now_ns: int) -> None:
        """Take the time that a packet spent in a switch until it left by a port."""
        link = self._leaving.get(port)
        if link is not None:
            with self._lock:
                transits = self._transits.setdefault(link, _Transits())
                transits.at_ns.append(now_ns)
                transits.transit_ns.append(transit_ns)

    def complete(self, links: LinkStates, now_ns: int) -> LinkStates:
        """Return links with these figures where telemetry gives none; their order is the topology's."""
        with self._lock:
            columns = dict(links.columns)
            ages = [self._complete_load(columns, now_ns), self._complete_delays(columns, now_ns)]
            self._complete_loss(columns, now_ns)
        known = [np.where(age == UNKNOWN, np.iinfo(np.int64).max, age) for age in (links.integers("age_ns"), *ages)]
        youngest = np.minimum.reduce(known)
        columns["age_ns"] = np.where(youngest == np.iinfo(np.int64).max, UNKNOWN, youngest)
        return LinkStates(links.places, columns)

    def _fresh(self, at_ns: Integers, now_ns: int) -> NDArray[np.bool_]:
        fresh: NDArray[np.bool_] = (at_ns != UNKNOWN) & (now_ns - at_ns <= self._stale_ns)
        return fresh

    def _complete_load(self, columns: dict[str, Integers | Numbers], now_ns: int) -> Integers:
        """Fill in the load; return the age of what was filled in, UNKNOWN elsewhere."""
        tail, head = self._counted[_End.TAIL], self._counted[_End.HEAD]
        at_tail, at_head = self._fresh(tail.at_ns, now_ns), self._fresh(head.at_ns, now_ns)
        wanted = (columns["load_source"] == UNKNOWN) & (at_tail | at_head)
        used_bps = np.where(at_tail, tail.used_bps, head.used_bps)
        share = used_bps / self._rate_bps
        for name in ("utilisation", "newest_utilisation"):
            columns[name] = np.where(wanted, share, columns[name])
        columns["available_bps"] = np.where(wanted, self._rate_bps - used_bps, columns["available_bps"])
        columns["load_source"] = np.where(wanted, LOAD_SOURCES.index(self._source), columns["load_source"])
        age: Integers = np.where(wanted, np.maximum(now_ns - np.where(at_tail, tail.at_ns, head.at_ns), 0), UNKNOWN)
        return age

    def _complete_loss(self, columns: dict[str, Integers | Numbers], now_ns: int) -> None:
        tail, head = self._counted[_End.TAIL], self._counted[_End.HEAD]
        at_tail, at_head = self._fresh(tail.at_ns, now_ns), self._fresh(head.at_ns, now_ns)
        lost = np.where(at_tail, tail.lost, 0) + np.where(at_head, head.lost, 0)
        # The head counts only what arrived.
        sent = np.where(at_tail, tail.frames + tail.lost, head.frames + head.lost)
        wanted = np.isnan(columns["loss"]) & (at_tail | at_head) & (sent > 0)
        share = np.divide(lost, sent, out=np.zeros(len(sent)), where=sent > 0)
        columns["loss"] = np.where(wanted, np.minimum(share, 1.0), columns["loss"])
        counters = LOSS_SOURCES.index(LossSource.INTERFACE_COUNTERS)
        columns["loss_source"] = np.where(wanted, counters, columns["loss_source"])
        columns["lost_packets"] = np.where(wanted, self._lost, columns["lost_packets"])

    def _complete_delays(self, columns: dict[str, Integers | Numbers], now_ns: int) -> Integers:
        """Fill in delays; return the age of what was filled in, UNKNOWN elsewhere."""
        age = np.full(len(self._rate_bps), UNKNOWN)
        nominal = columns["source"] == RANK[DelaySource.NOMINAL]
        measured = [link for link in self._transits if nominal[link]]
        names = ("delay_mean_ns", "delay_p50_ns", "delay_p99_ns", "delay_max_ns", "samples", "source")
        for name in names if measured else ():
            columns[name] = columns[name].copy()
        for link in measured:
            transits = self._transits[link]
            recent = np.array(transits.at_ns) >= now_ns - self._stale_ns
            if not recent.any():
                continue
            delays = np.array(transits.transit_ns)[recent] + self._delay_ns[link]
            middle, high = np.percentile(delays, (50, 99), method="inverted_cdf")
            figures = delays.mean(), middle, high, delays.max(), len(delays), RANK[self._delay_source]
            for name, figure in zip(names, figures, strict=True):
                columns[name][link] = int(figure)
            age[link] = max(now_ns - transits.at_ns[-1], 0)
        return age


def _increase(before: int, after: int) -> int:
    return (after - before) % _PACKETS
