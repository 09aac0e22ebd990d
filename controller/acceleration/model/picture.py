"""The six figures of the worked cases: the ratio of CPU to GPU time over t, each as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from controller.acceleration.errors import AccelerationError
from controller.acceleration.model.worked import DRAWN, Case, Form
from controller.acceleration.values import TransferModel
from controller.common.figures import save

_T_S: Final = (0.001, 10.0)
"""Range of t of operators in practice."""
_BEHIND: Final = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.7}
_STATED_RATIOS: Final = (0.5, 80.0)
_RATIOS: Final = (0.02, 120.0)
"""The same axis for all figures, so that they compare; without the sum's transfers there is less to hide in."""
_POINTS: Final = 120
_SIDE_IN: Final = (5.0, 4.3)
_GPU_COLOUR: Final = "#1b7a3d"
_CPU_COLOUR: Final = "#3060a8"
_STATED_COLOUR: Final = "#b3261e"


def draw_figures(path: Path, transfer: TransferModel = TransferModel.SUM, *, finite: bool = False) -> None:
    """Write figures 2a to 2f as one picture, .png or .svg; raise AccelerationError for another suffix."""
    canvas = Figure(figsize=(3 * _SIDE_IN[0], 2 * _SIDE_IN[1]), layout="constrained")
    # Ethernet, InfiniBand and compressed InfiniBand from left to right; linear above square.
    for axes, case in zip(canvas.subplots(2, 3).T.flat, DRAWN, strict=True):
        _draw(axes, case, transfer, finite=finite)
    _save(canvas, path)


def draw_each(folder: Path, transfer: TransferModel = TransferModel.SUM, *, finite: bool = False) -> Sequence[Path]:
    """Write figure-2a.svg to figure-2f.svg into a folder, creating it if missing; return their paths."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AccelerationError(f"{folder}: {error.strerror}") from error
    paths = [folder / f"figure-{case.figure}.svg" for case in DRAWN]
    for path, case in zip(paths, DRAWN, strict=True):
        canvas = Figure(figsize=_SIDE_IN, layout="constrained")
        _draw(canvas.subplots(), case, transfer, finite=finite)
        _save(canvas, path)
    return paths


def _save(canvas: Figure, path: Path) -> None:
    # Text kept as text, and no formulas to typeset.
    with mpl.rc_context({"svg.fonttype": "none", "text.parse_math": False}):
        save(canvas, path, AccelerationError)


def _draw(axes: Axes, case: Case, transfer: TransferModel, *, finite: bool) -> None:
    form = case.form(transfer, finite=finite)
    t = np.geomspace(*_T_S, _POINTS)
    ratio = np.array([float(form.at(Fraction(t_s))) for t_s in t])
    axes.axhline(1.0, color="#777777", linewidth=0.9, linestyle="--")
    axes.fill_between(t, ratio, 1.0, where=(ratio > 1).tolist(), color=_GPU_COLOUR, alpha=0.14, linewidth=0)
    axes.fill_between(t, ratio, 1.0, where=(ratio <= 1).tolist(), color=_CPU_COLOUR, alpha=0.14, linewidth=0)
    axes.plot(t, ratio, color="#222222", linewidth=1.6)
    is_stated = transfer is TransferModel.SUM and not finite
    _scale(axes, _STATED_RATIOS if is_stated else _RATIOS)
    _mark(axes, case, form, is_stated=is_stated)
    how = "" if is_stated else f" ({transfer}{', finite' if finite and transfer is TransferModel.SUM else ''})"
    axes.set_title(f"{case.title}{how}\nratio = {form}", fontsize=9.5)
    axes.set_xlabel(_below(case.remark if is_stated else ""), fontsize=8.5)
    axes.set_ylabel("CPU time / GPU time", fontsize=8.5)
    axes.tick_params(labelsize=8)


def _scale(axes: Axes, ratios: tuple[float, float]) -> None:
    axes.set(xscale="log", yscale="log", xlim=_T_S, ylim=ratios)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _mark(axes: Axes, case: Case, form: Form, *, is_stated: bool) -> None:
    """Draw the text's operator at the formula's value, at the text's value if that differs, and the break-even."""
    t, given = float(case.t), float(form.at(case.t))
    colour, device = (_GPU_COLOUR, "GPU") if given > 1 else (_CPU_COLOUR, "CPU")
    axes.plot([t], [given], "o", color=colour, markersize=6, zorder=4)
    _say(axes, f"{case.operator}, t = {t:g} s: {given:.4g}, {device}", (t, given), (6, -13), colour)
    if is_stated and case.remark and case.stated is not None:
        axes.plot([t], [case.stated], "x", color=_STATED_COLOUR, markersize=7, markeredgewidth=1.8, zorder=5)
        _say(axes, f"the text says {case.stated:g}", (t, case.stated), (6, 18), _STATED_COLOUR)
    if (t_s := form.break_even) is not None:
        axes.axvline(t_s, color="#777777", linewidth=0.9, linestyle=":")
        _say(axes, f"break-even at t = {t_s:.3g} s", (t_s, axes.get_ylim()[1]), (5, -14), "#555555")


def _say(axes: Axes, text: str, at: tuple[float, float], shift: tuple[int, int], colour: str) -> None:
    axes.annotate(text, at, shift, textcoords="offset points", fontsize=8, color=colour, bbox=_BEHIND)


def _below(remark: str) -> str:
    """Return the caption: the axis, and where the text contradicts its own formula."""
    words, lines = remark.split(), ["t: CPU seconds for 100 MB"]
    if words:
        lines.append("")
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > 74:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)
