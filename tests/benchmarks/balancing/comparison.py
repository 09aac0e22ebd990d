"""Open loop, autoscaler, controllers and optimum over the family of duty cycles, on both clusters.

Figures of a driver are sums over patterns and clusters of one seed, work over work and energy per unit of work over
energy per unit of work; each seed gives one; mean and spread are shown. The training seeds are others.

    .venv/bin/python -m tests.benchmarks.balancing.comparison   # --quick; --sent 0: bytes of one size throughout
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.benchmarks.balancing.clusters import SENT, Cluster, ClusterKind, cluster
from tests.benchmarks.balancing.family import STEADY, SYNTHETIC, Pattern
from tests.benchmarks.balancing.forms import COMPARED, FREEING, OPEN, P_ONLY
from tests.benchmarks.balancing.optimum import Optimum, optimum
from tests.benchmarks.balancing.recorded import duty_cycles
from tests.benchmarks.balancing.running import Driver, Outcome, run

SEEDS: Final = (1, 2, 3, 4, 5)
MINUTES: Final = 240
QUICK_MINUTES: Final = 60
HEADLINE: Final = FREEING
"""Driver whose figures go into the benchmark's JSON."""

Which = Callable[[Cluster], bool]


@dataclass(frozen=True, slots=True)
class Compared:
    """Runs of one driver and its baselines, by cluster."""

    clusters: tuple[Cluster, ...]
    outcomes: tuple[Outcome, ...]
    open: tuple[Outcome, ...]
    best: tuple[Optimum, ...]

    def where(self, which: Which) -> Compared:
        """Return the part of some clusters."""
        at = [index for index, cluster in enumerate(self.clusters) if which(cluster)]
        return Compared(
            tuple(self.clusters[index] for index in at),
            tuple(self.outcomes[index] for index in at),
            tuple(self.open[index] for index in at),
            tuple(self.best[index] for index in at),
        )

    @property
    def gain(self) -> float:
        """Work over the open loop's, less 1."""
        return _work(self.outcomes) / _work(self.open) - 1.0

    @property
    def share(self) -> float:
        """Work over the optimum's."""
        return _work(self.outcomes) / _work(self.best)

    @property
    def energy_ratio(self) -> float:
        """Energy per unit of work, over the open loop's."""
        return _energy(self.outcomes) / _energy(self.open)

    @property
    def best_gain(self) -> float:
        """The optimum's work over the open loop's, less 1."""
        return _work(self.best) / _work(self.open) - 1.0

    @property
    def best_energy_ratio(self) -> float:
        """The optimum's energy per unit of work over the open loop's."""
        return _energy(self.best) / _energy(self.open)

    @property
    def changes(self) -> float:
        """Changes of levers a minute and device, the mean of all."""
        return fmean(outcome.changes_per_minute for outcome in self.outcomes)

    @property
    def most_steady_changes(self) -> float:
        """As `changes`, of the device with most of them where neither load nor applications change."""
        steady = self.where(lambda cluster: cluster.pattern in STEADY and cluster.kind is ClusterKind.EXAMPLE)
        return max(outcome.most_changes_per_minute for outcome in steady.outcomes)

    def seeds(self, value: Callable[[Compared], float]) -> list[float]:
        """Return a figure for each seed."""
        numbers = sorted({cluster.seed for cluster in self.clusters})
        return [value(self.where(lambda cluster, seed=seed: cluster.seed == seed)) for seed in numbers]  # type: ignore[misc]


def _work(outcomes: Sequence[Outcome | Optimum]) -> float:
    return sum(outcome.work_tera for outcome in outcomes)


def _energy(outcomes: Sequence[Outcome | Optimum]) -> float:
    return sum(outcome.energy_j for outcome in outcomes) / _work(outcomes)


def patterns() -> tuple[Pattern, ...]:
    """Return the load patterns: recorded (if there is a file) and steady ones; else the synthetic family."""
    return SYNTHETIC if duty_cycles() is None else (*STEADY, Pattern.RECORDED)


def counted(compared: Compared) -> Compared:
    """Return the runs that work and energy are summed over: only recorded loads, if any."""
    return compared if duty_cycles() is None else compared.where(lambda cluster: cluster.pattern is Pattern.RECORDED)


