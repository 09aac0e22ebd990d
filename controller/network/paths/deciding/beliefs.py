"""Estimated state of all links at once: telemetry where it is fresh, else the configured figures.

A measured delay includes more than propagation: the frame's own length and the switch's work. An unmeasured link is
assigned as much of that as the least loaded measured one shows; otherwise it would look better than measured ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import numpy as np

from collectors.state.link_states import LinkStates
from collectors.statistics.columns import UNKNOWN, Numbers
from collectors.values import LinkState
from controller.network.algorithms.link_table import Flags, Ids, LinkTable, Longs
from controller.network.paths.settings import DecideSettings
from dataplane.clock import NS_PER_S
from dataplane.topology.values import LinkKey

_LONGEST_IDLE_BITS: Final = 2 * 1538 * 8
"""Two Ethernet frames of the usual greatest length, gap included: a link that takes longer than that has a queue."""
_NEVER_NS: Final = -1
_SURE_QUEUES: Final = 10
"""A queue this many times as long as a normal one is trusted at once, if delay and load agree."""

_FRAME_BITS: Final = 1538 * 8
"""An Ethernet frame of the usual greatest length, gap included."""
_MANY_LINKS: Final = 1024
_MUCH_THE_SAME: Final = 8
"""A part of a full frame's time, one over."""
FORESEEN_NS: Final = 1_000_000_000
"""Cost, on top of its delay, of a link that cannot carry its load: its queue fills and then frames are lost, and a lost
frame costs its sender a retransmission timeout, RFC 6298's minimum, however short the queue is."""

_delay, _available = attrgetter("delay_mean_ns"), attrgetter("available_bps")


