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


def table_of(found: tuple[Trial, ...]) -> Table:
    """Return a line for each load and form."""
    columns = ("settles, s", "overshoot", "steady error", "mean |e|", "moves", "of these in the last quarter")
    table = Table("load", "form", *columns, title="One unit, interval table")
    for one in found:
        settle_s = one.figures.settle_s
        table.add_row(
            one.load,
            one.controller,
            "never" if settle_s is None else f"{settle_s:.0f}",
            f"{one.figures.overshoot:.2f}",
            f"{one.figures.steady_error:+.3f}",
            f"{one.figures.mean_error:.3f}",
            str(one.moves),
            str(one.late_moves),
        )
    return table


def measure(*, quick: bool = False, console: Console | None = None) -> dict[str, float | None]:
    """Try all, show the table and return the headline's settling time after a step; None where it never settles."""
    del quick
    found = measured()
    (console or Console(width=140)).print(table_of(found))
    (step,) = (one for one in found if one.load is LoadKind.STEP and one.controller == HEADLINE)
    return {"settle_s": step.figures.settle_s}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure()) + "\n")
