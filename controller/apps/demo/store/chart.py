"""Chart of reads of named content: the switch's share of answers, and the duration of each read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from controller.apps.demo.store.scenario import Read, StoreOutcome
from controller.apps.demo.store.world import US
from dataplane.clock import NS_PER_MS

_DPI: Final = 110
_SPAN_NS: Final = 5 * NS_PER_MS
_SWITCH, _PRODUCER, _EDGE = "#2e8b57", "#c0392b", "#909090"


def draw(outcome: StoreOutcome, stem: Path) -> tuple[Path, Path]:
    """Write `stem`.png and `stem`.svg; return both paths. The same run gives the same bytes."""
    # Without a salt the ids in an SVG are random.
    mpl.rcParams["svg.hashsalt"] = "millrace"
    figure = Figure(figsize=(11, 5.6), layout="constrained")
    shares, times = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1.4))
    reads = [read for phase in outcome.phases for read in phase.reads]
    _draw_shares(shares, reads)
    _draw_times(times, reads, f"switch {outcome.switch}", f"producer {outcome.producer}")
    for number, phase in enumerate(outcome.phases, 1):
        begin = phase.reads[0].began_ns / NS_PER_MS
        for axis in (shares, times):
            axis.axvline(begin, color=_EDGE, lw=0.7, zorder=0)
        shares.text(begin, 104, f" {number}", fontsize=9, va="bottom", color="#404040")
    names = "; ".join(f"{number} {phase.name}" for number, phase in enumerate(outcome.phases, 1))
    lines = "\n".join(wrap(names, 130))
    shares.set_title(f"Reads of named content in {outcome.topology.name}\n{lines}", fontsize=9, loc="left", pad=18)
    png, svg = stem.with_suffix(".png"), stem.with_suffix(".svg")
    # Matplotlib would write its version and the date, which change the bytes.
    figure.savefig(png, dpi=_DPI, metadata={"Software": None})
    figure.savefig(svg, metadata={"Date": None})
    return png, svg


def _draw_shares(axis: Axes, reads: Sequence[Read]) -> None:
    """Draw the switch's share of all reads in each span of time."""
    spans: dict[int, list[Read]] = {}
    for read in reads:
        spans.setdefault(read.began_ns // _SPAN_NS, []).append(read)
    places = [(number + 0.5) * _SPAN_NS / NS_PER_MS for number in spans]
    shares = [100 * sum(read.by_switch for read in some) / len(some) for some in spans.values()]
    axis.bar(places, shares, width=_SPAN_NS / NS_PER_MS, color=_SWITCH)
    axis.set_ylim(0, 100)
    axis.set_ylabel(f"by the switch (%,\neach {_SPAN_NS // NS_PER_MS} ms)")


def _draw_times(axis: Axes, reads: Sequence[Read], switch: str, producer: str) -> None:
    for by_switch, colour, who in ((True, _SWITCH, switch), (False, _PRODUCER, producer)):
        some = [read for read in reads if read.by_switch is by_switch]
        began, took = [read.began_ns / NS_PER_MS for read in some], [read.took_ns / US for read in some]
        axis.scatter(began, took, s=5, color=colour, label=f"answered by {who}", linewidths=0)
    axis.set_xlabel("began at (ms)")
    axis.set_ylabel("took (us)")
    axis.set_ylim(0, None)
    axis.legend(loc="lower right", fontsize=8)
