"""`millrace demo training`: run it, show who added up, how fast and how well; write a chart and figures."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from controller.apps.demo.folder import make_folder
from controller.common.console import plain_or_terminal
from dataplane.errors import MillraceError

if TYPE_CHECKING:
    from controller.apps.demo.training.scenario import Phase, TrainingOutcome


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """Command-line options."""

    workers: int
    steps: int
    out: Path


def run(options: TrainingOptions) -> TrainingOutcome:
    """Run the demo and show it; raise a one-line MillraceError if it cannot run: without root, or PyTorch."""
    if importlib.util.find_spec("torch") is None:
        raise MillraceError("the training demo requires torch: pip install 'millrace-net[train]'")
    from dataplane.fabric.kernel.fabric import require_root  # noqa: PLC0415 - loads netlink

    require_root()
    make_folder(options.out)
    from controller.apps.demo.training.chart import draw  # noqa: PLC0415 - what needs neither says so first
    from controller.apps.demo.training.scenario import train  # noqa: PLC0415

    console = plain_or_terminal()
    outcome = train(options.workers, options.steps, lambda line: console.print(line, highlight=False, soft_wrap=True))
    console.print(table(outcome))
    for line in lines(outcome):
        console.print(line, highlight=False, soft_wrap=True)
    png, svg = draw(outcome, options.out / "training")
    figures = options.out / "training.json"
    figures.write_text(json.dumps(asdict(outcome), indent=2) + "\n", encoding="utf-8")
    console.print(f"Pictures: {png} and {svg}; figures: {figures}", highlight=False, soft_wrap=True)
    return outcome


def table(outcome: TrainingOutcome) -> Table:
    """Return the phases as rows."""
    result = Table()
    for column in ("", "workers", "added up by", "steps", "steps/s", "longest step", "loss", "gloo's loss"):
        result.add_column(column, justify="left" if column in {"", "added up by"} else "right")
    for phase in (outcome.gloo, *outcome.phases):
        result.add_row(*_cells(phase))
    return result


def _cells(phase: Phase) -> tuple[str, ...]:
    figures = (f"{phase.steps_per_s:.1f}", f"{phase.longest_s:.2f} s", f"{phase.loss:.4f}", f"{phase.gloo_loss:.4f}")
    return (phase.name, str(phase.workers), phase.way, str(phase.steps), *figures)


def lines(outcome: TrainingOutcome) -> list[str]:
    """Return the lines below the table."""
    same = "the same" if outcome.same_parameters else "NOT the same"
    return [
        f"While all {outcome.workers} workers lived, every loss was within {outcome.difference:.1e} of gloo's.",
        f"The remaining {outcome.workers - 1} workers have {same} parameters, bit for bit.",
        "The first worker's log:",
        *(f"  {line}" for line in outcome.said),
    ]
