"""Each part of the benchmark of the first hour is where it says, and has the figures that it names."""

from __future__ import annotations

import importlib.util

import pytest

from tests.benchmarks.first import tcp, tutorials
from tests.benchmarks.first.tcp import APART, BRIDGE, DEFAULT, JOINED, summary
from tests.benchmarks.first_hour import PARTS
from tests.benchmarks.parts import names_of
from tests.benchmarks.traffic.targets import BMV2


def test_every_part_is_here_and_every_figure_is_named_once() -> None:
    assert all(importlib.util.find_spec(f"tests.benchmarks.{part.module}") for part in PARTS.values())
    assert sorted(names_of(PARTS)) == sorted({*names_of(PARTS)})
    assert PARTS["tcp"].names == tcp.NAMES


def test_without_what_they_need_the_tutorials_are_null(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MILLRACE_TUTORIALS", raising=False)
    assert tutorials.measure(quick=True) == dict.fromkeys(PARTS["tutorials"].names)
    assert "tutorials: needs " in capsys.readouterr().err


def test_figures_are_medians_of_the_rounds_ratios() -> None:
    by_length = {
        BRIDGE: [1.0, 2.0, 4.0],
        DEFAULT: [2.0, 1.0, 2.0],
        JOINED: [1.0, 4.0, 4.0],
        APART: [1.0, 1.0, 1.0],
        BMV2: [0.5, 0.5, 0.5],
    }
    assert summary(by_length) == {
        "iperf_ratio_bmv2": 4.0,
        "iperf_share_bridge": 0.5,
        "iperf_ratio_bmv2_on": 8.0,
        "iperf_share_bridge_on": 1.0,
        "iperf_ratio_bmv2_off": 2.0,
        "iperf_share_bridge_off": 0.5,
    }
    del by_length[BMV2], by_length[APART]
    assert summary(by_length)["iperf_ratio_bmv2"] is None
    assert summary(by_length)["iperf_share_bridge_off"] is None
