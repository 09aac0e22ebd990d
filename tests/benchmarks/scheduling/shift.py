"""Agents on arrivals that they were not trained for, beside rules; and what helps: a guard, training over families.

On arrivals that the agent of `tokens` was not trained for (twice the load, and tasks of another family: `arrivals`),
mean response of the best rule over that of the agent, the worse of the two:
- NAME_shift_over_best_rule: with a guard (`network.guard` 0.02), which lets the fallback decide where a feature is
  outside the range seen in training, and for 32 decisions more;
- NAME_shift_unguarded: as in the comparison, without one.
The best rule is that of the least mean over the seeds, among the rules of the comparison.

    .venv/bin/python -m tests.benchmarks.scheduling.shift     # --quick; --case spotri; --seeds 1; --workers 1
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Final, Literal

from msgspec import structs
from rich.console import Console
from rich.table import Table

from controller.learning.agent.records import Checkpoint
from controller.learning.training.given import Given, LearningSettings
from controller.learning.training.trials import evaluate, greedy
from tests.benchmarks.scheduling.arrivals import TRIED, WIDE, Arrivals
from tests.benchmarks.scheduling.cases import CASES, SEEDS, Case, Form, changed, of_form
from tests.benchmarks.scheduling.comparison import OWN, PREDICTS, spread
from tests.benchmarks.scheduling.trials import EXAMINED, in_processes, learned, taught

Learner = Literal["rules", "tokens", "over families", "specification"]
LEARNERS: Final[tuple[Learner, ...]] = ("tokens", "over families", "specification", "rules")
GUARDED: Final[Mapping[Learner, str]] = {"tokens": "tokens, guarded", "over families": "over families, guarded"}
AGENTS: Final = ("tokens", *GUARDED.values(), "over families", "specification")
OURS: Final = GUARDED["tokens"]
_GUARD: Final = 0.02
_NEVER: Final = 1.0
"""A guard so wide that every feature is inside: ranges are kept, and nothing else is other than without."""
Responses = Mapping[str, Mapping[str, float]]
"""Mean responses in ns, by arrivals and decider."""


@dataclass(frozen=True, slots=True)
class Job:
    """All rules, or an agent that learns a case; both are tried on all arrivals of the case."""

    case: str
    learner: Learner
    seed: int
    quick: bool


def run(job: Job) -> tuple[Job, Responses]:
    """Return what a job's deciders come to."""
    case = CASES[job.case]
    arrivals = TRIED[job.case]
    if job.learner == "rules":
        return job, {each.name: _of_rules(case, each, job) for each in arrivals}
    checkpoint, form = _learned(case, job), _form(job.learner)
    settings = of_form(case.tried, form)
    agents: dict[str, Checkpoint] = {job.learner: checkpoint}
    if job.learner in GUARDED:
        agents[GUARDED[job.learner]] = structs.replace(checkpoint, shape=replace(checkpoint.shape, guard=_GUARD))
    responses: dict[str, dict[str, float]] = {}
    for each in arrivals:
        given = each.given(case, settings, job.seed, quick=job.quick)
        for name, agent in agents.items():
            chooser = greedy(given, agent, given.rules(job.seed)[case.fallback_of(form)])
            responses.setdefault(each.name, {})[name] = evaluate(given, chooser, job.seed).mean_response_ns
    return job, responses


def _form(learner: Learner) -> Form:
    return "specification" if learner == "specification" else "tokens"


def _learned(case: Case, job: Job) -> Checkpoint:
    form = _form(job.learner)
    if form == "specification":
        return learned(case, form, job.seed, quick=job.quick)[0]
    case = replace(case, learning=changed(case.learning, "agent.network.guard", _NEVER))
    if job.learner == "tokens":
        return learned(case, form, job.seed, quick=job.quick)[0]
    examined = case.lesson(job.seed, EXAMINED, form, quick=job.quick) if case.examined_every else None
    lessons = _lessons(case, of_form(case.learning, form), job)
    return taught(case.agent(form, job.seed), lessons, job.seed, case.fallback, examined, case.examined_every)[0]


def _lessons(case: Case, settings: LearningSettings, job: Job) -> Iterator[Given[Any]]:
    for number, each in enumerate(WIDE[case.name][: 2 if job.quick else None]):
        yield each.given(case, settings, 1000 * (job.seed + 1) + number, quick=job.quick)


