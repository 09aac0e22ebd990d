"""Plots of a cost map: one figure of all pairs by colour, hosts in the order of their switches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import FuncFormatter, LogLocator

from controller.cluster.cost_map.columns import AVAILABLE, DELAY, LOSS
from controller.cluster.cost_map.cost_map import CostMap
from controller.cluster.cost_map.values import PPB, UNLIMITED_BPS
from controller.common.errors import PathError
from controller.common.figures import check_ending, save

_MOST_NAMES: Final = 48
"""Maximum number of hosts to name; with more, only switches are named."""
_MOST_NUMBERS: Final = 24
"""Maximum number of hosts for which each field shows its pair's figure."""
_FEW_PERCENT: Final = 5.0
"""Percentage of pairs that may lie below the colour scale, whose lower end is at most a tenth of the maximum."""
_BIT: Final = {"delay": DELAY, "bandwidth": AVAILABLE, "loss": LOSS}


@dataclass(frozen=True, slots=True)
class _Plotted:
    """One figure of all pairs to draw, NaN where there is none."""

    values: npt.NDArray[np.float64]
    label: str
    colours: str
    is_logarithmic: bool = False


def draw(costs: CostMap, figure: str, path: Path) -> None:
    """Write a heat map of `delay`, `bandwidth` or `loss` to a .png or .svg file; raise PathError where it cannot.

    The diagonal and unreachable pairs stay white.
    """
    check_ending(path, PathError)
    # Hosts by switch, so that the lines between switches separate blocks.
    order = np.argsort(costs.model.host_switch, kind="stable")
    shown = _figure(costs, figure)
    values = shown.values[np.ix_(order, order)]
    side_in = min(14.0, max(4.5, 2.0 + (0.36 if len(order) <= _MOST_NUMBERS else 0.16) * len(order)))
    canvas = Figure(figsize=(side_in + 1.2, side_in), layout="constrained")
    axes = canvas.add_subplot()
    norm = _norm(values, logarithmic=shown.is_logarithmic)
    image = axes.imshow(values, cmap=shown.colours, norm=norm)
    names = [costs.hosts[host] for host in order]
    switches = [costs.model.table.switches[costs.model.host_switch[host]] for host in order]
    _label(axes, names, switches)
    if len(order) <= _MOST_NUMBERS:
        _write_numbers(axes, image, values)
    axes.set_title(f"{costs.model.topology.name}: {shown.label}, {_basis(costs, figure)}", fontsize=10)
    axes.set_xlabel("to")
    axes.set_ylabel("from")
    _add_scale(canvas, axes, image, values, shown.label)
    save(canvas, path, PathError)


def _figure(costs: CostMap, figure: str) -> _Plotted:
    pairs = costs.pairs
    if figure == "delay":
        values = np.where(pairs.delay_ns > 0, pairs.delay_ns.astype(np.float64), np.nan)
        unit_ns, unit = (1e6, "ms") if np.nanmax(values, initial=0) >= 1e6 else (1e3, "us")
        return _Plotted(values / unit_ns, f"delay, {unit}", "viridis", is_logarithmic=True)
    if figure == "bandwidth":
        is_shown = (pairs.available_bps < UNLIMITED_BPS) & (pairs.delay_ns > 0)
        values = np.where(is_shown, pairs.available_bps.astype(np.float64), np.nan)
        unit_bps, unit = (1e9, "Gbit/s") if np.nanmax(values, initial=0) >= 1e9 else (1e6, "Mbit/s")
        return _Plotted(values / unit_bps, f"free bandwidth, {unit}", "viridis_r")
    if figure == "loss":
        return _Plotted(np.where(pairs.delay_ns > 0, 100 * pairs.loss_ppb / PPB, np.nan), "loss, %", "viridis")
    raise PathError(f"a picture shows delay, bandwidth or loss, not {figure}")


def _basis(costs: CostMap, figure: str) -> str:
    """Return the figures' basis in words."""
    if costs.is_predicted:
        return "predicted"
    measured = costs.pairs.measured[costs.pairs.delay_ns > 0]
    in_part = measured & _BIT[figure] << 3 != 0
    if (in_part & (measured & _BIT[figure] != 0)).all():
        return "measured"
    return "measured or nominal" if in_part.any() else "nominal"


def _norm(values: npt.NDArray[np.float64], *, logarithmic: bool) -> Normalize:
    """Return the mapping from figures to colours; a few very low outliers do not flatten the others."""
    seen = values[np.isfinite(values)]
    least, most = (float(seen.min()), float(seen.max())) if len(seen) else (0.0, 1.0)
    if logarithmic and most > 10 * least > 0:
        return LogNorm(min(float(np.percentile(seen, _FEW_PERCENT)), most / 10), most)
    return Normalize(least, most if most > least else least + 1.0)


def _write_numbers(axes: Axes, image: AxesImage, values: npt.NDArray[np.float64]) -> None:
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            # Perceived brightness (ITU-R BT.709).
            is_bright = np.dot(image.to_rgba(np.array([value]))[0, :3], (0.2126, 0.7152, 0.0722)) > 0.5
            colour = "black" if is_bright else "white"
            axes.text(column, row, f"{value:.3g}", ha="center", va="center", fontsize=6.5, color=colour)


def _add_scale(canvas: Figure, axes: Axes, image: AxesImage, values: npt.NDArray[np.float64], label: str) -> None:
    """Add the colour scale: plain numbers, and only one if all figures are equal."""
    seen = values[np.isfinite(values)]
    is_cut = len(seen) > 0 and seen.min() < image.get_clim()[0]
    scale = canvas.colorbar(image, ax=axes, shrink=0.8, label=label, extend="min" if is_cut else "neither")
    if len(np.unique(seen)) == 1:
        scale.set_ticks([float(seen[0])], labels=[f"{seen[0]:.4g}"])
        return
    if isinstance(image.norm, LogNorm):
        scale.locator = LogLocator(subs=(1.0, 2.0, 5.0))
        scale.minorticks_off()
    scale.formatter = FuncFormatter(lambda value, _: f"{value:.4g}")
    scale.update_ticks()


def _label(axes: Axes, names: list[str], switches: list[str]) -> None:
    """Name hosts if they fit, else their switches, and separate switches by lines."""
    borders = [index for index in range(1, len(switches)) if switches[index] != switches[index - 1]]
    for border in borders:
        for line in (axes.axhline, axes.axvline):
            # imshow centres cells on whole numbers, so borders lie between them.
            line(border - 0.5, color="white", linewidth=0.6)
    if len(names) <= _MOST_NAMES:
        places, labels = list(range(len(names))), names
    else:
        starts = [0, *borders]
        ends = [*borders, len(names)]
        step = max(1, len(starts) // _MOST_NAMES)
        places = [(start + end - 1) // 2 for start, end in zip(starts, ends, strict=True)][::step]
        labels = [switches[index] for index in places]
    axes.set_xticks(places, labels, rotation=90, fontsize=7)
    axes.set_yticks(places, labels, fontsize=7)
