"""Windows of links as sums that add up: those of several collectors merge into those of one that took everything.

A mean, a percentile or a moving average of two collectors says nothing about both. What a window consists of does:
counts, sums, extremes and counts by log bucket of each slot, and readings of load. `merged` is exact in all of them;
`figures_of` derives the figures of a window from them, as `collectors.statistics.window.Window` does.

The collectors have one topology, one `StateSettings` and one clock: slots have numbers of that clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, TypeVar

import numpy as np

from collectors.statistics.columns import UNKNOWN, Flags, Integers, Numbers
from collectors.statistics.sketch import EXACT_BELOW, SUB_BITS
from collectors.statistics.window import SLOTS, TX_READINGS, WindowColumns

R = TypeVar("R", "SlotRows", "BucketRows", "Readings")

_NONE: Final = np.iinfo(np.int64).max
"""The least of no delays."""


@dataclass(frozen=True, slots=True, eq=False)
class SlotRows:
    """Slots of windows, side by side, in order of link and number: a link's place, the slot's number, and its sums.

    Delays are those of `source`, a place in `SOURCES`; `least_ns` and `greatest_ns` mean nothing without delays.
    """

    link: Integers
    number: Integers
    source: Integers
    delays: Integers
    total_ns: Integers
    least_ns: Integers
    greatest_ns: Integers
    queues: Integers
    queue_frames: Integers
    buffers: Integers
    buffer_frames: Integers
    newest_ns: Integers


@dataclass(frozen=True, slots=True, eq=False)
class BucketRows:
    """Counts of delays by log bucket (`collectors.statistics.sketch`): of a link's slot with a number."""

    link: Integers
    number: Integers
    bucket: Integers
    count: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """The newest reading of load in each of a switch's own windows: bytes sent, and when it was taken."""

    link: Integers
    number: Integers
    at_ns: Integers
    nbytes: Integers


@dataclass(frozen=True, slots=True, eq=False)
class LinkWindows:
    """The windows of a number of links; times are the collector's, and lengths those of its settings."""

    links: int
    window_ns: int
    tx_window_ns: int
    slots: SlotRows
    buckets: BucketRows
    readings: Readings

    def delay_counts(self) -> Integers:
        """Return how many delays each link's window has, of its best source."""
        return np.bincount(self.slots.link, np.where(_of_best(self), self.slots.delays, 0), self.links).astype(np.int64)


def merged(parts: Sequence[LinkWindows]) -> LinkWindows:
    """Return the windows of one collector that had taken what these took together; ValueError where they do not fit.

    Of readings of one time the greatest counts, as their order is not known.
    """
    first = parts[0]
    if any((p.links, p.window_ns, p.tx_window_ns) != (first.links, first.window_ns, first.tx_window_ns) for p in parts):
        raise ValueError("windows of different topologies or settings cannot be merged")
    slots = _joined(SlotRows, [part.slots for part in parts])
    newest = _most(slots.link, slots.number, first.links)
    slots = _rows(slots, slots.number > newest[slots.link] - SLOTS)
    keys, group = np.unique(_key(slots.link, slots.number), return_inverse=True)
    best = _most(group, slots.source, len(keys))
    counted = (slots.source == best[group]) & (slots.delays > 0)
    together = _added_up(slots, group, len(keys), best, counted)
    buckets = _joined(BucketRows, [_counted_buckets(part, keys, best) for part in parts])
    buckets = _added_buckets(buckets)
    readings = _joined(Readings, [part.readings for part in parts])
    return replace(first, slots=together, buckets=buckets, readings=_newest_readings(readings, first.links))


def problem(windows: LinkWindows) -> str | None:
    """Return why sums cannot be a collector's, None if they can."""
    slots, buckets, readings = windows.slots, windows.buckets, windows.readings
    for name, rows in (("slots", slots), ("readings", readings)):
        if not bool((np.diff(_key(rows.link, rows.number)) > 0).all()):
            return f"{name} are not in order"
    keys, own = _key(slots.link, slots.number), _key(buckets.link, buckets.number)
    if not bool(np.isin(own, keys).all()):
        return "buckets have a slot that is not there"
    if not np.array_equal(_sum(np.searchsorted(keys, own), buckets.count, len(keys)), slots.delays):
        return "buckets and slots have different counts of delays"
    return None


