"""Accuracy of forecasts of the next measurement: the error of "the last value" over ours, on published series.

Runs: the benchmark runs on Azure's long-lived machines (operations per second, one series per machine; in order of
arrival). Links: the load of each of Abilene's links under 200 hourly demand matrices and base routes. Each measurement
but the first is forecast from those before it alone, and errors are absolute. The ratio is the sum of the last value's
errors over the sum of ours, per series; the output shows its mean, minimum and maximum over series. The figures exclude
the series on which the forecasters' constants were chosen (machine 0; every second link), which are shown separately;
the kinds of forecasters were chosen with all of the series in view. For comparison there are each single forecaster
(the last value where it has no forecast), the fixed window of 20, and the best forecaster so far taken alone, without
those that are nearly as good.

    .venv/bin/python -m tests.benchmarks.probing.forecasts    # --data FOLDER
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Final

import networkx as nx
from rich.console import Console
from rich.table import Table

from controller.apps.demo.surge import base_load_bps
from controller.probing.hours.forecasting import Competition
from controller.probing.hours.values import Sample
from dataplane.topology.demands import load_yates
from dataplane.topology.file import load_topology

DATA: Final = Path(__file__).parents[4] / "shared" / "data"
RUNS: Final = "azurevm_matrixmath_long_eastus_D8sv5.csv"
MATRICES: Final = "yates_abilene_hourly.txt"
DOT: Final = "yates_abilene.dot"
NAMES: Final = ("forecast_ratio_runs", "forecast_ratio_links")
HOUR_S: Final = 3600.0
WINDOW: Final = "mean of 20"
BEST: Final = "best so far, alone"

Series = Mapping[str, Sequence[Sample]]


@dataclass
class Errors:
    """Sums of absolute errors on one series."""

    last: float = 0.0
    ours: float = 0.0
    held: int = 0
    """Measurements that lay within the forecast's bounds."""
    number: int = 0
    others: dict[str, float] = field(default_factory=dict)

    def ratio(self, name: str | None = None) -> float:
        """Return the last value's error over ours, or over another forecaster's."""
        return self.last / (self.ours if name is None else self.others[name])


def errors_on(samples: Sequence[Sample]) -> Errors:
    """Forecast each measurement of a series from those before it."""
    competition, errors, last = Competition(), Errors(), samples[0]
    competition.see(samples[0])
    for sample in samples[1:]:
        forecast = competition.next(sample.time_s)
        assert forecast is not None
        error_of_last = abs(sample.value - last.value)
        errors.last += error_of_last
        errors.ours += abs(sample.value - forecast.value)
        errors.held += forecast.low <= sample.value <= forecast.high
        errors.number += 1
        for name, value in competition.said().items():
            error = error_of_last if value is None else abs(sample.value - value)
            errors.others[name] = errors.others.get(name, 0.0) + error
            if name == forecast.forecaster:
                errors.others[BEST] = errors.others.get(BEST, 0.0) + error
        competition.see(sample)
        last = sample
    return errors


def runs(data: Path) -> Series | None:
    """Return the measurements of each machine; None without the file."""
    if not (data / RUNS).exists():
        return None
    series: dict[str, list[Sample]] = {}
    with (data / RUNS).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            at = datetime.fromisoformat(f"{row['starttime']}+00:00")
            series.setdefault(row["VM_id"], []).append(Sample(at.timestamp(), float(row["value"])))
    return {machine: sorted(samples, key=lambda sample: sample.time_s) for machine, samples in sorted(series.items())}


def links(data: Path) -> Series | None:
    """Return what each link of Abilene carries hour by hour, by base routes; None where the file is not there."""
    if not (data / MATRICES).exists():
        return None
    topology = load_topology("abilene")
    hosts = tuple(host.name for host in topology.hosts)[:12]
    series: dict[str, list[Sample]] = {}
    for number, matrix in enumerate(load_yates(data / MATRICES, hosts)):
        demands = {(src, dst): float(rate) for src, dst, rate in matrix.pairs()}
        for link, rate_bps in base_load_bps(topology, demands).items():
            series.setdefault(f"{link.src} {link.dst}", []).append(Sample(number * HOUR_S, rate_bps))
    return dict(sorted(series.items()))


