"""Rules by name, for each kind of input."""

from __future__ import annotations

import math
from collections.abc import Callable

from controller.learning.environment.view import PoolView
from controller.learning.heuristics.heft import Heft
from controller.learning.heuristics.pool import (
    DataLocal,
    EarliestFinish,
    FastOnly,
    ForetoldLocal,
    LeastLoaded,
    Random,
    RoundRobin,
)
from controller.learning.inputs.ordering import Ordering, OrderingSettings
from controller.learning.inputs.values import PoolInput
from controller.learning.values import Chooser, Observation
from dataplane.clock import NS_PER_S

Priority = Callable[[Ordering, int], float]
"""Priority of a job, by its number; the lowest comes first."""


class LeastFirst:
    """The job with the lowest priority figure; among equals the oldest. With `fitting` jobs that fit now go first."""

    def __init__(self, priority: Priority, *, fitting: bool = False) -> None:
        self._priority = priority
        self._fitting = fitting

    def choose(self, observation: Observation, view: Ordering) -> int:  # noqa: ARG002 - it looks at jobs alone
        """Return the position of the first job."""
        window = view.window
        return min(view.places, key=lambda position: self._key(view, window[position]))

    def _key(self, view: Ordering, job: int) -> tuple[bool, float]:
        return self._fitting and view.processors_of(job) > view.free, self._priority(view, job)


def run_time(view: Ordering, job: int) -> float:
    """Shortest job first."""
    return view.estimate_of(job)


def area(view: Ordering, job: int) -> float:
    """Smallest area first: processors by run time."""
    return float(view.estimate_of(job)) * view.processors_of(job)


def wfp3(view: Ordering, job: int) -> float:
    """WFP3 of Tang, Lan, Desai and Buettner, "Fault-aware, utility-based job scheduling on Blue Gene/P", 2009."""
    return -((view.waited_ns(job) / view.estimate_of(job)) ** 3) * view.processors_of(job)


def unicep(view: Ordering, job: int) -> float:
    """UNICEF of the same authors; a job of one processor, whose logarithm is 0, counts as one of two."""
    return -view.waited_ns(job) / (math.log2(max(view.processors_of(job), 2)) * view.estimate_of(job))


def f1(view: Ordering, job: int) -> float:
    """F1 of Carastan-Santos and de Camargo, 2017.

    "Obtaining dynamic scheduling policies with simulation and machine learning"; times count in seconds, submission
    from the beginning of the run.
    """
    submitted_s = max(view.submitted_of(job) / NS_PER_S, 1)
    run_s = view.estimate_of(job) / NS_PER_S
    return math.log10(run_s) * view.processors_of(job) + 870 * math.log10(submitted_s)


class OldestFirst:
    """The job that was submitted first: with backfilling this is EASY, without it first come, first served.

    Lifka, "The ANL/IBM SP scheduling system", 1995.
    """

    def choose(self, observation: Observation, view: Ordering) -> int:  # noqa: ARG002 - it looks at jobs alone
        """Return the position of the oldest job."""
        return view.places[0]


class Rollout:
    """The job that keeps the sum of all waits shortest, predicted as by `Ordering.lengthened_ns`.

    Among equals the shortest that fits: a rollout of that rule, Bertsekas, Tsitsiklis and Wu, "Rollout algorithms for
    combinatorial optimization", 1997.
    """

    def choose(self, observation: Observation, view: Ordering) -> int:  # noqa: ARG002 - it looks at jobs alone
        """Return the position of the first job."""
        window, lengthened_ns = view.window, dict(zip(view.places, view.lengthened_ns(), strict=True))

        def key(position: int) -> tuple[int, bool, int]:
            job = window[position]
            return lengthened_ns[position], view.processors_of(job) > view.free, view.estimate_of(job)

        return min(view.places, key=key)


def pool_rules(made: PoolInput, seed: int) -> dict[str, Chooser[PoolView]]:
    """Return the rules that choose a node, each in its initial state; with HEFT if there is a graph.

    `earliest-finish` predicts by the environment itself, which no scheduler of a real system can. `foretold-local` is
    included if its feature is observed.
    """
    rules: dict[str, Chooser[PoolView]] = {
        "random": Random(seed),
        "round-robin": RoundRobin(),
        "least-loaded": LeastLoaded(),
        "data-local": DataLocal(),
        "fast-only": FastOnly(),
        "earliest-finish": EarliestFinish(),
    }
    if made.settings.foretold:
        rules["foretold-local"] = ForetoldLocal()
    return rules | {"heft": Heft()} if made.has_graph else rules


def job_rules(settings: OrderingSettings, seed: int) -> dict[str, Chooser[Ordering]]:
    """Return the rules that order jobs; oldest first is EASY if the environment backfills.

    `rollout` is included if its feature is observed.
    """
    oldest = "easy" if settings.backfilling else "first-come-first-served"
    rules: dict[str, Chooser[Ordering]] = {
        "random": Random(seed),
        oldest: OldestFirst(),
        "shortest-first": LeastFirst(run_time),
        "shortest-fitting-first": LeastFirst(run_time, fitting=True),
        "smallest-first": LeastFirst(area),
        "smallest-fitting-first": LeastFirst(area, fitting=True),
        "wfp3": LeastFirst(wfp3),
        "unicep": LeastFirst(unicep),
        "f1": LeastFirst(f1),
    }
    return rules | {"rollout": Rollout()} if settings.foretold else rules
