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
        ("tiers: [{interval_ns: 1500000000, keep_ns: 100000000000000}]", "no multiple of the one before"),
        ("tiers: [{interval_ns: 1000000000, keep_ns: 100000000000000}]", "no multiple of the one before"),
        ("tiers: [{interval_ns: 2000000000, keep_ns: 21600000000000}]", "ends before the one before"),
        ("file_span_ns: 90000000000", "file_span_ns is no multiple of the coarsest interval"),
        ("interval_ns: 1000", "interval_ns: "),
        ("every: 5", "every: unknown key"),
    ],
)
def test_settings_that_do_not_fit_together(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        loads(f"folder: history\n{text}\n", HistorySettings)
