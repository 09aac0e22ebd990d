"""Response of each form to a load that steps, climbs, bursts or is noisy: settling time, overshoot, steady error.

One unit in virtual time (controller.balance.trials), 100 sub-units where 50 would do, a sample per second, reports two
samples late; the interval table moves sub-units. A settled error stays within 0.1, the table's dead band.

    .venv/bin/python -m tests.benchmarks.balancing.responses
"""

from __future__ import annotations

import json
import sys
from typing import Final

from rich.console import Console
from rich.table import Table

from controller.balance.trials.trial import Ground, LoadKind, Trial, trials, usual_controllers

HEADLINE: Final = "PID fuzzy"


def measured() -> tuple[Trial, ...]:
    """Return what each form makes of each load."""
    return tuple(trials(usual_controllers(), Ground()))


def table_of(trials: tuple[Trial, ...]) -> Table:
    """Return a line for each load and form."""
    columns = ("settles, s", "overshoot", "steady error", "mean |e|", "moves", "of these in the last quarter")
    table = Table("load", "form", *columns, title="One unit, interval table")
    for trial in trials:
        settle_s = trial.figures.settle_s
        table.add_row(
            trial.load,
            trial.controller,
            "never" if settle_s is None else f"{settle_s:.0f}",
            f"{trial.figures.overshoot:.2f}",
            f"{trial.figures.steady_error:+.3f}",
            f"{trial.figures.mean_error:.3f}",
            str(trial.moves),
            str(trial.late_moves),
        )
    return table


def measure(*, quick: bool = False, console: Console | None = None) -> dict[str, float | None]:
    """Try all, show the table and return the headline's settling time after a step; None where it never settles."""
    del quick
    trials = measured()
    (console or Console(width=140)).print(table_of(trials))
    (step,) = (trial for trial in trials if trial.load is LoadKind.STEP and trial.controller == HEADLINE)
    return {"settle_s": step.figures.settle_s}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure()) + "\n")