def _of_rules(case: Case, arrivals: Arrivals, job: Job) -> dict[str, float]:
    """Return the rules' mean responses; what none of them looks at is not computed."""
    ordering = structs.replace(case.tried.ordering, foretold=False, job_features=False)
    given = arrivals.given(case, structs.replace(case.tried, ordering=ordering), job.seed, quick=job.quick)
    rules = given.rules(job.seed)
    return {name: evaluate(given, rule, job.seed).mean_response_ns for name, rule in rules.items()}


@dataclass(frozen=True, slots=True)
class Shift:
    """Mean responses on some arrivals, in ns, by decider, a figure for each seed."""

    arrivals: str
    responses_ns: Mapping[str, Sequence[float]]

    @property
    def best_rule(self) -> str:
        """The rule with the least mean response, of those that a real scheduler could follow."""
        rules = [name for name in self.responses_ns if name not in {*AGENTS, PREDICTS, *OWN}]
        return min(rules, key=self.mean_ns)

    def mean_ns(self, name: str) -> float:
        """Return the mean over the seeds."""
        return fmean(self.responses_ns[name])

    def over(self, name: str) -> float:
        """Return the best rule's mean response over that of a decider."""
        return self.mean_ns(self.best_rule) / self.mean_ns(name)


def shifts_of(done: Sequence[tuple[Job, Responses]]) -> list[Shift]:
    """Put what came of the jobs of a case together, by arrivals."""
    together: dict[str, dict[str, list[float]]] = {}
    for _, responses in sorted(done, key=lambda each: each[0].seed):
        for arrivals, by_decider in responses.items():
            for name, response_ns in by_decider.items():
                together.setdefault(arrivals, {}).setdefault(name, []).append(response_ns)
    return [Shift(arrivals, by_decider) for arrivals, by_decider in together.items()]


def measure(name: str, *, quick: bool, seeds: Sequence[int] = SEEDS, workers: int | None = None) -> dict[str, float]:
    """Try a case's agents on arrivals that they did not learn, show a table, return the figure; {} without its file."""
    console = Console(width=150)
    if not CASES[name].is_here:
        console.print(f"{name}: {CASES[name].file} is not here")
        return {}
    seeds = seeds[:1] if quick else seeds
    done = []
    for job, responses in in_processes(
        run, [Job(name, each, seed, quick) for each in LEARNERS for seed in seeds], workers
    ):
        done.append((job, responses))
        sys.stderr.write(f"{line_of(job, responses)}\n")
    shifts = shifts_of(done)
    console.print(table_of(name, shifts))
    return {
        f"{name}_{key}": min(shift.over(agent) for shift in shifts[1:])
        for key, agent in (("shift_over_best_rule", OURS), ("shift_unguarded", "tokens"))
    }


def line_of(job: Job, responses: Responses) -> str:
    """Return what came of a job, as soon as it is done."""
    shown = "; ".join(
        f"{arrivals}: " + ", ".join(f"{name} {response / 1e6:,.3f} ms" for name, response in figures.items())
        for arrivals, figures in responses.items()
    )
    return f"{job.case}, seed {job.seed}: {shown}"


def table_of(name: str, shifts: Sequence[Shift]) -> Table:
    """Return a line for each kind of arrivals: the best rule's mean response, and each agent's and its ratio."""
    unit, ns = ("s", 1e9) if CASES[name].kind == "swf" else ("us", 1e3)
    table = Table(
        "arrivals", "best rule", *AGENTS, title=f"{name}: mean response in {unit} (least to most), best rule over it"
    )
    for shift in shifts:
        rule = f"{shift.best_rule} {spread([each / ns for each in shift.responses_ns[shift.best_rule]])}"
        cells = [
            f"{spread([each / ns for each in shift.responses_ns[agent]])}, {shift.over(agent):.2f}" for agent in AGENTS
        ]
        table.add_row(shift.arrivals, rule, *cells)
    return table


def main() -> None:
    """Measure the requested cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--workers", type=int)
    parser.add_argument("--quick", action="store_true")
    told = parser.parse_args()
    for name in told.case or CASES:
        print(measure(name, quick=told.quick, seeds=range(told.seeds), workers=told.workers))


if __name__ == "__main__":
    main()