class Beliefs:
    """The live columns of a copy of a link table and the other link data of a decider; `observe` updates it.

    By row of `table`: `nominal_ns` is the delay without a queue, `load_bps` the estimated load or, if that is more, the
    rate of the flows on it, `uncertain_bps` the standard deviation of that rate, `known` whether telemetry of the link
    is trusted, `headroom_bps` what the settings keep free. A link is `crowded` when it cannot carry its load,
    `overfull` when the flows' rates alone show that, whatever was measured: that reflects a move at once. Links that
    are `dead` or `drained` are not `table.alive`.
    """

    def __init__(self, table: LinkTable, settings: DecideSettings) -> None:
        self.table, self.settings = table.copy(), settings
        size = len(table.links)
        self.headroom_bps = np.rint(table.rate_bps * settings.headroom).astype(np.int64)
        self.nominal_ns: Longs = table.propagation_ns.copy()
        self.load_bps: Longs = np.zeros(size, np.int64)
        self.known = np.zeros(size, np.bool_)
        self._measured_ns: Longs = np.zeros(size, np.int64)
        self._newest_ns: Longs = np.zeros(size, np.int64)
        self._available_bps: Longs = table.rate_bps.copy()
        self.offered_bps: Longs = np.zeros(size, np.int64)
        self.uncertain_bps: Longs = np.zeros(size, np.int64)
        self._measured_bps: Longs = np.zeros(size, np.int64)
        self.crowded = np.zeros(size, np.bool_)
        self.overfull = np.zeros(size, np.bool_)
        self._is_uncertain = False
        self._surely_full = np.zeros(size, np.bool_)
        self._foreseen = np.zeros(size, np.bool_)
        self._idle_ns: Longs = (settings.idle_frames * _FRAME_BITS * NS_PER_S / table.rate_bps).astype(np.int64)
        self._full_bps: Longs = np.ceil(settings.full * table.rate_bps).astype(np.int64)
        self._loaded_bps: Longs = np.ceil(settings.loaded * table.rate_bps).astype(np.int64)
        self._age_ns: Longs = np.full(size, _NEVER_NS, np.int64)
        self._loss = np.full(size, np.nan)
        self._latest_ns: Longs = np.full(size, UNKNOWN, np.int64)
        self._latest_frames = np.full(size, np.nan)
        self._latest_load = np.full(size, np.nan)
        self._samples: Longs = np.zeros(size, np.int64)
        self._down = np.zeros(size, np.bool_)
        self.dead = np.zeros(size, np.bool_)
        self.drained = np.zeros(size, np.bool_)
        self._names: list[LinkKey] = []
        self._places = np.zeros(0, np.int64)
        self._least_ns: Mapping[int, int] = {}
        self._rates, self._rate_of = np.unique(table.rate_bps, return_inverse=True)

    def observe(
        self,
        states: Mapping[LinkKey, LinkState],
        down: Set[LinkKey] = frozenset(),
        drained: Set[LinkKey] = frozenset(),
    ) -> Ids:
        """Take a whole snapshot's links; return the rows whose delay or liveness has changed.

        Links known to be down are dead, whatever telemetry says; drained ones work, but nothing may be placed on them.
        """
        self._down, self.drained = self.table.flags(down), self.table.flags(drained)
        self._age_ns[:] = _NEVER_NS
        self._loss[:] = np.nan
        names = list(states)
        if names != self._names:  # compared by identity first, so that the usual case is quick
            self._names = names
            self._places = np.array([self.table.link_number.get(name, -1) for name in names], np.int64)
        figures = _columns_of(states) if isinstance(states, LinkStates) else _figures_of(list(states.values()))
        self._take(self._places, figures)
        return self._believe()

    def observe_some(self, states: Iterable[LinkState]) -> Ids:
        """Take new states of some links, keeping the others; return the rows whose delay or liveness changed."""
        links = list(states)
        rows = np.array([self.table.link_number.get(state.link, -1) for state in links], np.int64)
        self._take(rows, _figures_of(links))
        return self._believe()

    def offer(self, offered_bps: Longs, uncertain_bps: Longs) -> Ids:
        """Take the flows' rates over links and their deviations; return the rows whose delay or liveness changed."""
        if np.array_equal(offered_bps, self.offered_bps) and np.array_equal(uncertain_bps, self.uncertain_bps):
            return np.zeros(0, np.uint32)
        self.offered_bps, self.uncertain_bps = offered_bps, uncertain_bps
        self._is_uncertain = bool(uncertain_bps.any())
        self._surely_full = offered_bps - uncertain_bps >= self._full_bps
        self._foreseen = offered_bps - 2 * uncertain_bps >= self.settings.foreseen * self.table.rate_bps
        return self._believe()

    def _take(self, places: Longs, figures: _Figures) -> None:
        inner = places >= 0
        rows = places[inner]
        self._measured_ns[rows] = figures.delay_ns[inner]
        self._newest_ns[rows] = figures.newest_ns[inner]
        self._available_bps[rows] = figures.available_bps[inner]
        self._age_ns[rows] = figures.age_ns[inner]
        self._loss[rows] = figures.loss[inner]
        self._latest_ns[rows] = figures.latest_ns[inner]
        self._latest_frames[rows] = figures.latest_frames[inner]
        self._latest_load[rows] = figures.latest_load[inner]
        self._samples[rows] = figures.samples[inner]

    def _believe(self) -> Ids:
        table, settings = self.table, self.settings
        self.known = (self._age_ns >= 0) & (self._age_ns <= settings.stale_after_ns)
        self.nominal_ns = table.propagation_ns + self._idle_excess_ns()[self._rate_of]
        measured_bps = np.where(self.known, table.rate_bps - self._available_bps, 0)
        # The mean over the window reaches `full` half a second late; load alone may be a burst, so that all must agree.
        sudden = self._suddenly_full()
        measured_bps[sudden] = np.rint(self._latest_load * table.rate_bps)[sudden].astype(np.int64)
        self.load_bps = np.maximum(measured_bps, self.offered_bps)
        self._measured_bps = measured_bps
        delay_ns = self._delays_ns()
        dead = self._down | (self.known & (self._loss >= settings.dead_loss))
        if settings.dead_after_ns is not None:
            dead |= self._age_ns > settings.dead_after_ns
        unusable = dead | self.drained
        if settings.ignore_change:
            little = np.abs(delay_ns - table.delay_ns) < settings.ignore_change * table.delay_ns
            delay_ns = np.where(little, table.delay_ns, delay_ns)
        changed = (delay_ns != table.delay_ns) | (unusable == table.alive)
        table.delay_ns[:] = delay_ns
        table.alive[:] = ~unusable
        self.dead = dead
        table.available_bps[:] = np.maximum(table.rate_bps - np.maximum(self.load_bps, 0), 0)
        return np.flatnonzero(changed).astype(np.uint32)

    def _suddenly_full(self) -> Flags:
        """Return where the newest readings of queue, delay and load agree that a link cannot carry its load.

        Each alone is noise often enough: of Poisson arrivals at 80 % of the rate, one part of the window in ten has a
        load above 90 % and a queue of two frames. With `_SURE_QUEUES` times that queue it is less than one in 10,000.
        """
        queued = self._latest_frames >= _SURE_QUEUES * self.settings.idle_frames
        delayed = self._latest_ns - self.nominal_ns > _SURE_QUEUES * self._idle_ns
        full = self._latest_load * self.table.rate_bps >= self._full_bps
        above_mean = self._latest_load * self.table.rate_bps > self.table.rate_bps - self._available_bps
        return self.known & queued & delayed & full & above_mean

    def _delays_ns(self) -> Longs:
        """Return the estimated costs of links, and note which are crowded."""
        queue_ns = self._newest_ns - self.nominal_ns
        queued = self.known & (queue_ns > self._idle_ns)
        measured_full = self._measured_bps >= self._full_bps
        # The longer the queue, the more a rate or load from few packets is trusted.
        trust = np.clip((queue_ns - 3 * self._idle_ns) / np.maximum(2 * self._idle_ns, 1), -1.0, 1.0)
        self.overfull = self._foreseen | (queued & self._surely_full)
        self.crowded = self.overfull | (measured_full & ((queued & self._is_shown(trust)) | self._surely_full))
        if self._is_uncertain:
            self.crowded |= queued & (self.offered_bps + trust * self.uncertain_bps >= self._full_bps)
        delay_ns = np.where(self.known, self._measured_ns, self.nominal_ns)
        if self.settings.min_gain_ns is None:
            long = self._measured_ns - self.nominal_ns > self._idle_ns
            counts = self.known & long & (self._measured_bps >= self._loaded_bps)
            delay_ns = np.where(counts, self._measured_ns, self.nominal_ns)
        if self.crowded.any():
            delay_ns[self.crowded] += FORESEEN_NS
        return delay_ns

    def _is_shown(self, trust: Numbers) -> Flags:
        """Return where a measured load of `full` is more than chance: flows' rates agree, or enough frames show it.

        On a slow link a window has few frames, and after a burst its load may be that of a dozen, in one reading of the
        switch's counter, until newer packets come. Of n random frames the deviation is one in the root of n.
        """
        frames = self._samples * (1 if self.settings.watch is None else self.settings.watch.sample_every)
        deviation_bps = self._measured_bps / np.sqrt(np.maximum(frames, 1))
        agree = self.offered_bps >= self._full_bps
        shown: Flags = agree | (self._measured_bps + np.minimum(trust, 0.0) * deviation_bps >= self._full_bps)
        return shown

    def _idle_excess_ns(self) -> Longs:
        """Return, for each link rate, the delay of an idle link of that rate beyond propagation.

        It is the least that any measured link shows, longer in proportion as this link is slower.
        """
        excess_ns = np.maximum(self._measured_ns - self.table.propagation_ns, 0)
        seen: dict[int, int] = {}
        for index, rate_bps in enumerate(self._rates):
            measured = excess_ns[self.known & (self._rate_of == index)]
            if len(measured):
                seen[int(rate_bps)] = self._steady_ns(int(rate_bps), int(measured.min()))
        self._least_ns = seen
        return np.array([_scaled(seen, int(rate_bps)) for rate_bps in self._rates], np.int64)

    def _steady_ns(self, rate_bps: int, least_ns: int) -> int:
        """Return the least excess of links of a rate; in large fabrics the one before while this is much the same.

        It is a part of every link's delay: of thousands of links the least of all is another in each round, and all
        trees would be grown again for a few nanoseconds.
        """
        before_ns = self._least_ns.get(rate_bps)
        if before_ns is None or len(self.table.links) < _MANY_LINKS:
            return least_ns
        little_ns = _FRAME_BITS * NS_PER_S // rate_bps // _MUCH_THE_SAME
        return before_ns if abs(least_ns - before_ns) <= little_ns else least_ns


