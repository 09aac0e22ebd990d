"""`millrace scheduler compare`: compare checkpoints with the heuristics of an input."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controller.apps.cli.learning.options import (
    FallbackOption,
    InputArgument,
    PictureOption,
    PresetOption,
    SeedOption,
    SettingsOption,
    cells_of,
    columns_of,
    input_of,
    progress_of,
    settings_of,
    unit_of,
)
from controller.apps.cli.shared.common import check_outputs, slow
from controller.apps.cli.shared.output import Format, FormatOption, show

if TYPE_CHECKING:
    from controller.learning.agent.records import Checkpoint
    from controller.learning.training.figures import Figures
    from controller.learning.training.given import Given


@slow("comparing")
def compare(  # noqa: PLR0917 - a command line's options
    workload: InputArgument,
    checkpoint: Annotated[
        list[Path] | None,
        typer.Option("--checkpoint", "-c", metavar="FILE", help="Checkpoint of an agent; repeatable."),
    ] = None,
    settings: SettingsOption = None,
    preset: PresetOption = None,
    seed: SeedOption = 0,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Number of seeds, starting at --seed.")] = 1,
    fallback: FallbackOption = "",
    picture: PictureOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Compare checkpoints and heuristics on an input: means over seeds, best response time first.

    Each seed draws a new synthetic input and data placement; `least` and `most` are of the seeds' mean responses.
    """
    from controller.learning.training.given import checkpoint_for  # noqa: PLC0415

    check_outputs(picture)
    wanted = settings_of(settings, preset)
    loaded: dict[str, Checkpoint] = {}
    by_rule: dict[str, list[Figures]] = {}
    given = input_of(workload, wanted, seed)
    for current in range(seed, seed + seeds):
        given = given if current == seed else input_of(workload, wanted, current, quiet=True)
        if current == seed:
            loaded = {str(path): checkpoint_for(given, path) for path in checkpoint or ()}
        for decider, figures in _figures_of_seed(given, loaded, current, fallback).items():
            by_rule.setdefault(decider, []).append(figures)
    rows = sorted((_row(*item, given) for item in by_rule.items()), key=lambda row: row[2])
    unit, ns = unit_of(given)
    show(("decider", *columns_of(given), f"least response, {unit}", f"most response, {unit}"), rows, form)
    if picture is not None:
        from controller.learning.training.picture import draw_comparison  # noqa: PLC0415

        draw_comparison(
            f"{workload}, {seeds} seed{'s' * (seeds > 1)} from {seed} on",
            by_rule,
            frozenset(loaded),
            picture,
            unit=unit,
            unit_ns=ns,
        )
        typer.echo(f"wrote {picture}", err=True)


def _figures_of_seed(given: Given[Any], loaded: dict[str, Checkpoint], seed: int, fallback: str) -> dict[str, Figures]:
    from controller.learning.training.trials import best_rule, evaluate, greedy  # noqa: PLC0415

    results = {name: evaluate(given, rule, seed, progress_of(name)) for name, rule in given.rules(seed).items()}
    rule = best_rule(given, seed, fallback, results) if loaded else ""
    for name, checkpoint in loaded.items():
        results[name] = evaluate(given, greedy(given, checkpoint, given.rules(seed)[rule]), seed, progress_of(name))
    return results


def _row(decider: str, figures: list[Figures], given: Given[Any]) -> tuple[Any, ...]:
    columns = list(zip(*(cells_of(figure, given) for figure in figures), strict=True))
    responses = columns[1]
    return (decider, *(sum(column) / len(column) for column in columns), min(responses), max(responses))
