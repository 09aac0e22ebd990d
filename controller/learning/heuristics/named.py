"""Rules by name, for each kind of input."""

from __future__ import annotations

from controller.learning.environment.view import PoolView
from controller.learning.heuristics.heft import Heft
from controller.learning.heuristics.jobs import (
    LeastFirst,
    OldestFirst,
    Rollout,
    area,
    f1,
    run_time,
    unicep,
    wfp3,
)
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
from controller.learning.values import Chooser


def pool_rules(made: PoolInput, seed: int) -> dict[str, Chooser[PoolView]]:
    """Return the rules that choose a node, each as at the beginning; HEFT where there is a graph.

    `earliest-finish` foretells by the environment itself, which no scheduler of a real system can. `foretold-local` is
    among them where what it goes by is shown.
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
    """Return the rules that order jobs; what takes the oldest is EASY where the environment backfills.

    `rollout` is among them where what it goes by is shown.
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