@dataclass(frozen=True, slots=True)
class _Figures:
    """Figures of links side by side: ages are `_NEVER_NS`, integers UNKNOWN and floats NaN where they are not known."""

    delay_ns: Longs
    newest_ns: Longs
    available_bps: Longs
    age_ns: Longs
    loss: Numbers
    latest_ns: Longs
    latest_frames: Numbers
    latest_load: Numbers
    samples: Longs


def _columns_of(states: LinkStates) -> _Figures:
    """Return the figures as they came over the feed, or out of native memory: no state of a single link is made."""
    delay_ns, newest_ns, age_ns = map(states.integers, ("delay_mean_ns", "delay_ewma_ns", "age_ns"))
    return _Figures(
        delay_ns,
        np.where(newest_ns == UNKNOWN, delay_ns, newest_ns),
        states.integers("available_bps"),
        np.where(age_ns == UNKNOWN, _NEVER_NS, age_ns),
        states.floats("loss"),
        states.integers("newest_delay_ns"),
        states.floats("newest_queue_frames"),
        states.floats("newest_utilisation"),
        states.integers("samples"),
    )


def _figures_of(states: list[LinkState]) -> _Figures:
    return _Figures(
        np.fromiter(map(_delay, states), np.int64, len(states)),
        np.fromiter(map(_newest_ns, states), np.int64, len(states)),
        np.fromiter(map(_available, states), np.int64, len(states)),
        np.array([_NEVER_NS if state.age_ns is None else state.age_ns for state in states], np.int64),
        _floats(states, "loss"),
        np.array([UNKNOWN if state.newest_delay_ns is None else state.newest_delay_ns for state in states], np.int64),
        _floats(states, "newest_queue_frames"),
        _floats(states, "newest_utilisation"),
        np.array([state.samples for state in states], np.int64),
    )


def _floats(states: list[LinkState], figure: str) -> Numbers:
    values = (getattr(state, figure) for state in states)
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _newest_ns(state: LinkState) -> int:
    """Return a link's current delay rather than that of the whole window, if known."""
    return state.delay_mean_ns if state.delay_ewma_ns is None else state.delay_ewma_ns


def _scaled(seen: Mapping[int, int], rate_bps: int) -> int:
    scaled = (excess_ns * max(other_bps, rate_bps) // rate_bps for other_bps, excess_ns in seen.items())
    return min(min(scaled, default=0), _LONGEST_IDLE_BITS * NS_PER_S // rate_bps)
