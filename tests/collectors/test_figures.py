"""Figures of links: declared once, on the fields of their state."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from collectors.events.scopes import FIGURES, Scope
from collectors.figures import Merge
from collectors.history.schema import LINKS
from collectors.statistics.window import WindowColumns, WindowFigures
from collectors.values import LINK_FIGURES, DelaySource, LinkState, LossSource

PAGE = Path(__file__).parents[2] / "docs/network/telemetry.md"


def test_every_field_of_a_link_is_a_figure() -> None:
    assert ["link", *LINK_FIGURES] == [field.name for field in fields(LinkState)]


def test_types_of_figures_are_those_of_their_fields() -> None:
    kinds = {name: (figure.kind, figure.is_optional) for name, figure in LINK_FIGURES.items()}
    assert kinds["rate_bps"] == (int, False)
    assert kinds["loss"] == (float, True)
    assert kinds["source"] == (DelaySource, False)
    assert kinds["loss_source"] == (LossSource, True)


def test_numbers_in_messages_stay() -> None:
    """A number that clients know never changes; new figures come after these."""
    assert LINK_FIGURES["rate_bps"].number == 2
    assert LINK_FIGURES["newest_utilisation"].number == 21


def test_columns_of_the_history_merge_as_declared() -> None:
    columns = {column.name: column for column in LINKS.columns}
    assert columns["loss"].meaning == "share of frames lost, null while unknown"
    assert columns["queue_max_frames"].merge is Merge.GREATEST
    assert "newest_delay_ns" not in columns
    assert {name for name, figure in LINK_FIGURES.items() if figure.uses.merge is not None} < columns.keys()


def test_metrics_and_statistics_have_one_figure_each() -> None:
    metrics = [(figure.uses.metric, figure.uses.statistic) for figure in LINK_FIGURES.values() if figure.uses.metric]
    assert len(metrics) == len(set(metrics))


def test_rules_watch_numbers_only() -> None:
    assert all(LINK_FIGURES[name].kind in {int, float} for name in FIGURES[Scope.LINK])


def test_windows_have_the_same_figures_as_columns() -> None:
    assert {field.name for field in fields(WindowColumns)} == {field.name for field in fields(WindowFigures)}


@pytest.mark.parametrize("name", LINK_FIGURES)
def test_the_page_describes_every_figure(name: str) -> None:
    if name == "rate_bps":
        pytest.skip("the link's own rate, which needs no explanation")
    table = PAGE.read_text(encoding="utf-8").split("| of a link |")[1].split("\n\n")[0]
    assert re.search(rf"^\|[^|]*`{name}`", table, re.MULTILINE)
