"""`millrace scheduler train`: train an agent on an input, and write it as a checkpoint."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from controller.apps.cli.learning.options import (
    FallbackOption,
    InputArgument,
    PictureOption,
    PresetOption,
    SettingsOption,
    input_of,
    settings_of,
    unit_of,
)
from controller.apps.cli.shared.common import check_outputs, working
from controller.apps.cli.shared.output import Cells, Format, FormatOption, show

if TYPE_CHECKING:
    from controller.learning.agent.agents import Agent
    from controller.learning.agent.records import Checkpoint
    from controller.learning.training.given import Given, LearningSettings
    from controller.learning.training.keeping import Best
    from controller.learning.training.trials import Point, Run


class Interrupted(Exception):  # noqa: N818 - not an error
    """An interrupt arrived during a wait that it aborts."""


class Stop:
    """Interrupt flag: call it to test whether an interrupt arrived; `status` is the exit status to use then."""

    def __init__(self) -> None:
        self._number = 0
        self._breaks = False

    def __call__(self) -> bool:
        """Return whether to stop."""
        return bool(self._number)

    @property
    def status(self) -> int:
        """As in a shell: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self._number

    def ask(self, number: int) -> None:
        """Note the first signal; end at the second one."""
        is_second, self._number = bool(self._number), number
        if is_second and number == signal.SIGINT:
            raise KeyboardInterrupt
        if is_second:
            sys.exit(self.status)

    def break_off(self) -> None:
        """Raise Interrupted if the current wait asked for it."""
        if self._breaks:
            raise Interrupted

    @contextmanager
    def breaking(self) -> Iterator[None]:
        """Make the first interrupt raise Interrupted here."""
        self._breaks = True
        try:
            yield
        finally:
            self._breaks = False


