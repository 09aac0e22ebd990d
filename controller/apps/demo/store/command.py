"""`millrace demo store`: run it, show who answered, how fast, and how old; write a chart and figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from controller.apps.demo.folder import make_folder
from controller.apps.demo.store.chart import draw
from controller.apps.demo.store.scenario import COPIES, INTERVAL_NS, NAMES, Phase, Read, StoreOutcome, StoreRun
from controller.common.console import plain_or_terminal
from dataplane.clock import NS_PER_MS
from dataplane.errors import MillraceError
from dataplane.topology.file import load_topology

_NS_PER_US = 1000


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Command-line options."""

    topology: str
    producer: str | None
    out: Path
    seed: int


def run(options: StoreOptions) -> StoreOutcome:
    """Run the demo and show it; raise a one-line MillraceError if it cannot run."""
    if options.seed < 0:
        raise MillraceError(f"--seed {options.seed}: is negative")
    demo = StoreRun(load_topology(options.topology), options.producer, options.seed)
    make_folder(options.out)
    console = plain_or_terminal()
    edge = demo.topology.attachment[demo.producer].node
    console.print(
        f"{demo.producer} serves {NAMES} names to {' '.join(demo.readers)}, {demo.writer} writes; its switch {edge} "
        f"has room for {COPIES} copies and chooses them every {INTERVAL_NS // NS_PER_MS} ms.",
        highlight=False,
        soft_wrap=True,
    )
    outcome = demo.run()
    console.print(table(outcome.phases))
    old = sum(read.is_old for phase in outcome.phases for read in phase.reads)
    every = sum(len(phase.reads) for phase in outcome.phases)
    console.print(
        f"{old} of {every} reads got a value older than one whose write was already acknowledged.", highlight=False
    )
    png, svg = draw(outcome, options.out / "store")
    figures = options.out / "store.json"
    figures.write_text(json.dumps(figures_of(outcome), indent=2) + "\n", encoding="utf-8")
    console.print(f"Pictures: {png} and {svg}; figures: {figures}", highlight=False, soft_wrap=True)
    return outcome


def table(phases: Sequence[Phase]) -> Table:
    """Return who answered in each phase and how fast."""
    result = Table()
    for column in ("", "reads", "by the switch", "us", "by the producer", "us", ""):
        result.add_column(column, justify="right" if column not in {""} else "left")
    for phase in phases:
        hits, misses = split(phase.reads)
        share = f"{len(hits)} ({len(hits) / len(phase.reads):.0%})"
        counts = (share, mean_us(hits), str(len(misses)), mean_us(misses))
        result.add_row(phase.name, str(len(phase.reads)), *counts, phase.remark)
    return result


def split(reads: Sequence[Read]) -> tuple[list[Read], list[Read]]:
    """Return the reads answered by the switch, and those that reached the producer."""
    return [read for read in reads if read.by_switch], [read for read in reads if not read.by_switch]


def mean_us(reads: Sequence[Read]) -> str:
    """Return the mean duration of reads, empty without reads."""
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
