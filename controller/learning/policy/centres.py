"""Observation of a waiting task and the compute centres: the pool's six features and more, per centre."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controller.cluster.cost_map import UNREACHABLE_NS
from controller.learning.policy.observing import PAGE_BYTES, logarithmic, operations_of, shared, timed
from controller.learning.values import Bools, Floats, Observation
from controller.scheduling.dispatch.policies import Question
from controller.scheduling.dispatch.values import CentresView, Longs

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
        place = {name: number for number, name in enumerate(names)}
        return cls(names, np.array([place[one.centre] for one in view.offers], np.int64))


def observe(
    asked: Question, rows: Longs, centres: Centres, *, has_network: bool, has_load: bool = False
) -> Observation:
    """Return what is seen of a task of which `rows` are the options that are possible; an action is a centre.

    Utilisation is the held share of all units; the size is what the task reads, free is a centre's free share of the
    units of its possible options, similarity the share of what is read that lies on one of the centre's hosts.
    Operations are those that the task states, as far as their kinds are known. Writes are not known of tasks: 0. Delay
    and bandwidth are the longest and the least from hosts that the task reads from elsewhere, the latter as a part of
    the fastest; nothing known of the network counts as nothing between.
    """
    view, count = asked.view, len(centres.names)
    offers = np.unique(asked.options.offer[rows])
    at = centres.of_offer[offers]
    candidates = np.zeros(count, np.bool_)
    candidates[at] = True
    free, units = np.zeros(count), np.zeros(count)
    np.add.at(free, at, [view.slots[offer].free for offer in offers.tolist()])
    np.add.at(units, at, view.counts[offers])
    nbytes = sum(one.nbytes for one in asked.task.reads)
    local = np.array([_local(asked, view.centres[name].hosts) for name in centres.names], np.float64)
    delay, bandwidth = _ways(asked, centres)
    return Observation.of(
        utilisation=1 - sum(one.free for one in view.slots) / max(int(view.counts.sum()), 1),
        operations=float(logarithmic(operations_of(asked.task.operators))),
        size=float(logarithmic(-(-nbytes // PAGE_BYTES))),
        is_write=0.0,
        free=free / np.maximum(units, 1),
        similarity=local / max(nbytes, 1),
        candidates=candidates,
        delay=delay if has_network else None,
        bandwidth=bandwidth if has_network else None,
        load=_loads(asked, rows, centres, candidates) if has_load else (),
    )


def _loads(asked: Question, rows: Longs, centres: Centres, candidates: Bools) -> Sequence[Floats]:
    """Return six figures of each centre's load, of its option that ends first; 1 for what is not possible or known.

    Queued are held units over all; it waits until its units are free; computing takes the estimate, at most; fetching
    takes what it reads. How long ports are taken is not known: 0.
    """
    view, count = asked.view, len(centres.names)
    held, units = np.zeros(count), np.zeros(count)
    np.add.at(held, centres.of_offer, view.counts - np.array([one.free for one in view.slots], np.int64))
    np.add.at(units, centres.of_offer, view.counts)
    seconds = np.full((3, count), np.inf)
    finish_s = np.nan_to_num(asked.finish_s, nan=np.inf)
    for row in rows[np.argsort(-finish_s[rows], kind="stable")].tolist():
        centre = centres.of_offer[asked.options.offer[row]]
        seconds[:, centre] = asked.start_s[row], asked.options.high[row], asked.transfer_s[row]
    is_known = candidates & np.isfinite(seconds)
    waits, takes, fetches = np.where(is_known, timed(1e9 * np.where(is_known, seconds, 0)), 1)
    none = np.zeros(count, np.float32)
    return shared(held / np.maximum(units, 1)), waits, takes, none, none, fetches


def _local(asked: Question, hosts: tuple[str, ...]) -> int:
    return sum(one.nbytes for one in asked.task.reads if one.host in hosts)


def _ways(asked: Question, centres: Centres) -> tuple[Figures, Figures]:
    """Return the longest delay and the least bandwidth from hosts elsewhere to each centre, as features."""
    view, count = asked.view, len(centres.names)
    delay, bandwidth = np.zeros(count), np.ones(count)
    known = [seconds for seconds, _ in view.transfer_s.values() if 0 < seconds < np.inf]
    fastest_s = min(known, default=0.0)
    for number, name in enumerate(centres.names):
        hosts = view.centres[name].hosts
        for read in asked.task.reads:
            if read.host in hosts:
                continue
            seconds = view.transfer_s.get((read.host, name), (0.0, False))[0]
            if seconds > 0:
                bandwidth[number] = min(bandwidth[number], fastest_s / seconds if np.isfinite(seconds) else 0.0)
            delay[number] = max(delay[number], _delay(view, read.host, hosts))
    return delay, bandwidth


def _delay(view: CentresView, host: str, hosts: tuple[str, ...]) -> float:
    """Return the shortest delay from a host to one of some, as a feature: 0 if not known, 1 where no way leads."""
    if view.costs is None or host not in view.costs.model.host_number:
        return 0.0
    number = view.costs.model.host_number
    found = [int(view.costs.pairs.delay_ns[number[host], number[one]]) for one in hosts if one in number]
    reached = [delay_ns for delay_ns in found if delay_ns != UNREACHABLE_NS]
    if not found:
        return 0.0
    return float(logarithmic(min(reached))) if reached else 1.0