@contextmanager
def stopping(say: str) -> Iterator[Stop]:
    """Yield the flag of SIGINT and SIGTERM; the first prints `say`, the second ends at once."""
    stop = Stop()

    def take(number: int, _: FrameType | None) -> None:
        stop.ask(number)
        # Not through Python's streams, which may be in the middle of a line.
        os.write(2, f"{say}\n".encode())
        stop.break_off()

    before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {
        number: signal.signal(number, take) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_SAVE_EVERY_S: Final = 60.0
_SAVE_WITHIN_S: Final = 3600.0
_OF_TRAINING: Final = ("loss", "error", "steps", "version")
_STOPPING: Final = "stopping after this decision or training step; interrupt again to end at once without saving"


class Where(StrEnum):
    """Execution mode of training."""

    INLINE = "inline"
    PROCESS = "process"


def train(  # noqa: PLR0917 - a command line's options
    workload: InputArgument,
    checkpoint: Annotated[Path, typer.Option("--checkpoint", "-c", metavar="FILE", help="File to write the agent to.")],
    settings: SettingsOption = None,
    preset: PresetOption = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Continue from this checkpoint, with its settings.")
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, max=100_000, help="Number of passes over the input.")] = 4,
    every: Annotated[int, typer.Option(min=1, help="Decisions per point of the curve.")] = 1024,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of agent, inputs and data placement; default: the checkpoint's or agent.seed."),
    ] = None,
    where: Annotated[
        Where, typer.Option(help="inline: decisions wait for training, reproducible; process: they do not wait.")
    ] = Where.INLINE,
    best: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Evaluate the agent after each episode, and write the best here."),
    ] = None,
    fallback: FallbackOption = "",
    picture: PictureOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Train an agent on an input in virtual time; show and draw its learning curve, write a checkpoint.

    It is written after each episode and each minute. Ctrl-C also writes it, and shows the curve so far; with
    --resume a run continues from there.
    """
    check_outputs(picture, checkpoint, best)
    with working("playing the heuristics, of which one decides until the network is trained"):
        from controller.learning.agent.agents import agent_of  # noqa: PLC0415
        from controller.learning.agent.records import load_checkpoint  # noqa: PLC0415
        from controller.learning.training.keeping import Best  # noqa: PLC0415
        from controller.learning.training.trials import Run, best_rule  # noqa: PLC0415

        loaded = settings_of(settings, preset)
        before = None if resume is None else load_checkpoint(resume)
        last = None if before is None else before.run
        if seed is None:
            seed = loaded.agent.seed if last is None else last.seed
        given = input_of(workload, loaded, seed)
        start = _start(given, loaded, seed, resume, before)
        if last is not None and (last.input, last.seed) != (given.name, seed):
            last = None
        rule = best_rule(given, seed, fallback or ("" if last is None else last.fallback))
        agent = agent_of(start, given.rules(seed)[rule], where.value)
        run = Run(given, agent, seed, rule)
        keep = None if best is None else partial(_keep, Best(given, seed, rule), checkpoint, best)
    typer.echo(f"{given.name}: {rule} decides until the network is trained", err=True)
    if last is not None and not run.go_on(last):
        typer.echo(f"{resume}: was interrupted in an episode of another input; restarting that episode", err=True)
    with working(lambda: f"training: {run.progress}"), stopping(_STOPPING) as stop:
        points = _trained(
            run.play(episodes=episodes, every=every, is_stopping=stop),
            run,
            lambda at_once: agent.save(checkpoint, _SAVE_WITHIN_S, run=run.record, at_once=at_once),
            stop,
            keep,
        )
        ended = points[-1].episode - points[0].episode + (not run.record.actions)
    agent.close()
    show(_columns(given), [_row(given, point) for point in points], form)
    typer.echo(f"wrote {checkpoint}: version {agent.published.weights.version}", err=True)
    _print_status(agent, where)
    if picture is not None:
        from controller.learning.training.picture import draw_curve  # noqa: PLC0415

        unit, ns = unit_of(given)
        draw_curve(f"{given.name}, {start.shape.form}, seed {seed}", points, picture, unit=unit, unit_ns=ns)
        typer.echo(f"wrote {picture}", err=True)
    if stop() and ended < episodes:
        typer.echo(f"interrupted: continue with --resume {checkpoint} --episodes {episodes - ended}", err=True)
        raise typer.Exit(stop.status)


def _start(
    given: Given[Any], settings: LearningSettings, seed: int, resume: Path | None, before: Checkpoint | None
) -> Checkpoint:
    """Return the starting point of learning; raise LearningError for a checkpoint that does not fit the input."""
    import msgspec  # noqa: PLC0415

    from controller.learning.agent.agents import new_checkpoint  # noqa: PLC0415
    from controller.learning.training.given import checkpoint_for  # noqa: PLC0415

    if resume is not None:
        return checkpoint_for(given, resume, before)
    agent = msgspec.structs.replace(settings.agent, seed=seed)
    return new_checkpoint(agent, given.environment.start(seed), given.kind)


def _keep(keeping: Best, checkpoint: Path, best: Path) -> None:
    """Evaluate the last checkpoint, and write it again if it is the best so far."""
    from controller.learning.agent.records import load_checkpoint, save_checkpoint  # noqa: PLC0415

    tried = load_checkpoint(checkpoint)
    if keeping.look_at(tried):
        save_checkpoint(best, tried)
        response_ms = keeping.mean_response_ns / 1e6
        typer.echo(f"wrote {best}: version {tried.version}, a mean response of {response_ms:g} ms", err=True)


def _trained(
    points: Iterator[Point],
    run: Run[Any],
    save: Callable[[bool], None],
    stop: Stop,
    after_episode: Callable[[], None] | None,
) -> list[Point]:
    """Train, save now and then and at the end, and return the curve; wait for nothing once interrupted."""
    curve: list[Point] = []
    saved_s = time.monotonic()
    for point in points:
        curve.append(point)
        if not run.record.actions or time.monotonic() - saved_s > _SAVE_EVERY_S:
            save(True)
            saved_s = time.monotonic()
            if after_episode is not None and not run.record.actions:
                after_episode()
    try:
        with stop.breaking():
            save(stop())
    except Interrupted:
        save(True)
    return curve


def _columns(given: Given[Any]) -> tuple[str, ...]:
    """Return the fields of a point of the curve."""
    return ("decisions", "episode", "mean reward", f"mean response, {unit_of(given)[0]}", *_OF_TRAINING)


def _row(given: Given[Any], point: Point) -> Cells:
    response = point.mean_response_ns / unit_of(given)[1]
    training = (point.loss, point.error, point.steps, point.version)
    return (point.decisions, point.episode, point.mean_reward, response, *training)


def _print_status(agent: Agent[Any], where: Where) -> None:
    status = agent.status
    if not agent.published.weights.version:
        typer.echo("untrained: too few decisions to fill the buffer and copy the weights", err=True)
    if where is Where.PROCESS:
        typer.echo(
            f"training took {status.decisions} decisions; {status.dropped} were dropped because it fell behind,"
            f" {agent.decider.counts['late']} answers were late, it was restarted {status.restarts} times",
            err=True,
        )
