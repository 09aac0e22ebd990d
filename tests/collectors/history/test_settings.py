"""The history's settings refuse what would not merge."""

from __future__ import annotations

import pytest

from collectors.history.settings import HistorySettings
from dataplane.config import loads
from dataplane.errors import ConfigError

S_NS = 1_000_000_000


def test_the_defaults_are_a_month() -> None:
    settings = HistorySettings(folder="history")
    assert settings.longest_ns == 30 * 24 * 3600 * S_NS
    assert settings.coarsest_ns == 60 * S_NS


def test_without_tiers_rows_are_never_merged() -> None:
    settings = HistorySettings(folder="history", keep_ns=5, tiers=())
    assert (settings.longest_ns, settings.coarsest_ns) == (5, settings.interval_ns)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("tiers: [{interval: 1500ms, keep: 100000s}]", "not a multiple of the previous one"),
        ("tiers: [{interval: 1s, keep: 100000s}]", "not a multiple of the previous one"),
        ("tiers: [{interval: 2s, keep: 6h}]", "ends before the previous one"),
        ("file_span: 90s", "file_span is not a multiple of the coarsest interval"),
        ("interval_ns: 1000", "interval_ns: "),
        ("every: 5", "every: unknown key"),
    ],
)
def test_settings_that_do_not_fit_together(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        loads(f"folder: history\n{text}\n", HistorySettings)
