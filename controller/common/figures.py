"""Files of matplotlib figures: .png or .svg, the same bytes for the same figure."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.figure import Figure

from controller.common.errors import ControllerError

_DPI: Final = 110
_MOST_SIDE: Final = 65_000
_MOST_PIXELS: Final = 200_000_000
"""Limits of a .png: matplotlib draws no longer side, and 200 million pixels take 0.8 GB."""


def check_ending(path: Path, error: type[ControllerError]) -> None:
    """Raise `error` unless a figure's file ends in .png or .svg."""
    if path.suffix not in {".png", ".svg"}:
        raise error(f"{path}: a picture's name ends in .png or .svg")


def save(figure: Figure, path: Path, error: type[ControllerError]) -> None:
    """Write a figure; raise `error`, which names the file, for another extension or a failed write."""
    check_ending(path, error)
    try:
        # A fixed salt keeps an SVG's identifiers the same each time.
        with mpl.rc_context({"svg.hashsalt": "millrace"}):
            figure.savefig(path, dpi=_dpi(figure), metadata={"Date": None} if path.suffix == ".svg" else None)
    except OSError as problem:
        raise error(f"{path}: {problem.strerror or problem}") from problem


def _dpi(figure: Figure) -> float:
    """Return the usual resolution, less for a figure that would be too large."""
    width_in, height_in = figure.get_size_inches()
    return float(min(_DPI, _MOST_SIDE / max(width_in, height_in), (_MOST_PIXELS / (width_in * height_in)) ** 0.5))


def save_both(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write a figure as .png and .svg into one folder; return both paths. Raises OSError."""
    png, svg = stem.with_suffix(".png"), stem.with_suffix(".svg")
    with mpl.rc_context({"svg.hashsalt": "millrace"}):
        figure.savefig(png, dpi=_DPI, metadata={"Software": None})
        figure.savefig(svg, metadata={"Date": None})
    return png, svg