def figures_of(windows: LinkWindows) -> WindowColumns:
    """Return the figures of each link's window."""
    links, slots = windows.links, windows.slots
    counted, newest = _of_best(windows), _most(slots.link, slots.number, links)
    link = slots.link[counted]
    delays, total_ns = slots.delays[counted], slots.total_ns[counted]
    samples = _sum(link, delays, links)
    weight = 1 << np.maximum(SLOTS - 1 - (newest[link] - slots.number[counted]), 0)
    means = total_ns // np.maximum(delays, 1)
    weights = _sum(link, weight, links)
    greatest = _most(link, slots.greatest_ns[counted], links)
    least: Integers = np.full(links, _NONE, np.int64)
    np.minimum.at(least, link, slots.least_ns[counted])
    p50, p99 = (_percentiles(windows, samples, least, greatest, share) for share in (50, 99))
    source = _most(slots.link, slots.source, links)
    last_delays, last_queues = _last(slots, counted, links), _last(slots, slots.queues > 0, links)
    measured = samples > 0
    return WindowColumns(
        delay_mean_ns=np.where(measured, _sum(link, total_ns, links) // np.maximum(samples, 1), UNKNOWN),
        delay_p50_ns=np.where(measured, p50, UNKNOWN),
        delay_p99_ns=np.where(measured, p99, UNKNOWN),
        delay_ewma_ns=np.where(measured, _sum(link, weight * means, links) // np.maximum(weights, 1), UNKNOWN),
        delay_max_ns=np.where(measured, greatest, UNKNOWN),
        source=np.maximum(source, 0),
        samples=samples,
        queue_occupancy_frames=_share(slots.queue_frames, slots.queues, slots.link, links),
        tx_bytes_per_window=_mean_readings(windows),
        newest_ns=_most(slots.link, slots.newest_ns, links),
        buffer_occupancy_frames=_share(slots.buffer_frames, slots.buffers, slots.link, links),
        newest_delay_ns=_picked(slots.total_ns // np.maximum(slots.delays, 1), last_delays),
        newest_queue_frames=_picked_share(slots.queue_frames, slots.queues, last_queues),
        newest_tx_bytes=_picked(windows.readings.nbytes, _last(windows.readings, None, links)),
    )


def _of_best(windows: LinkWindows) -> Flags:
    """Return which slots have delays of their window's best source."""
    slots = windows.slots
    best = _most(slots.link, slots.source, windows.links)
    counted: Flags = (slots.source == best[slots.link]) & (slots.delays > 0)
    return counted


def _added_up(slots: SlotRows, group: Integers, count: int, best: Integers, counted: Flags) -> SlotRows:
    """Return the sums of groups of slots; delays count where they are of the best source."""
    of = group[counted]
    _, first = np.unique(group, return_index=True)
    least: Integers = np.full(count, _NONE, np.int64)
    np.minimum.at(least, of, slots.least_ns[counted])
    return SlotRows(
        link=slots.link[first],
        number=slots.number[first],
        source=best,
        delays=_sum(of, slots.delays[counted], count),
        total_ns=_sum(of, slots.total_ns[counted], count),
        least_ns=np.where(least == _NONE, 0, least),
        greatest_ns=np.maximum(_most(of, slots.greatest_ns[counted], count), 0),
        queues=_sum(group, slots.queues, count),
        queue_frames=_sum(group, slots.queue_frames, count),
        buffers=_sum(group, slots.buffers, count),
        buffer_frames=_sum(group, slots.buffer_frames, count),
        newest_ns=_most(group, slots.newest_ns, count),
    )


def _counted_buckets(part: LinkWindows, keys: Integers, best: Integers) -> BucketRows:
    """Return a part's counts by bucket of the slots that are still in windows and have the best source."""
    own, slots = part.buckets, part.slots
    if not len(own.link) or not len(keys):
        return _rows(own, np.zeros(len(own.link), np.bool_))
    source = slots.source[np.searchsorted(_key(slots.link, slots.number), _key(own.link, own.number))]
    key = _key(own.link, own.number)
    places = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
    return _rows(own, (keys[places] == key) & (source == best[places]))


def _added_buckets(buckets: BucketRows) -> BucketRows:
    order = np.lexsort((buckets.bucket, buckets.number, buckets.link))
    buckets = _rows(buckets, order)
    same = np.zeros(len(order), np.bool_)
    same[1:] = (
        (buckets.link[1:] == buckets.link[:-1])
        & (buckets.number[1:] == buckets.number[:-1])
        & (buckets.bucket[1:] == buckets.bucket[:-1])
    )
    group = np.cumsum(~same) - 1
    first = np.flatnonzero(~same)
    return replace(_rows(buckets, first), count=_sum(group, buckets.count, len(first)))


def _newest_readings(readings: Readings, links: int) -> Readings:
    """Return one reading of each number, the newest, of those that a window has room for."""
    newest = _most(readings.link, readings.number, links)
    readings = _rows(readings, readings.number > newest[readings.link] - TX_READINGS)
    order = np.lexsort((readings.nbytes, readings.at_ns, readings.number, readings.link))
    readings = _rows(readings, order)
    key = _key(readings.link, readings.number)
    return _rows(readings, np.append(key[1:] != key[:-1], True)[: len(key)])


def _mean_readings(windows: LinkWindows) -> Integers:
    """Return the mean of the readings in each window; the newest counts however old it is."""
    readings, links = windows.readings, windows.links
    begins_ns = _most(windows.slots.link, windows.slots.newest_ns, links) - windows.window_ns
    newest = _most(readings.link, readings.number, links)
    inside = readings.number * windows.tx_window_ns >= np.maximum(begins_ns, 0)[readings.link]
    counted = inside | (readings.number == newest[readings.link])
    link = readings.link[counted]
    count = _sum(link, np.ones(len(link), np.int64), links)
    return np.where(count > 0, _sum(link, readings.nbytes[counted], links) // np.maximum(count, 1), UNKNOWN)


def _percentiles(windows: LinkWindows, samples: Integers, least: Integers, greatest: Integers, share: int) -> Integers:
    """Return a percentile of each window's delays of its best source: the number of nearest rank, as `Sketch` does."""
    buckets, slots = windows.buckets, windows.slots
    if not len(buckets.link):
        return greatest
    of_slot = np.searchsorted(_key(slots.link, slots.number), _key(buckets.link, buckets.number))
    buckets = _rows(buckets, _of_best(windows)[of_slot])
    order = np.lexsort((buckets.bucket, buckets.link))
    buckets = _rows(buckets, order)
    rank = np.maximum((samples * share + 99) // 100, 1)
    # Counts add up over all links: the rank of a link's delay begins behind those of the links before.
    before = np.cumsum(samples) - samples
    below = np.cumsum(buckets.count)
    places = np.minimum(np.searchsorted(below, before + rank), len(below) - 1)
    middle = np.clip(_middles(buckets.bucket[places]), np.minimum(least, greatest), greatest)
    return np.where(rank >= samples, greatest, middle)


def _middles(buckets: Integers) -> Integers:
    """Return `middle_of` of many buckets."""
    shift = np.maximum((buckets >> SUB_BITS) - 1, 0)
    above = ((buckets - (shift << SUB_BITS)) << shift) + (1 << np.maximum(shift - 1, 0))
    return np.where(buckets < EXACT_BELOW, buckets, above)


def _last(rows: SlotRows | Readings, chosen: Flags | None, links: int) -> Integers:
    """Return the row of each link's greatest number among the chosen ones, UNKNOWN where there is none."""
    places = np.arange(len(rows.link)) if chosen is None else np.flatnonzero(chosen)
    last: Integers = np.full(links, UNKNOWN, np.int64)
    # Rows are in order of number: the last assignment stays.
    last[rows.link[places]] = places
    return last


def _picked(column: Integers, places: Integers) -> Integers:
    return np.where(places == UNKNOWN, UNKNOWN, column[places]) if len(column) else places


def _picked_share(total: Integers, count: Integers, places: Integers) -> Numbers:
    if not len(total):
        return np.full(len(places), np.nan)
    shares: Numbers = np.where(places == UNKNOWN, np.nan, total[places] / np.maximum(count[places], 1))
    return shares


def _share(total: Integers, count: Integers, link: Integers, links: int) -> Numbers:
    counts = _sum(link, count, links)
    shares: Numbers = np.where(counts > 0, _sum(link, total, links) / np.maximum(counts, 1), np.nan)
    return shares


def _sum(group: Integers, values: Integers, count: int) -> Integers:
    sums: Integers = np.zeros(count, np.int64)
    np.add.at(sums, group, values)
    return sums


def _most(group: Integers, values: Integers, count: int) -> Integers:
    """Return the greatest value of each group, UNKNOWN of none."""
    most: Integers = np.full(count, UNKNOWN, np.int64)
    np.maximum.at(most, group, values)
    return most


def _key(link: Integers, number: Integers) -> Integers:
    """Return numbers in order of link and then of slot."""
    return (link << _NUMBER_BITS) | (number & _NUMBER_MASK)


_NUMBER_BITS: Final = 42
"""Enough for slots of half a millisecond since 1970."""
_NUMBER_MASK: Final = (1 << _NUMBER_BITS) - 1


def _joined(kind: type[R], parts: Sequence[R]) -> R:
    return kind(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(kind)))


def _rows(rows: R, chosen: Flags | Integers) -> R:
    return type(rows)(*(getattr(rows, field.name)[chosen] for field in fields(rows)))
