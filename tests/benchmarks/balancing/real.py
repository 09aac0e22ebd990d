"""The real loop's figure for the benchmark: both rules in turn, that of the table counts."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.table import Table

from tests.benchmarks.balancing.real_loop import RULES, Phase, error_of
from tests.benchmarks.balancing.real_loop import measure as measured

HEADLINE: Final = "table"


def table_of(results: dict[str, tuple[Phase, ...]]) -> Table:
    """Return a line for each rule and rate of the link."""
    columns = ("settled in, s", "mean |e| then", "samples under 0.1", "moves, min⁻¹", "sub-units")
    table = Table("rule", "link, Mbit/s", *columns, title="A worker under a CPU quota, fed over a shaped link")
    for rule, phases in results.items():
        for phase in phases:
            table.add_row(
                rule,
                f"{phase.rate_bps / 1e6:.0f}",
                "not" if phase.settle_s is None else f"{phase.settle_s:.1f}",
                f"{phase.mean_error:.3f}",
                f"{phase.within:.0%}",
                f"{phase.moves_per_minute:.1f}",
                f"{phase.sub_units:.1f}",
            )
    return table


def measure(*, quick: bool = False, console: Console | None = None) -> dict[str, float | None]:
    """Run the loop, print its course and return the mean |e| once settled, with the interval table; needs root."""
    rules = (HEADLINE,) if quick else tuple(sorted(RULES, key=lambda rule: rule != HEADLINE))
    results = {rule: measured(rule, hold_s=5.0 if quick else 30.0) for rule in rules}
    (console or Console(width=140)).print(table_of(results))
    return {"real_loop_error": error_of(results[HEADLINE])}
