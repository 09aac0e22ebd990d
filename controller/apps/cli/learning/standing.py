"""`millrace scheduler status`: the state of a live learning scheduler, from its metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.shared.output import Format, FormatOption, show
from controller.common.errors import SchedulerError

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

_COLUMNS: Final = ("of", "profile", "what", "value")
_PREFIX: Final = "millrace_scheduler_learning_"
_WORDS: Final = {
    "decisions_total": "decisions by",
    "unanswered_total": "not by the network:",
    "experiences_total": "experiences:",
    "training_total": "training:",
}
Figures = Mapping[str, float]


def status(
    metrics: Annotated[
        str, typer.Option(metavar="URL", help="The scheduler's metrics URL, as in its ready line.")
    ] = "http://127.0.0.1:9467/metrics",
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the status of learning policies: decisions, answers taken, and training."""
    learners = learners_in(_text_of(metrics))
    if not learners:
        typer.echo(f"{metrics}: no learning policy", err=True)
        raise typer.Exit(1)
    rows = ((*who, what, value) for who, figures in sorted(learners.items()) for what, value in rows_of(figures))
    show(_COLUMNS, rows, form)


def learners_in(text: str) -> dict[tuple[str, str], dict[str, float]]:
    """Return figures by name, for each learner's subject and profile."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - few need it

    learners: dict[tuple[str, str], dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith(_PREFIX):
                who = (sample.labels["of"], sample.labels["profile"])
                learners.setdefault(who, {})[_name_of(sample)] = sample.value
    return learners


def rows_of(figures: Figures) -> Iterator[tuple[str, float | str]]:
    """Yield figures in words, the most informative first."""
    yield "mode", "shadow" if figures.get("shadow") else "live"
    yield "version", round(figures.get("version", 0))
    compared, agreed = figures.get("compared_total", 0.0), figures.get("agreed_total", 0.0)
    if compared:
        yield "first choices taken", f"{round(agreed)} of {round(compared)} ({100 * agreed / compared:.1f} %)"
        yield "regret a decision", round(figures.get("regret_total", 0.0) / compared, 6)
    covered = {"shadow", "version", "compared_total", "agreed_total", "regret_total"}
    for what, figure in figures.items():
        if what not in covered:
            yield what, round(figure) if figure == round(figure) else round(figure, 6)


def _name_of(sample: Sample) -> str:
    name = sample.name.removeprefix(_PREFIX)
    more = " ".join(value for label, value in sample.labels.items() if label not in {"of", "profile"})
    return f"{_WORDS.get(name, name)} {more}".strip()


def _text_of(url: str) -> str:
    """Return a scheduler's metrics; raise SchedulerError, with the address, if it serves none."""
    from httpx import Client, HTTPError, InvalidURL  # noqa: PLC0415 - takes a while to load

    try:
        with Client() as client:
            return client.get(url, timeout=10).raise_for_status().text
    except (HTTPError, InvalidURL) as error:
        raise SchedulerError(f"{url}: {error or type(error).__name__}") from error
