"""The large chain's benchmark, small: it runs, and its last line has the figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.chaining.test_scaling import KEYS

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "scale.py"
ENGINEERING = SCRIPT.with_name("engineering.py")


@pytest.mark.slow
def test_scale_benchmark_prints_its_figures() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--quick"], stdout=subprocess.PIPE, text=True, check=True)
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures.keys() == KEYS
    assert figures["shard_merge_error"] == 0
    assert figures["feed_mbytes_per_s"] > 0
    assert figures["cores"] > 0
    assert figures["report_to_route_p50_ms"] is not None, "half of the congestions are answered"


@pytest.mark.slow
def test_engineering_benchmark_prints_its_figures() -> None:
    command = [sys.executable, str(ENGINEERING), "--scale", "--quick"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures.keys() == {"te_1000_s", "te_gap"}
    assert 0 <= figures["te_gap"] < 0.05
