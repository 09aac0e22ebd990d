"""What the commands of a scheduler that learns have in common."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from controller.schedulers.learning.training.figures import Figures
    from controller.schedulers.learning.training.given import LearningSettings

InputArgument = Annotated[
    str, typer.Argument(metavar="INPUT", help="blocks:FILE, spotri:FILE, swf:FILE, or bursty, drawn by the seed.")
]
SettingsOption = Annotated[
    Path | None, typer.Option("--settings", "-s", metavar="FILE", help="The agent's settings, and the inputs'.")
]
SeedOption = Annotated[int, typer.Option(min=0, help="Of the agent, of drawn inputs and of data's places.")]
FallbackOption = Annotated[
    str, typer.Option(metavar="RULE", help="Who decides where the network cannot; the best on the input if left out.")
]
PictureOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it, .png or .svg.")]

FIGURES: Final = ("mean wait, ms", "mean response, ms", "utilisation", "p99 latency, ms", "mean reward")


def settings_of(path: Path | None) -> LearningSettings:
    """Return the settings of a file, the specification's values without one."""
    from controller.schedulers.learning.training.given import LearningSettings, load_settings  # noqa: PLC0415

    return LearningSettings() if path is None else load_settings(path)


def cells_of(found: Figures) -> tuple[float, ...]:
    """Return figures in the order of `FIGURES`."""
    return (
        found.mean_wait_ns / 1e6,
        found.mean_response_ns / 1e6,
        found.utilisation,
        found.p99_latency_ns / 1e6,
        found.mean_reward,
    )
