"""Value of each departure from the specification: change one at a time, and learn the input again.

An agent of `tokens` learns an input (of `cases`) as in the comparison, except for one thing: one of its departures is
reverted to the specification, or one that it lacks is added. Mean responses are over the whole input, as evaluated
there.

    .venv/bin/python -m tests.benchmarks.scheduling.departures     # --quick; --case spotri; --only Adam; --seeds 1
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from statistics import fmean
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from controller.learning.training.trials import evaluate, greedy
from tests.benchmarks.scheduling.cases import CASES, SEEDS, Case, changed
from tests.benchmarks.scheduling.comparison import spread
from tests.benchmarks.scheduling.trials import in_processes, learned


@dataclass(frozen=True, slots=True)
class Departure:
    """Changes to a case's settings, each by its path below `LearningSettings`."""

    name: str
    changes: Mapping[str, Any]

    def of(self, case: Case) -> Case:
        """Return the case with the changes, where it is learned and where it is tried."""
        learning, tried = case.learning, case.tried
        for path, value in self.changes.items():
            learning, tried = changed(learning, path, value), changed(tried, path, value)
        return replaced(case, learning=learning, tried=tried)


_TRAINING: Final = "agent.training"
_ONCE: Final = {
    f"{_TRAINING}.remove_sampled": True,
    f"{_TRAINING}.drop_duplicates": True,
    f"{_TRAINING}.buffer": 1024,
    f"{_TRAINING}.start": 0,
    f"{_TRAINING}.batches": 8,
}
DEPARTURES: Final = (
    Departure("none: as the case has it", {}),
    Departure("without Adam: SGD", {f"{_TRAINING}.optimiser": "sgd", f"{_TRAINING}.learning_rate": 0.01}),
    Departure("without Huber: criticality", {f"{_TRAINING}.loss": "criticality"}),
    Departure("without replay: a full buffer, used once", _ONCE),
    Departure("without a falling learning rate", {f"{_TRAINING}.half_steps": 0}),
    Departure("without load_features", {"pool.load_features": False}),
    Departure("without port_hz", {"pool.port_hz": 0.0}),
    Departure("without a gain of the response", {"pool.gain": "specification"}),
    Departure("discount 0.9", {f"{_TRAINING}.discount": 0.9}),
    Departure("discount 0.9, double", {f"{_TRAINING}.discount": 0.9, f"{_TRAINING}.double": True}),
    Departure("distributional: 8 quantiles", {"agent.network.quantiles": 8}),
    Departure("prioritised 0.6", {f"{_TRAINING}.prioritised": 0.6}),
    Departure("clip 1", {f"{_TRAINING}.clip": 1.0}),
    Departure("margin 0.1", {"agent.decisions.margin": 0.1}),
    Departure("slot_hz 100", {"pool.slot_hz": 100.0}),
    Departure("foretold costs", {"pool.foretold": True}),
    Departure("the specification's distribution", {"agent.network.output": "distribution"}),
    Departure("the specification's noise", {"agent.network.add": "noise"}),
    Departure("the specification's loss as it stands", {f"{_TRAINING}.loss": "criticality-through"}),
    Departure("two layers", {"agent.network.layers": 2}),
    Departure("hidden 64", {"agent.network.hidden": 64}),
)


@dataclass(frozen=True, slots=True)
class Job:
    """A departure and a seed."""

    case: str
    departure: Departure
    seed: int
    quick: bool


def run(job: Job) -> tuple[Job, float]:
    """Return the mean response in ns that an agent comes to."""
    case = job.departure.of(CASES[job.case])
    checkpoint, _ = learned(case, "tokens", job.seed, quick=job.quick)
    given = case.given(job.seed, "tokens", quick=job.quick)
    chooser = greedy(given, checkpoint, given.rules(job.seed)[case.fallback])
    return job, evaluate(given, chooser, job.seed).mean_response_ns


def measure(case: str, departures: Sequence[Departure], seeds: Sequence[int], *, quick: bool) -> Table:
    """Return a line for each departure: the mean response over the seeds, and its ratio to that of the first."""
    jobs = [Job(case, departure, seed, quick) for departure in departures for seed in seeds]
    responses_us: dict[str, list[float]] = {departure.name: [] for departure in departures}
    for job, response_ns in in_processes(run, jobs):
        responses_us[job.departure.name].append(response_ns / 1e3)
        sys.stderr.write(f"{job.departure.name}, seed {job.seed}: {response_ns / 1e3:,.1f} us\n")
    table = Table("departure", "mean response, us", "by", title=f"{case}, {len(seeds)} seeds: mean (least to most)")
    first = fmean(responses_us[departures[0].name])
    for name, responses in responses_us.items():
        table.add_row(name, spread(responses), f"{fmean(responses) / first:.2f}")
    return table


def main() -> None:
    """Measure the requested departures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=list(CASES), default="bursty")
    parser.add_argument("--only", default="", help="departures whose names contain it, beside none")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--quick", action="store_true")
    told = parser.parse_args()
    departures = [departure for departure in DEPARTURES if not departure.changes or told.only in departure.name]
    Console(width=120).print(measure(told.case, departures, range(told.seeds), quick=told.quick))


if __name__ == "__main__":
    main()