def compare(seeds: Sequence[int], minutes: int, drivers: Sequence[Driver], sent: float = SENT) -> dict[str, Compared]:
    """Return the runs of each driver, by its name; the open loop's among them."""
    clusters = tuple(
        cluster(kind, pattern, seed, minutes, sent) for seed in seeds for kind in ClusterKind for pattern in patterns()
    )
    best = tuple(optimum(cluster) for cluster in clusters)
    by_driver = {driver.name: tuple(run(cluster, driver) for cluster in clusters) for driver in (OPEN.driver, *drivers)}
    return {name: Compared(clusters, outcomes, by_driver[OPEN.name], best) for name, outcomes in by_driver.items()}


def drivers_of() -> list[Driver]:
    """Return all that is compared, and P as the specification's table has it: kp 1, asking at any load."""
    literal = P_ONLY.build("P, as the table stands", {"kp": 1.0, "wait": 2, "margin": 0.1, "asks_from": 0.0})
    return [literal, *(entry.driver for entry in COMPARED if entry is not OPEN)]


def summary_table(results: Mapping[str, Compared]) -> Table:
    """Return a line for each driver, and one for the optimum."""
    columns = (
        "work over open loop",
        "of the optimum",
        "energy per work",
        "changes, min⁻¹",
        "in steady load, at most",
        "|e|",
    )
    table = Table("", *columns, title="Both clusters, all patterns; mean and spread over seeds")
    for name, compared in results.items():
        table.add_row(
            name,
            _spread(counted(compared).seeds(lambda part: part.gain), "+.1%"),
            _spread(counted(compared).seeds(lambda part: part.share), ".1%"),
            _spread(counted(compared).seeds(lambda part: part.energy_ratio), ".3f"),
            f"{compared.changes:.2f}",
            f"{compared.most_steady_changes:.2f}",
            f"{fmean(outcome.errors for outcome in compared.outcomes):.3f}",
        )
    last = counted(next(iter(results.values())))
    best_gain = _spread(last.seeds(lambda part: part.best_gain), "+.1%")
    best_energy = _spread(last.seeds(lambda part: part.best_energy_ratio), ".3f")
    table.add_row("optimum, computed offline", best_gain, "100 %", best_energy, "", "", "")
    return table


def pattern_table(results: Mapping[str, Compared]) -> Table:
    """Return work over the open loop's by pattern, of each driver and the optimum."""
    table = Table(
        "cluster", "pattern", *results, "optimum", title="Work over the open loop's | energy per unit of work"
    )
    for kind in ClusterKind:
        for pattern in patterns():
            parts = [
                compared.where(lambda c, kind=kind, pattern=pattern: c.kind is kind and c.pattern is pattern)  # type: ignore[misc]
                for compared in results.values()
            ]
            cells = [f"{part.gain:+.1%} | {part.energy_ratio:.2f}" for part in parts]
            table.add_row(kind, pattern, *cells, f"{parts[0].best_gain:+.1%} | {parts[0].best_energy_ratio:.2f}")
    return table


def _spread(values: Sequence[float], form: str) -> str:
    spread = format(pstdev(values), form.replace("+", ""))
    return f"{format(fmean(values), form)} ± {spread}" if len(values) > 1 else format(values[0], form)


def measure(*, quick: bool, sent: float = SENT, console: Console | None = None) -> dict[str, float | None]:
    """Run all, show the tables and return the headline's figures."""
    results = compare(SEEDS[:1] if quick else SEEDS, QUICK_MINUTES if quick else MINUTES, drivers_of(), sent)
    shown = console or Console(width=160)
    shown.print(summary_table(results), pattern_table(results))
    headline = results[HEADLINE.name]
    return {
        "gain_over_open_loop": fmean(counted(headline).seeds(lambda part: part.gain)),
        "share_of_optimum": fmean(counted(headline).seeds(lambda part: part.share)),
        "energy_ratio": fmean(counted(headline).seeds(lambda part: part.energy_ratio)),
        "changes_per_minute": headline.most_steady_changes,
    }


def main() -> None:
    """Show the tables and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sent", type=float, default=SENT, help="share of bytes whose size the precision changes")
    chosen = parser.parse_args()
    sys.stdout.write(json.dumps(measure(quick=chosen.quick, sent=chosen.sent)) + "\n")


if __name__ == "__main__":
    main()
