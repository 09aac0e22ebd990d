"""Shared parts of the commands for learning schedulers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

if TYPE_CHECKING:
    from controller.learning.agent.settings import Preset
    from controller.learning.training.figures import Figures
    from controller.learning.training.given import Given, LearningSettings


class PresetName(StrEnum):
    """Named settings of an agent, its observations and its reward."""

    SPECIFICATION = "specification"


InputArgument = Annotated[
    str, typer.Argument(metavar="INPUT", help="blocks:FILE, spotri:FILE, swf:FILE, or bursty, drawn from the seed.")
]
SettingsOption = Annotated[
    Path | None, typer.Option("--settings", "-s", metavar="FILE", help="Settings of the agent and the inputs.")
]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of the agent, drawn inputs and data placement.")]
FallbackOption = Annotated[str, typer.Option(metavar="RULE", help="Fallback policy; default: the best on the input.")]
PresetOption = Annotated[
    PresetName | None,
    typer.Option(help="specification: its form to the letter; contradicting settings are errors."),
]
PictureOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it (.png or .svg).")]

_SECONDS: Final = "s", 1e9
_MILLISECONDS: Final = "ms", 1e6


def settings_of(path: Path | None, preset: PresetName | None = None) -> LearningSettings:
    """Return a file's settings, by default the specification's values, with a preset if one is named."""
    from controller.learning.training.given import LearningSettings, load_settings  # noqa: PLC0415

    named = None if preset is None else cast("Preset", preset.value)
    if path is not None:
        return load_settings(path, named)
    return LearningSettings() if named is None else LearningSettings().with_preset(named)


def input_of(text: str, settings: LearningSettings, seed: int, *, quiet: bool = False) -> Given[Any]:
    """Return the named input; print what of its file is left out, and why, unless `quiet`."""
    from controller.learning.training.given import read_given  # noqa: PLC0415

    skipped: Counter[str] = Counter()
    given = read_given(text, settings, seed, skipped)
    if not quiet:
        for reason, count in sorted(skipped.items()):
            typer.echo(f"{given.name}: left out {count}: {reason}", err=True)
    return given


def progress_of(name: str, every_s: float = 10.0) -> Callable[[int], None]:
    """Return a function of the number of decisions that prints it at most every `every_s` seconds."""
    said_s = time.monotonic()

    def watch(decisions: int) -> None:
        nonlocal said_s
        if time.monotonic() - said_s >= every_s:
            said_s = time.monotonic()
            typer.echo(f"{name}: {decisions} decisions", err=True)

    return watch


def unit_of(given: Given[Any]) -> tuple[str, float]:
    """Return the unit of displayed times and its length in ns: batch jobs run for hours, tasks for milliseconds."""
    return _SECONDS if given.kind == "jobs" else _MILLISECONDS


def columns_of(given: Given[Any]) -> tuple[str, ...]:
    """Return the names of figures; graphs add their tasks' figures, batch jobs the bounded slowdown."""
    unit, _ = unit_of(given)
    names: tuple[str, ...] = (
        f"mean wait, {unit}",
        f"mean response, {unit}",
        "utilisation",
        f"p99 latency, {unit}",
        "mean reward",
    )
    if given.has_graph:
        names += (f"mean task wait, {unit}", f"mean task response, {unit}")
    return (*names, "mean slowdown") if given.kind == "jobs" else names


def cells_of(figures: Figures, given: Given[Any]) -> tuple[float, ...]:
    """Return figures in the order of `columns_of`."""
    _, ns = unit_of(given)
    cells: tuple[float, ...] = (
        figures.mean_wait_ns / ns,
        figures.mean_response_ns / ns,
        figures.utilisation,
        figures.p99_latency_ns / ns,
        figures.mean_reward,
    )
    if given.has_graph:
        cells += (figures.mean_task_wait_ns / ns, figures.mean_task_response_ns / ns)
    return (*cells, figures.mean_slowdown) if given.kind == "jobs" else cells
