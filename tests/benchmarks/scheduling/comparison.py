"""Rules, agents and an oracle on one input: tables, and ratios.

- NAME_best_heuristic_over_ours: mean response of the best rule over that of `tokens`, both means over the seeds. The
  best rule is that of the least mean over the seeds. Two are shown and are not among them: `earliest-finish`, which
  asks the environment what will happen as no scheduler of a real system can, and a rule of our own, which goes by what
  is foretold to the agent, too: `foretold-local` of block requests, `rollout` of logs.
- NAME_oracle_share: in windows, (best static - ours) / (best static - oracle), of sums over the windows of all seeds;
  the best static is the rule with the least sum.
- NAME_transformer_over_dense: mean response of `dense` over that of `tokens`.
- NAME_preset_specification: mean response of an agent of the preset `specification`, which departs from it by
  nothing, over that of `tokens`.
- NAME_own_rule_over_ours, of an input that has one: mean response of that rule, which `tokens` decides beside, over
  that of `tokens`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from rich.console import Console
from rich.table import Table

from controller.learning.training.figures import Figures
from tests.benchmarks.scheduling.cases import CASES, FORMS, SEEDS, Case, Windows
from tests.benchmarks.scheduling.trials import Job, Tried, in_processes, run
from tests.benchmarks.scheduling.windows import ORACLE

OURS: Final = "tokens"
PREDICTS: Final = "earliest-finish"
OWN: Final = ("foretold-local", "rollout")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Results of a case: figures of each decider by seed, windows' sums by seed and decider, seconds of training."""

    case: Case
    figures: Mapping[str, Sequence[Figures]]
    windows_ns: Sequence[Mapping[str, int]]
    seconds: Mapping[str, Sequence[float]]

    @property
    def rules(self) -> list[str]:
        """The heuristics that a real scheduler could follow, without those of our own."""
        return [name for name in self.figures if name not in {*FORMS, PREDICTS, *OWN}]

    def response_ns(self, name: str) -> float:
        """Return the mean response, the mean over the seeds."""
        return fmean(figure.mean_response_ns for figure in self.figures[name])

    def over_ours(self, name: str) -> float:
        """Return the mean response over that of our agent."""
        return self.response_ns(name) / self.response_ns(OURS)

    @property
    def best_rule(self) -> str:
        """The rule with the least mean response."""
        return min(self.rules, key=self.response_ns)

    def window_ns(self, name: str) -> int:
        """Return what all windows of all seeds cost."""
        return sum(window[name] for window in self.windows_ns)

    @property
    def best_in_windows(self) -> str:
        """The rule that all windows cost least."""
        return min(self.rules, key=self.window_ns)

    def share(self, name: str) -> float | None:
        """Return which part of the oracle's gain over the best static policy is reached; None without a gain."""
        if not self.windows_ns:
            return None
        static, oracle = self.window_ns(self.best_in_windows), self.window_ns(ORACLE)
        return (static - self.window_ns(name)) / (static - oracle) if static > oracle else None


def measure(name: str, *, quick: bool) -> dict[str, float | None]:
    """Compare all on an input, show tables, return the figures; None for each where its file is not there."""
    case, console = CASES[name], Console(width=150)
    if not case.is_here:
        console.print(f"{name}: {case.file} is not here")
        return {}
    done = []
    for tried in in_processes(run, jobs_of(case, SEEDS[:1] if quick else SEEDS, quick=quick)):
        done.append(tried)
        sys.stderr.write(f"{line_of(tried)}\n")
    comparison = comparison_of(case, done)
    console.print(table_of(comparison), *lines_of(comparison), sep="\n")
    own = [comparison.over_ours(rule) for rule in OWN if rule in comparison.figures]
    return {
        f"{name}_best_heuristic_over_ours": comparison.over_ours(comparison.best_rule),
        f"{name}_oracle_share": comparison.share(OURS),
        f"{name}_transformer_over_dense": comparison.over_ours("dense"),
        f"{name}_preset_specification": comparison.over_ours("specification"),
        f"{name}_own_rule_over_ours": own[0] if own else None,
    }


