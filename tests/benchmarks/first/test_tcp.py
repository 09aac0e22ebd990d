"""The part of the benchmark that measures TCP, at its shortest, and what its figures are made of."""

from __future__ import annotations

import shutil

import pytest

from tests.benchmarks.first.tcp import BRIDGE, DEFAULT, JOINED, NAMES, measure, summary
from tests.benchmarks.traffic.targets import BMV2


def test_figures_are_medians_of_the_rounds_ratios() -> None:
    found = {BRIDGE: [1.0, 2.0, 4.0], DEFAULT: [2.0, 1.0, 2.0], JOINED: [1.0, 4.0, 4.0], BMV2: [0.5, 0.5, 0.5]}
    assert summary(found) == {
        "iperf_ratio_bmv2": 8.0,
        "iperf_share_bridge": 1.0,
        "iperf_ratio_bmv2_default": 4.0,
        "iperf_share_bridge_default": 0.5,
    }
    del found[BMV2]
    assert summary(found)["iperf_ratio_bmv2"] is None


@pytest.mark.root
@pytest.mark.skipif(shutil.which("iperf3") is None, reason="needs iperf3")
def test_iperf_runs_through_a_bridge_and_through_ours() -> None:
    found = measure(quick=True)
    assert tuple(found) == NAMES
    assert (found["iperf_share_bridge"] or 0) > 0
    assert (found["iperf_share_bridge_default"] or 0) > 0
