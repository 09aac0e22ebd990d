"""Centres under random kills, ten of them; `python -m tests.soak.centres --kills 200` is the whole."""

from __future__ import annotations

import pytest

from tests.soak.centres import soak


@pytest.mark.slow
def test_ten_kills() -> None:
    report = soak(10, seed=3)
    assert report.problems == []
    assert report.kills.total() == 10
    assert report.tasks["succeeded"] > 5
