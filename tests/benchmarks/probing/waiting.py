"""Cost of waiting for a better network, against the best start in hindsight, on the loads of Abilene's links.

A centre lies behind each link, whose load is that of 200 hourly demand matrices by base routes. A task there transfers
data for ten minutes, or an hour, of an empty network, on four units, and may end a day later. A quarter
of an hour into each hour it decides anew whether to begin, by telemetry every five minutes until then; two days are
seen before the first task. Its cost is the unit-seconds
of its transfer, and 0.1 for each second that it waited. The links of a loaded network are full to 95 % in their busiest
hour; those of a network that was never bad to 15 %, so that its bandwidth never varies by a fifth.

    .venv/bin/python -m tests.benchmarks.probing.waiting    # --quick, --data FOLDER
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from controller.probing.hours import NetworkWindow, PathSample, good_hours, network_windows
from controller.probing.hours.telemetry import STEP_S
from controller.scheduling.tasks.waiting import WAIT_COST, Outlook
from dataplane.clock import NS_PER_S
from tests.benchmarks.probing.forecasts import DATA, HOUR_S, Series, links

NAMES: Final = ("waiting_over_hindsight", "starting_over_hindsight", "waiting_never_bad_s", "waiting_never_bad_gain")
LINK_BPS: Final = 1e9
LOADED, NEVER_BAD = 0.95, 0.15
UNITS: Final = 4
OFFSET_S: Final = 900.0
SEEN: Final = 48
DEADLINE: Final = 24
"""Hours that are seen before the first task, and that a task may take."""


@dataclass
class Costs:
    """Unit-seconds of all tasks on one link, and the seconds that they waited."""

    waiting: float = 0.0
    starting: float = 0.0
    hindsight: float = 0.0
    waited_s: float = 0.0


class Link:
    """The bandwidth that is left on a link, hour by hour, and what is known of it."""

    def __init__(self, loads: Sequence[float], peak: float) -> None:
        most = max(loads)
        self.free_bps = [LINK_BPS * (1 - peak * load / most) for load in loads]
        self._samples = [
            PathSample(hour * HOUR_S + number * STEP_S, free, 1e6)
            for hour, free in enumerate(self.free_bps)
            for number in range(round(HOUR_S / STEP_S))
        ]
        slowdowns = [LINK_BPS / free for free in self.free_bps]
        windows = [
            NetworkWindow(int(hour * HOUR_S * NS_PER_S), int((hour + 1) * HOUR_S * NS_PER_S), slowdown)
            for hour, slowdown in enumerate(slowdowns)
        ]
        self.truth = Outlook(windows, 0)

    def forecast(self, hour: int) -> Outlook:
        """Return the outlook by what is measured until a quarter of an hour into an hour."""
        now_s = hour * HOUR_S + OFFSET_S
        windows = network_windows(good_hours((), self._samples, now_s), now_s)
        assert windows is not None
        return Outlook(windows, int(now_s * NS_PER_S))


def costs_on(link: Link, empty_s: float, step: int) -> Costs:
    """Plan a task every `step` hours."""
    costs, outlooks = Costs(), dict[int, Outlook]()

    def cost(arrival: int, start: int) -> float:
        waited_s = (start - arrival) * HOUR_S
        return UNITS * link.truth.transfer_s(start * HOUR_S + OFFSET_S, empty_s) + WAIT_COST * waited_s

    def ends_s(start: int) -> float:
        start_s = start * HOUR_S + OFFSET_S
        return start_s + link.truth.transfer_s(start_s, empty_s)

    for arrival in range(SEEN, len(link.free_bps) - DEADLINE, step):
        latest = arrival + DEADLINE
        start = arrival
        while True:
            outlook = outlooks.get(start) or outlooks.setdefault(start, link.forecast(start))
            # The cost map tells how long the transfer would take now.
            good_s = empty_s * LINK_BPS / link.free_bps[start] / outlook.slowdown(0.0)
            begin_s = outlook.best_start_s(
                0.0, good_s, units=UNITS, run_s=0.0, latest_s=(latest - start) * HOUR_S, wait_cost=WAIT_COST
            )
            if begin_s <= 0:
                break
            start += 1
        costs.waiting += cost(arrival, start)
        costs.waited_s += (start - arrival) * HOUR_S
        costs.starting += cost(arrival, arrival)
        costs.hindsight += min(
            cost(arrival, hour)
            for hour in range(arrival, latest)
            if hour == arrival or ends_s(hour) <= latest * HOUR_S + OFFSET_S
        )
    return costs


def totals(series: Series, peak: float, empty_s: float, step: int) -> Costs:
    """Return the sums over all links."""
    sums = Costs()
    for samples in series.values():
        loads = [sample.value for sample in samples]
        if max(loads) <= 0:
            continue
        costs = costs_on(Link(loads, peak), empty_s, step)
        sums.waiting += costs.waiting
        sums.starting += costs.starting
        sums.hindsight += costs.hindsight
        sums.waited_s += costs.waited_s
    return sums


def measure(*, quick: bool = False, data: Path = DATA) -> dict[str, float | None]:
    """Return the figures, None where the data is not there; `quick` plans a task every 25 hours instead of every 4."""
    console = Console(width=110)
    figures: dict[str, float | None] = dict.fromkeys(NAMES)
    series = links(data)
    if series is None:
        console.print(f"Abilene's links: not in {data}")
        return figures
    table = Table(
        "network", "transfer", "waiting", "starting at once", "hours waited", title="cost over the best in hindsight"
    )
    sums = {}
    for network, peak in (("loaded", LOADED), ("never bad", NEVER_BAD)):
        for empty_s in (600.0, 3600.0):
            costs = sums[network, empty_s] = totals(series, peak, empty_s, 25 if quick else 4)
            ratios = (costs.waiting / costs.hindsight, costs.starting / costs.hindsight)
            table.add_row(
                network, f"{empty_s:g} s", *(f"{ratio:.3f}" for ratio in ratios), f"{costs.waited_s / 3600:.0f}"
            )
    console.print(table)
    loaded, calm = (
        [costs for (name, _), costs in sums.items() if name == network] for network in ("loaded", "never bad")
    )
    figures["waiting_over_hindsight"] = sum(each.waiting for each in loaded) / sum(each.hindsight for each in loaded)
    figures["starting_over_hindsight"] = sum(each.starting for each in loaded) / sum(each.hindsight for each in loaded)
    figures["waiting_never_bad_s"] = sum(each.waited_s for each in calm)
    figures["waiting_never_bad_gain"] = sum(each.starting - each.waiting for each in calm)
    return figures


def main(argv: list[str]) -> None:
    """Measure, print a table, and the figures as JSON in the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer tasks")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of published traces")
    options = parser.parse_args(argv)
    figures = measure(quick=options.quick, data=options.data)
    print(json.dumps({name: None if value is None else round(value, 4) for name, value in figures.items()}))


if __name__ == "__main__":
    main(sys.argv[1:])
