"""Figures of all directed links as columns of integers: configured, or measured by telemetry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, fields, replace
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from collectors.state.link_states import LinkStates
from collectors.statistics.columns import UNKNOWN
from collectors.statistics.window import SOURCES
from collectors.values import DelaySource, LinkState
from controller.cluster.cost_map.values import NEVER_NS, PPB, HostLinkState
from controller.network.algorithms.queueing import PACKET_BITS
from dataplane.clock import NS_PER_S
from dataplane.topology.values import DirectedLink, LinkKey

Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

DELAY: Final = 1
AVAILABLE: Final = 2
LOSS: Final = 4
"""Bits of `measured`: figures of a link that come from telemetry."""
ACCESS: Final = 64
"""Bit of `measured` for a pair of hosts: the first has measured its own link."""


@dataclass(frozen=True, slots=True, eq=False)
class LinkColumns:
    """One row per directed link; the rows in `numbers` never change, and the arrays are immutable once made.

    `load_bps` is a link's load, more than its rate if that is predicted; `queue_ns` is the delay of a full queue.
    `age_ns` is -1 if nothing was measured.
    """

    numbers: dict[LinkKey, int]
    rate_bps: Longs
    queue_ns: Longs
    delay_ns: Longs
    load_bps: Longs
    loss_ppb: Longs
    age_ns: Longs
    measured: Bytes

    @classmethod
    def nominal(cls, links: Iterable[DirectedLink]) -> Self:
        """Return the columns of an idle fabric, from configuration alone."""
        rows = list(links)
        rate_bps = np.array([link.rate_bps for link in rows], np.int64)
        frames = np.array([link.queue_frames for link in rows], np.int64)
        return cls(
            numbers={link.key: row for row, link in enumerate(rows)},
            rate_bps=rate_bps,
            queue_ns=frames * (PACKET_BITS * NS_PER_S // rate_bps),
            delay_ns=np.array([link.delay_ns for link in rows], np.int64),
            load_bps=np.zeros(len(rows), np.int64),
            loss_ppb=np.zeros(len(rows), np.int64),
            age_ns=np.full(len(rows), NEVER_NS, np.int64),
            measured=np.zeros(len(rows), np.uint8),
        )

    @property
    def available_bps(self) -> Longs:
        """Free bandwidth of each link; 0 for one that loses every packet."""
        return np.where(self.loss_ppb >= PPB, 0, np.maximum(self.rate_bps - self.load_bps, 0))

    def rows_of(self, links: Iterable[LinkKey]) -> Longs:
        """Return the links' rows, -1 for unknown links."""
        return np.array([self.numbers.get(key, -1) for key in links], np.int64)

    def observed(self, links: Mapping[LinkKey, LinkState], dead: Set[LinkKey], stale_after_ns: int) -> LinkColumns:
        """Return the columns updated with fresh measurements of some links; the others stay.

        Dead links lose all packets, whatever was measured.
        """
        updated = replace(self, **{name: getattr(self, name).copy() for name in _LIVE})
        rows = self.rows_of(links)
        figures = _columns_of(links) if isinstance(links, LinkStates) else _figures_of(list(links.values()))
        fresh = (rows >= 0) & (figures.age_ns != UNKNOWN) & (figures.age_ns <= stale_after_ns)
        for name in _LIVE:
            getattr(updated, name)[rows[fresh]] = getattr(figures, name)[fresh]
        updated.loss_ppb[[self.numbers[key] for key in dead if key in self.numbers]] = PPB
        return updated

    def with_hosts(self, states: Mapping[int, HostLinkState], stale_after_ns: int) -> LinkColumns:
        """Return the columns updated with hosts' fresh measurements of their own links, by row."""
        fresh = {row: state for row, state in states.items() if state.age_ns <= stale_after_ns}
        if not fresh:
            return self
        rows = np.array(list(fresh), np.int64)
        load_bps, age_ns, measured = self.load_bps.copy(), self.age_ns.copy(), self.measured.copy()
        load_bps[rows] = self.rate_bps[rows] - np.array([state.available_bps for state in fresh.values()], np.int64)
        age_ns[rows] = [state.age_ns for state in fresh.values()]
        measured[rows] |= AVAILABLE
        return replace(self, load_bps=load_bps, age_ns=age_ns, measured=measured)

    def differing(self, other: LinkColumns) -> Longs:
        """Return the rows whose figures differ."""
        differs = np.zeros(len(self.rate_bps), np.bool_)
        for name in _LIVE:
            differs |= getattr(self, name) != getattr(other, name)
        return np.flatnonzero(differs)

    def loaded(self, added_bps: Longs) -> LinkColumns:
        """Return the columns with additional load: delays follow an M/M/1 queue that drops frames when full.

        Load above a link's rate is lost there.
        """
        load_bps = self.load_bps + added_bps
        delay_ns = self.delay_ns + self._queued_ns(load_bps) - self._queued_ns(self.load_bps)
        excess = np.maximum(load_bps - self.rate_bps, 0) / np.maximum(load_bps, 1)
        lost_ppb = np.rint(excess * PPB).astype(np.int64)
        more = np.where(added_bps > 0, np.maximum(self.loss_ppb, lost_ppb), self.loss_ppb)
        return replace(self, delay_ns=delay_ns, load_bps=load_bps, loss_ppb=more)

    def _queued_ns(self, load_bps: Longs) -> Longs:
        free_bps = np.maximum(self.rate_bps - load_bps, 1)
        waiting_ns: Longs = np.minimum(PACKET_BITS * NS_PER_S // free_bps, self.queue_ns)
        return waiting_ns


@dataclass(frozen=True, slots=True, eq=False)
class _Figures:
    """Telemetry of links, in the columns of `LinkColumns`; ages are `UNKNOWN` without any data."""

    delay_ns: Longs
    load_bps: Longs
    loss_ppb: Longs
    age_ns: Longs
    measured: Bytes


_LIVE: Final = tuple(field.name for field in fields(_Figures))


def rates_of(states: Mapping[LinkKey, LinkState]) -> Longs:
    """Return the links' rates (bit/s), in the mapping's order."""
    if isinstance(states, LinkStates):
        return states.integers("rate_bps")
    return np.array([state.rate_bps for state in states.values()], np.int64)


def _columns_of(states: LinkStates) -> _Figures:
    """Return the figures as received over the feed, without building a state object per link."""
    loss = states.floats("loss")
    nominal = states.integers("source") == SOURCES.index(DelaySource.NOMINAL)
    bits = np.where(nominal, 0, DELAY) | np.where(states.integers("samples") > 0, AVAILABLE, 0)
    return _Figures(
        states.integers("delay_mean_ns"),
        states.integers("rate_bps") - states.integers("available_bps"),
        np.rint(np.nan_to_num(loss) * PPB).astype(np.int64),
        states.integers("age_ns"),
        (bits | np.where(np.isnan(loss), 0, LOSS)).astype(np.uint8),
    )


def _figures_of(states: list[LinkState]) -> _Figures:
    return _Figures(
        np.array([state.delay_mean_ns for state in states], np.int64),
        np.array([state.rate_bps - state.available_bps for state in states], np.int64),
        np.array([round((state.loss or 0) * PPB) for state in states], np.int64),
        np.array([UNKNOWN if state.age_ns is None else state.age_ns for state in states], np.int64),
        np.array([_bits(state) for state in states], np.uint8),
    )


def _bits(state: LinkState) -> int:
    delay = 0 if state.source is DelaySource.NOMINAL else DELAY
    return delay | (AVAILABLE if state.samples else 0) | (0 if state.loss is None else LOSS)