def links_by_hops(data: Path) -> Series | None:
    """Return the same with the fewest links on the way, by the file of the topology that came with the matrices."""
    if not (data / MATRICES).exists() or not (data / DOT).exists():
        return None
    graph, hosts = nx.DiGraph(), tuple(f"s{number}" for number in range(1, 13))
    for line in (data / DOT).read_text(encoding="utf-8").splitlines():
        ends = [end.strip() for end in line.split("[")[0].split("->")]
        if len(ends) == 2 and all(end in hosts for end in ends):
            graph.add_edge(*ends)
    ways = {(src, dst): list(nx.all_shortest_paths(graph, src, dst)) for src in hosts for dst in hosts if src != dst}
    series: dict[str, list[Sample]] = {f"{src} {dst}": [] for src, dst in sorted(graph.edges)}
    for number, matrix in enumerate(load_yates(data / MATRICES, hosts)):
        load = dict.fromkeys(series, 0.0)
        for src, dst, rate_bps in matrix.pairs():
            for way in ways[src, dst]:
                for tail, head in pairwise(way):
                    load[f"{tail} {head}"] += rate_bps / len(ways[src, dst])
        for name, rate in load.items():
            series[name].append(Sample(number * HOUR_S, rate))
    return series


def parts_of(series: Series, chosen_on: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Errors]]]:
    """Yield the errors on series that constants were chosen on, on the others, and on all of them."""
    errors = {name: errors_on(samples) for name, samples in series.items()}
    yield "chosen on", {name: error for name, error in errors.items() if name in chosen_on}
    yield "others", {name: error for name, error in errors.items() if name not in chosen_on}
    yield "all", errors


def show(title: str, parts: Mapping[str, Mapping[str, Errors]], console: Console) -> None:
    """Print ratios of ours and of each forecaster."""
    table = Table(
        "forecaster", *parts, "least and greatest of all", title=f"{title}: error of the last value over its own"
    )
    names = list(next(iter(parts["all"].values())).others)
    ranked = sorted(names, key=lambda name: -fmean(errors.ratio(name) for errors in parts["all"].values()))
    for name in (None, *ranked):
        cells = [
            f"{fmean(errors.ratio(name) for errors in part.values()):.3f}" if part else "" for part in parts.values()
        ]
        ratios = [errors.ratio(name) for errors in parts["all"].values()]
        table.add_row(name or "ours", *cells, f"{min(ratios):.3f} {max(ratios):.3f}")
    console.print(table)
    held = sum(errors.held for errors in parts["all"].values()) / sum(errors.number for errors in parts["all"].values())
    of_window = fmean(errors.others[WINDOW] / errors.ours for errors in parts["others"].values())
    console.print(f"the constant window of 20's error over ours: {of_window:.3f}; within its bounds: {held:.1%}\n")


def measure(*, quick: bool = False, data: Path = DATA) -> dict[str, float | None]:
    """Forecast all series; figures are None where the data is not there. `quick` leaves the other routes out."""
    console = Console(width=110)
    figures: dict[str, float | None] = dict.fromkeys(NAMES)
    machines, loads = runs(data), links(data)
    for key, title, series in ((NAMES[0], "Azure's runs", machines), (NAMES[1], "Abilene's links", loads)):
        if series is None:
            console.print(f"{title}: not in {data}")
            continue
        chosen_on = list(series)[:1] if series is machines else list(series)[::2]
        parts = dict(parts_of(series, chosen_on))
        show(title, parts, console)
        figures[key] = fmean(errors.ratio() for errors in parts["others"].values())
    other = None if quick else links_by_hops(data)
    if other is not None:
        show("Abilene's links, routes of fewest links", dict(parts_of(other, list(other)[::2])), console)
    return figures


def main(argv: list[str]) -> None:
    """Measure, print tables, and the figures as JSON in the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="by base routes alone")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of published traces")
    options = parser.parse_args(argv)
    figures = measure(quick=options.quick, data=options.data)
    print(json.dumps({name: None if value is None else round(value, 4) for name, value in figures.items()}))


if __name__ == "__main__":
    main(sys.argv[1:])
