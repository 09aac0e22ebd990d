"""Settings for all that is compared, by one search on training seeds: the opponents are at their best as ours are.

Coordinate descent: one setting after another takes the value that does best while the others stay, until a whole turn
changes nothing. The objective is work over the optimum's, less a tenth of energy per unit of work over the open loop's,
less a tenth of the changes above one a minute that the device with most of them sees in steady load, the mean of runs.

    .venv/bin/python -m tests.benchmarks.balancing.tuning      # --only NAME; prints what forms.py has
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from controller.balance.errors import GainsError
from tests.benchmarks.balancing.clusters import Cluster, ClusterKind, cluster
from tests.benchmarks.balancing.family import STEADY, SYNTHETIC
from tests.benchmarks.balancing.forms import AUTOSCALER, COMPARED, OPEN, Compared, Values
from tests.benchmarks.balancing.optimum import Optimum, optimum
from tests.benchmarks.balancing.running import Outcome, run

TRAINING_SEEDS: Final = (101, 102)
MINUTES: Final = 60
ENERGY_WEIGHT: Final = 0.1
MOST_CHANGES: Final = 1.0
CHANGES_WEIGHT: Final = 0.1
TURNS: Final = 4


class Training:
    """The training part of the family, and how settings do on it."""

    def __init__(self, seeds: Sequence[int] = TRAINING_SEEDS, minutes: int = MINUTES) -> None:
        self.clusters: tuple[Cluster, ...] = tuple(
            cluster(kind, pattern, seed, minutes) for seed in seeds for kind in ClusterKind for pattern in SYNTHETIC
        )
        self.best: tuple[Optimum, ...] = tuple(optimum(cluster) for cluster in self.clusters)
        self.open: tuple[Outcome, ...] = tuple(run(cluster, OPEN.driver) for cluster in self.clusters)

    def score(self, compared: Compared, values: Values) -> float:
        """Return the objective for some settings."""
        driver = compared.build(compared.name, values)
        outcomes = [run(cluster, driver) for cluster in self.clusters]
        work, energy = sum(outcome.work_tera for outcome in outcomes), sum(outcome.energy_j for outcome in outcomes)
        open_work, open_energy = (
            sum(outcome.work_tera for outcome in self.open),
            sum(outcome.energy_j for outcome in self.open),
        )
        steady = [
            outcome.most_changes_per_minute
            for outcome, cluster in zip(outcomes, self.clusters, strict=True)
            if cluster.pattern in STEADY and cluster.kind is ClusterKind.EXAMPLE
        ]
        share = work / sum(best.work_tera for best in self.best)
        return (
            share
            - ENERGY_WEIGHT * (energy / work) / (open_energy / open_work)
            - CHANGES_WEIGHT * sum(max(changes - MOST_CHANGES, 0.0) for changes in steady) / len(steady)
        )

    def tuned(self, compared: Compared) -> tuple[Values, float]:
        """Return the settings at which the search ends, and their score."""
        values, best = dict(compared.values), self.score(compared, compared.values)
        for _ in range(TURNS):
            before = dict(values)
            for name, tried in compared.tried.items():
                for value in tried:
                    candidate = {**values, name: value}
                    if candidate == values or _is_senseless(compared, candidate):
                        continue
                    try:
                        score = self.score(compared, candidate)
                    except GainsError:  # unstable: refused, so no choice
                        continue
                    if score > best:
                        values, best = candidate, score
            if values == before:
                break
        return values, best


def _is_senseless(compared: Compared, values: Values) -> bool:
    """Return whether an autoscaler would free units at the load at which it adds some."""
    return compared is AUTOSCALER and not (
        values["low"] < values["high"] and (not values["target"] or values["low"] <= values["target"] <= values["high"])
    )


def main() -> int:
    """Tune and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[entry.name for entry in COMPARED])
    options = parser.parse_args()
    training = Training()
    for compared in COMPARED:
        if compared is OPEN or (options.only and compared.name not in options.only):
            continue
        values, score = training.tuned(compared)
        sys.stdout.write(f"{compared.name}: {score:.4f} {values}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
