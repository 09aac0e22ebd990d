"""`millrace scheduler train`: an agent learns on an input, and is written as a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controller.cli.common import check_outputs
from controller.cli.learning.options import (
    FallbackOption,
    InputArgument,
    PictureOption,
    SettingsOption,
    settings_of,
)
from controller.cli.output import Format, FormatOption, show_values

if TYPE_CHECKING:
    from controller.schedulers.learning.agent.records import Checkpoint
    from controller.schedulers.learning.training.given import Given, LearningSettings


def train(  # noqa: PLR0917 - a command line's options
    workload: InputArgument,
    checkpoint: Annotated[Path, typer.Option("--checkpoint", "-c", metavar="FILE", help="Where the agent is written.")],
    settings: SettingsOption = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Go on from this checkpoint, by its own settings.")
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, max=100_000, help="How often the input is played.")] = 4,
    every: Annotated[int, typer.Option(min=1, help="Decisions of a point of the curve.")] = 1024,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the agent, of drawn inputs, of data's places; agent.seed if left out.")
    ] = None,
    fallback: FallbackOption = "",
    picture: PictureOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Let an agent learn on an input in virtual time; show and draw its learning curve, write its checkpoint.

    The same seed gives the same agent. The checkpoint is written at the end of each episode.
    """
    from controller.schedulers.learning.agent.agents import agent_of  # noqa: PLC0415
    from controller.schedulers.learning.training.given import read_given  # noqa: PLC0415
    from controller.schedulers.learning.training.trials import Point, best_rule  # noqa: PLC0415
    from controller.schedulers.learning.training.trials import train as trained  # noqa: PLC0415

    check_outputs(picture, checkpoint)
    found = settings_of(settings)
    seed = found.agent.seed if seed is None else seed
    given = read_given(workload, found, seed)
    start = _start(given, found, seed, resume)
    rule = best_rule(given, seed, fallback)
    typer.echo(f"{given.name}: {rule} decides until the network is trained", err=True)
    agent = agent_of(start, given.rules(seed)[rule], "inline")
    points: list[Point] = []
    for point in trained(given, agent, episodes=episodes, seed=seed, every=every):
        if points and point.episode != points[-1].episode:
            agent.save(checkpoint)
        points.append(point)
    agent.save(checkpoint)
    agent.close()
    show_values(points, Point, form)
    typer.echo(f"wrote {checkpoint}: version {agent.published.weights.version}", err=True)
    if not agent.published.weights.version:
        typer.echo("it is untrained: too few decisions for the buffer and for a copy of the weights", err=True)
    if picture is not None:
        from controller.schedulers.learning.training.picture import draw_curve  # noqa: PLC0415

        draw_curve(f"{given.name}, {start.shape.form}, seed {seed}", points, picture)
        typer.echo(f"wrote {picture}", err=True)


def _start(given: Given[Any], settings: LearningSettings, seed: int, resume: Path | None) -> Checkpoint:
    """Return where learning starts; raise LearningError for a checkpoint that does not fit the input."""
    import msgspec  # noqa: PLC0415

    from controller.schedulers.learning.agent.agents import new_checkpoint  # noqa: PLC0415
    from controller.schedulers.learning.agent.records import load_checkpoint  # noqa: PLC0415

    seen = given.environment.start(seed)
    if resume is None:
        return new_checkpoint(msgspec.structs.replace(settings.agent, seed=seed), seen)
    found = load_checkpoint(resume)
    found.shape.check(seen)
    return found
