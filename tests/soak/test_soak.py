"""The soak, twenty seconds of it; `python tests/soak/switch.py --minutes 10` is the whole."""

from __future__ import annotations

import os

import pytest

from tests.soak.switch import soak


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_twenty_seconds() -> None:
    report = soak(20.0, seed=2, options=("--threads", "2"))
    assert report.problems == []
    assert report.sent > 10_000
    assert report.came_out > 1_000
    assert report.writes > 100
    assert report.commits >= 2
    assert {"ingress_drop", "egress_drop", "no_such_port"} <= set(report.drops)
    assert report.copies > 1_000
