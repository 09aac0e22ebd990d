"""`millrace demo store`: run it, show who answered, how fast, and how old; write a chart and figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from controller.apps.demo.folder import make_folder
from controller.apps.demo.store.scenario import COPIES, INTERVAL_NS, MS, NAMES, Phase, Read, StoreOutcome, StoreRun
from controller.apps.demo.store.world import US
from controller.common.console import plain_or_terminal
from controller.common.figures import save_both
from dataplane.errors import MillraceError
from dataplane.topology.file import load_topology

_SPAN_NS: Final = 5 * MS
_SWITCH, _PRODUCER, _EDGE = "#2e8b57", "#c0392b", "#909090"


def draw(outcome: StoreOutcome, stem: Path) -> tuple[Path, Path]:
    """Write `stem`.png and `stem`.svg; return both paths. The same run gives the same bytes."""
    figure = Figure(figsize=(11, 5.6), layout="constrained")
    shares, times = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1.4))
    reads = [read for phase in outcome.phases for read in phase.reads]
    _draw_shares(shares, reads)
    _draw_times(times, reads, f"switch {outcome.switch}", f"producer {outcome.producer}")
    for number, phase in enumerate(outcome.phases, 1):
        begin = phase.reads[0].began_ns / MS
        for axis in (shares, times):
            axis.axvline(begin, color=_EDGE, lw=0.7, zorder=0)
        shares.text(begin, 104, f" {number}", fontsize=9, va="bottom", color="#404040")
    names = "; ".join(f"{number} {phase.name}" for number, phase in enumerate(outcome.phases, 1))
    lines = "\n".join(wrap(names, 130))
    shares.set_title(f"Reads of named content in {outcome.topology.name}\n{lines}", fontsize=9, loc="left", pad=18)
    return save_both(figure, stem)


def _draw_shares(axis: Axes, reads: Sequence[Read]) -> None:
    """Draw which share of all reads the switch answered, in each span of time."""
    spans: dict[int, list[Read]] = {}
    for read in reads:
        spans.setdefault(read.began_ns // _SPAN_NS, []).append(read)
    places = [(number + 0.5) * _SPAN_NS / MS for number in spans]
    shares = [100 * sum(read.by_switch for read in some) / len(some) for some in spans.values()]
    axis.bar(places, shares, width=_SPAN_NS / MS, color=_SWITCH)
    axis.set_ylim(0, 100)
    axis.set_ylabel(f"by the switch (%,\neach {_SPAN_NS // MS} ms)")


def _draw_times(axis: Axes, reads: Sequence[Read], switch: str, producer: str) -> None:
    for by_switch, colour, who in ((True, _SWITCH, switch), (False, _PRODUCER, producer)):
        some = [read for read in reads if read.by_switch is by_switch]
        began, took = [read.began_ns / MS for read in some], [read.took_ns / US for read in some]
        axis.scatter(began, took, s=5, color=colour, label=f"answered by {who}", linewidths=0)
    axis.set_xlabel("began at (ms)")
    axis.set_ylabel("took (us)")
    axis.set_ylim(0, None)
    axis.legend(loc="lower right", fontsize=8)


_NS_PER_US = 1000


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Command-line options."""

    topology: str
    producer: str | None
    out: Path
    seed: int


def run(options: StoreOptions) -> StoreOutcome:
    """Run the demo and show it; raise a MillraceError of one line where it cannot."""
    if options.seed < 0:
        raise MillraceError(f"--seed {options.seed}: is negative")
    demo = StoreRun(load_topology(options.topology), options.producer, options.seed)
    make_folder(options.out)
    console = plain_or_terminal()
    edge = demo.topology.attachment[demo.producer].node
    console.print(
        f"{demo.producer} serves {NAMES} names to {' '.join(demo.readers)}, {demo.writer} writes; its switch {edge} "
        f"has room for {COPIES} copies and chooses them every {INTERVAL_NS // MS} ms.",
        highlight=False,
        soft_wrap=True,
    )
    outcome = demo.run()
    console.print(table(outcome.phases))
    old = sum(read.is_old for phase in outcome.phases for read in phase.reads)
    every = sum(len(phase.reads) for phase in outcome.phases)
    console.print(
        f"{old} of {every} reads got a value older than one whose write was acknowledged before.", highlight=False
    )
    png, svg = draw(outcome, options.out / "store")
    figures = options.out / "store.json"
    figures.write_text(json.dumps(figures_of(outcome), indent=2) + "\n", encoding="utf-8")
    console.print(f"Pictures: {png} and {svg}; figures: {figures}", highlight=False, soft_wrap=True)
    return outcome


def table(phases: Sequence[Phase]) -> Table:
    """Return who answered in each phase and how fast."""
    found = Table()
    for column in ("", "reads", "by the switch", "us", "by the producer", "us", ""):
        found.add_column(column, justify="right" if column not in {""} else "left")
    for phase in phases:
        hits, misses = split(phase.reads)
        share = f"{len(hits)} ({len(hits) / len(phase.reads):.0%})"
        counts = (share, mean_us(hits), str(len(misses)), mean_us(misses))
        found.add_row(phase.name, str(len(phase.reads)), *counts, phase.remark)
    return found


def split(reads: Sequence[Read]) -> tuple[list[Read], list[Read]]:
    """Return the reads that the switch answered, and those that reached the producer."""
    return [read for read in reads if read.by_switch], [read for read in reads if not read.by_switch]


def mean_us(reads: Sequence[Read]) -> str:
    """Return how long reads took on average, nothing for none."""
    return f"{sum(read.took_ns for read in reads) / len(reads) / _NS_PER_US:.1f}" if reads else ""


def figures_of(outcome: StoreOutcome) -> dict[str, object]:
    """Return the run's main figures by name."""
    return {
        "copies": outcome.copies,
        "old_reads": sum(read.is_old for phase in outcome.phases for read in phase.reads),
        "phases": [
            {
                "name": phase.name,
                "reads": len(phase.reads),
                "by_switch": len(split(phase.reads)[0]),
                "switch_us": _mean(split(phase.reads)[0]),
                "producer_us": _mean(split(phase.reads)[1]),
                "remark": phase.remark,
            }
            for phase in outcome.phases
        ],
    }


def _mean(reads: Sequence[Read]) -> float | None:
    return sum(read.took_ns for read in reads) / len(reads) / _NS_PER_US if reads else None
