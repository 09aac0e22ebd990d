"""`millrace up`: everything starts, is killed, comes back green, and loses nothing. tests/soak/up.py does it longer."""

from __future__ import annotations

import pytest

from tests.soak.up import soak


@pytest.mark.slow
def test_what_is_killed_is_green_again() -> None:
    report = soak("leaf-spine", "virtual", kills=1, seed=3, limit_s=60.0, pause_s=(0.0, 0.5))
    assert report.problems == []
    assert set(report.kills) == {"fabric", "collector", "paths", "controller"}
