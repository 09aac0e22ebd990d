"""Observation of a waiting task and the compute centres: the pool's six features and more, per centre."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controller.cluster.cost_map import UNREACHABLE_NS
from controller.learning.policy.observing import operations_of
from controller.learning.policy.scales import PAGE_BYTES, logarithmic, shared
from controller.learning.policy.scales import timed as time_features
from controller.learning.values import Bools, Floats, Observation
from controller.scheduling.framework.policies import Longs
from controller.scheduling.tasks.values import CentreState, CentresView, PendingTask, Read, TimedOptions

Figures = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Centres:
    """The centres of a view, in order of name, and the place of each offer's centre among them."""

    names: tuple[str, ...]
    of_offer: Longs

    @classmethod
    def of(cls, view: CentresView) -> Centres:
        """Return the centres of a view."""
        names = tuple(sorted(view.centres))
        position = {name: number for number, name in enumerate(names)}
        return cls(names, np.array([position[offer.centre] for offer in view.offers], np.int64))


def observe(
    task: PendingTask, timed: TimedOptions, rows: Longs, centres: Centres, *, has_network: bool, has_load: bool = False
) -> Observation:
    """Return the observation of a task for which the options `rows` are possible; an action is a centre.

    Utilisation is the held share of all units; the size is what the task reads, free is a centre's free share of the
    units of its possible options, similarity the share of what is read that lies on one of the centre's hosts.
    Operations are those that the task states, as far as their kinds are known. Writes of tasks are unknown: 0. Delay
    and bandwidth are the longest and the least from hosts elsewhere that the task reads from, the latter relative to
    the fastest; an unknown network counts as nothing between.
    """
    view, count = timed.view, len(centres.names)
    offers = np.unique(timed.options.offer[rows])
    at = centres.of_offer[offers]
    candidates = np.zeros(count, np.bool_)
    candidates[at] = True
    free, units = np.zeros(count), np.zeros(count)
    np.add.at(free, at, [view.slots[offer].free for offer in offers.tolist()])
    np.add.at(units, at, view.counts[offers])
    nbytes = sum(read.nbytes for read in task.reads)
    local = np.array([_local(task, view.centres[name]) for name in centres.names], np.float64)
    delay, bandwidth = _ways(task, view, centres)
    return Observation.of(
        utilisation=1 - sum(slot.free for slot in view.slots) / max(int(view.counts.sum()), 1),
        operations=float(logarithmic(operations_of(task.operators))),
        size=float(logarithmic(-(-nbytes // PAGE_BYTES))),
        is_write=0.0,
        free=free / np.maximum(units, 1),
        similarity=local / max(nbytes, 1),
        candidates=candidates,
        delay=delay if has_network else None,
        bandwidth=bandwidth if has_network else None,
        load=_loads(timed, rows, centres, candidates) if has_load else (),
    )


def _loads(timed: TimedOptions, rows: Longs, centres: Centres, candidates: Bools) -> Sequence[Floats]:
    """Return six figures of each centre's load, for its option that ends first; 1 for impossible or unknown ones.

    Queued are held units over all; wait is the time until its units are free; compute is the estimate, at most;
    fetching takes what it reads. The occupation of ports is unknown: 0.
    """
    view, count = timed.view, len(centres.names)
    held, units = np.zeros(count), np.zeros(count)
    np.add.at(held, centres.of_offer, view.counts - np.array([slot.free for slot in view.slots], np.int64))
    np.add.at(units, centres.of_offer, view.counts)
    seconds = np.full((3, count), np.inf)
    finish_s = np.nan_to_num(timed.finish_s, nan=np.inf)
    for row in rows[np.argsort(-finish_s[rows], kind="stable")].tolist():
        centre = centres.of_offer[timed.options.offer[row]]
        seconds[:, centre] = timed.start_s[row], timed.options.high[row], timed.transfer_s[row]
    is_known = candidates & np.isfinite(seconds)
    waits, takes, fetches = np.where(is_known, time_features(1e9 * np.where(is_known, seconds, 0)), 1)
    none = np.zeros(count, np.float32)
    return shared(held / np.maximum(units, 1)), waits, takes, none, none, fetches


def _local(task: PendingTask, centre: CentreState) -> int:
    return sum(read.nbytes for read in task.reads if _is_at(read, centre))


def _is_at(read: Read, centre: CentreState) -> bool:
    return read.centre == centre.name if read.centre else read.host in centre.hosts


def _ways(task: PendingTask, view: CentresView, centres: Centres) -> tuple[Figures, Figures]:
    """Return the longest delay and the least bandwidth from hosts elsewhere to each centre, as features."""
    count = len(centres.names)
    delay, bandwidth = np.zeros(count), np.ones(count)
    known_s = [way[0] for read in task.reads for name in centres.names if (way := view.way(read, name)) is not None]
    times_s = [seconds for seconds, _ in view.transfer_s.values()] + known_s
    fastest_s = min((seconds for seconds in times_s if 0 < seconds < np.inf), default=0.0)
    for number, name in enumerate(centres.names):
        centre = view.centres[name]
        for read in task.reads:
            if _is_at(read, centre):
                continue
            seconds = (view.way(read, name) or (0.0, False))[0]
            if seconds > 0:
                bandwidth[number] = min(bandwidth[number], fastest_s / seconds if np.isfinite(seconds) else 0.0)
            sources = view.centres[read.centre].hosts if read.centre in view.centres else (read.host,)
            delay[number] = max(delay[number], min((_delay(view, host, centre.hosts) for host in sources), default=0.0))
    return delay, bandwidth


def _delay(view: CentresView, host: str, hosts: tuple[str, ...]) -> float:
    """Return the shortest delay from a host to one of some, as a feature: 0 if unknown, 1 without a path."""
    if view.costs is None or host not in view.costs.model.host_number:
        return 0.0
    number = view.costs.model.host_number
    delays_ns = [int(view.costs.pairs.delay_ns[number[host], number[other]]) for other in hosts if other in number]
    reached = [delay_ns for delay_ns in delays_ns if delay_ns != UNREACHABLE_NS]
    if not delays_ns:
        return 0.0
    return float(logarithmic(min(reached))) if reached else 1.0
