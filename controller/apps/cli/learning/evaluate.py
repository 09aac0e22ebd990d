"""`millrace scheduler evaluate`: results of a checkpoint's agent on an input."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.learning.options import (
    FallbackOption,
    InputArgument,
    PresetOption,
    SeedOption,
    SettingsOption,
    cells_of,
    columns_of,
    input_of,
    progress_of,
    settings_of,
)
from controller.apps.cli.shared.common import check_outputs, slow
from controller.apps.cli.shared.output import Cells, Format, FormatOption, show

if TYPE_CHECKING:
    from controller.learning.training.trials import Timed


@slow("evaluating")
def evaluate(  # noqa: PLR0917 - a command line's options
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="Checkpoint from `millrace scheduler train`.")
    ],
    workload: InputArgument,
    settings: SettingsOption = None,
    preset: PresetOption = None,
    seed: SeedOption = 0,
    fallback: FallbackOption = "",
    attention: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw attention per action, mean of 256 decisions (.png or .svg)."),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Evaluate a checkpoint on an input in virtual time, without learning or exploration."""
    from controller.learning.training.given import checkpoint_for  # noqa: PLC0415
    from controller.learning.training.trials import Timed, attention_of, best_rule, check_attention, greedy  # noqa: PLC0415
    from controller.learning.training.trials import evaluate as evaluated  # noqa: PLC0415

    check_outputs(attention)
    given = input_of(workload, settings_of(settings, preset), seed)
    loaded = checkpoint_for(given, checkpoint)
    if attention is not None:
        check_attention(loaded)
    rule = best_rule(given, seed, fallback)
    agent = greedy(given, loaded, given.rules(seed)[rule])
    timed = Timed(agent, time.perf_counter_ns)
    figures = evaluated(given, timed, seed, progress_of(str(checkpoint)))
    rows: list[Cells] = [
        ("input", given.name),
        ("made for", str(loaded.made_for)),
        ("version", loaded.version),
        ("fallback", rule),
    ]
    rows += [("decisions", figures.decisions)]
    rows += [(f"by {source}", agent.decider.counts[source]) for source in ("network", "fallback")]
    rows += [*zip(columns_of(given), cells_of(figures, given), strict=True)]
    rows += _latencies(timed)
    show(("what", "value"), rows, form)
    if attention is not None:
        from controller.learning.training.picture import draw_attention  # noqa: PLC0415

        draw_attention(
            f"{given.name}, version {loaded.version}", attention_of(given, loaded, agent, seed, 256), attention
        )
        typer.echo(f"wrote {attention}", err=True)


def _latencies(timed: Timed) -> list[Cells]:
    return [(f"decision p{percent}, us", timed.percentile_ns(percent) / 1e3) for percent in (50, 99)]
