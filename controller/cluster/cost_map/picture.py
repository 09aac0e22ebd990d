"""A cost map as a picture: one figure of all pairs by colour, hosts in the order of their switches."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from controller.cluster.cost_map.cost_map import CostMap
from controller.cluster.cost_map.values import PPB, UNLIMITED_BPS
from controller.errors import PathError

_MOST_NAMES: Final = 48
"""More hosts than this are named by their switches alone."""
_DPI: Final = 110


def draw(costs: CostMap, figure: str, path: Path) -> None:
    """Write a heat map of `delay`, `bandwidth` or `loss` to a .png or .svg file; raise PathError for another name.

    The diagonal, and pairs between which nothing leads, are left white.
    """
    if path.suffix not in {".png", ".svg"}:
        raise PathError(f"{path}: a picture's name ends in .png or .svg")
    order = np.argsort(costs.model.host_switch, kind="stable")
    values, label, colours = _figure(costs, figure)
    values = values[np.ix_(order, order)]
    side_in = min(14.0, max(4.5, 2.0 + 0.16 * len(order)))
    canvas = Figure(figsize=(side_in + 1.2, side_in), layout="constrained")
    axes = canvas.add_subplot()
    image = axes.imshow(values, cmap=colours, norm=_norm(values, logarithmic=figure == "delay"))
    names = [costs.hosts[host] for host in order]
    switches = [costs.model.table.switches[costs.model.host_switch[host]] for host in order]
    _label(axes, names, switches)
    taken = "predicted" if costs.is_predicted else "measured or nominal"
    axes.set_title(f"{costs.model.topology.name}: {label}, {taken}", fontsize=10)
    axes.set_xlabel("to")
    axes.set_ylabel("from")
    canvas.colorbar(image, ax=axes, shrink=0.8, label=label)
    canvas.savefig(path, dpi=_DPI, metadata={"Date": None} if path.suffix == ".svg" else None)


def _figure(costs: CostMap, figure: str) -> tuple[npt.NDArray[np.float64], str, str]:
    pairs = costs.pairs
    if figure == "delay":
        return np.where(pairs.delay_ns > 0, pairs.delay_ns / 1e6, np.nan), "delay, ms", "viridis"
    if figure == "bandwidth":
        shown = (pairs.available_bps < UNLIMITED_BPS) & (pairs.delay_ns > 0)
        return np.where(shown, pairs.available_bps / 1e6, np.nan), "free bandwidth, Mbit/s", "viridis_r"
    if figure == "loss":
        return np.where(pairs.delay_ns > 0, 100 * pairs.loss_ppb / PPB, np.nan), "loss, %", "viridis"
    raise PathError(f"a picture shows delay, bandwidth or loss, not {figure}")


def _norm(values: npt.NDArray[np.float64], *, logarithmic: bool) -> Normalize:
    seen = values[np.isfinite(values)]
    least, most = (float(seen.min()), float(seen.max())) if len(seen) else (0.0, 1.0)
    if logarithmic and most > 10 * least > 0:
        return LogNorm(least, most)
    return Normalize(least, most if most > least else least + 1.0)


def _label(axes: Axes, names: list[str], switches: list[str]) -> None:
    """Name hosts where they fit, else their switches, and part switches by lines."""
    borders = [place for place in range(1, len(switches)) if switches[place] != switches[place - 1]]
    for border in borders:
        for line in (axes.axhline, axes.axvline):
            line(border - 0.5, color="white", linewidth=0.6)
    if len(names) <= _MOST_NAMES:
        places, labels = list(range(len(names))), names
    else:
        starts = [0, *borders]
        ends = [*borders, len(names)]
        step = max(1, len(starts) // _MOST_NAMES)
        places = [(start + end - 1) // 2 for start, end in zip(starts, ends, strict=True)][::step]
        labels = [switches[place] for place in places]
    axes.set_xticks(places, labels, rotation=90, fontsize=7)
    axes.set_yticks(places, labels, fontsize=7)