def line_of(tried: Tried) -> str:
    """Return what came of a job, as soon as it is done."""
    responses = ", ".join(f"{name} {figures.mean_response_ns / 1e6:,.3f} ms" for name, figures in tried.figures.items())
    seconds = ", ".join(f"{name} in {seconds:.0f} s" for name, seconds in tried.seconds.items())
    return f"{tried.job.case}, seed {tried.job.seed}: {responses}; {seconds}"


def jobs_of(case: Case, seeds: Sequence[int], *, quick: bool) -> list[Job]:
    """Return the jobs to run, our agents first."""
    return [Job(case.name, form, seed, quick) for form in (FORMS[0], None, *FORMS[1:]) for seed in seeds]


def comparison_of(case: Case, all_: Sequence[Tried]) -> Comparison:
    """Put what came of the jobs of a case together."""
    ordered = sorted(all_, key=lambda tried: tried.job.seed)
    names = dict.fromkeys(name for tried in ordered for name in tried.figures)
    figures = {name: [tried.figures[name] for tried in ordered if name in tried.figures] for name in names}
    sums: dict[tuple[int, int], dict[str, int]] = {}
    for tried in ordered:
        for window in tried.windows:
            sums.setdefault((tried.job.seed, window.first), {}).update(window.costs_ns)
    forms = [tried for tried in ordered if tried.job.form]
    seconds: dict[str, list[float]] = {
        form: [tried.seconds["trained"] for tried in forms if tried.job.form == form] for form in FORMS
    }
    return Comparison(case, figures, list(sums.values()), seconds)


def table_of(comparison: Comparison) -> Table:
    """Return a line for each decider: means over the seeds, and from the least to the most of them.

    Waits are of tasks, also where responses are of graphs.
    """
    unit, name = (1e9, "s") if comparison.case.kind == "swf" else (1e3, "us")
    columns = (f"mean wait, {name}", f"mean response, {name}", "utilisation", f"p99 latency, {name}")
    seeds = len(comparison.figures[OURS])
    table = Table(
        "decider", *columns, "in windows", title=f"{comparison.case.name}, {seeds} seeds: mean (least to most)"
    )
    for decider in sorted(comparison.figures, key=comparison.response_ns):
        figures = comparison.figures[decider]
        cells = (
            spread([figure.mean_task_wait_ns / unit for figure in figures]),
            spread([figure.mean_response_ns / unit for figure in figures]),
            spread([figure.utilisation * 100 for figure in figures], "{:.2f}") + " %",
            spread([figure.p99_latency_ns / unit for figure in figures]),
        )
        in_windows = (
            f"{comparison.window_ns(decider) / _tasks(comparison) / unit:,.1f}" if comparison.windows_ns else ""
        )
        table.add_row(decider, *cells, in_windows)
    if comparison.windows_ns:
        table.add_row(ORACLE, "", "", "", "", f"{comparison.window_ns(ORACLE) / _tasks(comparison) / unit:,.1f}")
    return table


def lines_of(comparison: Comparison) -> list[str]:
    """Return what the table does not say."""
    lines = [f"best rule: {comparison.best_rule}; agents learned {comparison.case.episodes} episodes"]
    lines += [f"{form}: {spread(comparison.seconds[form], '{:.0f}')} s of a processor to learn" for form in FORMS]
    if comparison.windows_ns:
        shares = ", ".join(f"{form} {_percent(comparison.share(form))}" for form in FORMS)
        lines.append(
            f"{len(comparison.windows_ns)} windows: the best static there is {comparison.best_in_windows}; "
            f"share of the oracle's gain over it: {shares}"
        )
    return lines


def _tasks(comparison: Comparison) -> int:
    windows = comparison.case.windows
    return len(comparison.windows_ns) * (windows.tasks if isinstance(windows, Windows) else 1)


def spread(figures: Sequence[float], form: str = "{:,.1f}") -> str:
    """Return the mean, and from the least to the most."""
    mean, least, most = fmean(figures), min(figures), max(figures)
    return form.format(mean) if least == most else f"{form.format(mean)} ({form.format(least)} to {form.format(most)})"


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{share:.0%}"
