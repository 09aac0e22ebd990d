"""The part of the benchmark that measures TCP, at its shortest."""

from __future__ import annotations

import shutil

import pytest

from tests.benchmarks.first.tcp import NAMES, measure


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("iperf3") is None, reason="needs iperf3")
def test_iperf_runs_through_a_bridge_and_through_ours() -> None:
    figures = measure(quick=True)
    assert tuple(figures) == NAMES
    assert (figures["iperf_share_bridge"] or 0) > 0
    assert (figures["iperf_share_bridge_on"] or 0) > 0
