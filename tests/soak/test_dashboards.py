"""No query of the Grafana dashboards finds nothing on a running system."""

from __future__ import annotations

import shutil

import pytest

from tests.soak.dashboards import missing_queries

PROMETHEUS = shutil.which("prometheus")


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.timeout(1800)
@pytest.mark.skipif(PROMETHEUS is None, reason="needs Prometheus: apt install prometheus")
def test_every_query_finds_something() -> None:
    assert PROMETHEUS is not None
    missing, _ = missing_queries(PROMETHEUS, 300.0)
    assert missing == []
