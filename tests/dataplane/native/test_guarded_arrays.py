"""Kernels stay within their arrays: their own tests, with every array between forbidden pages.

In processes of their own, once with a page behind each array and once before it. MILLRACE_EXAMPLES, as `make deep` sets
it, runs all of `MODULES`; otherwise those that are quick.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
QUICK = (
    "tests/controller/network/algorithms",
    "tests/controller/scheduling/simulation/test_sharing.py",
    "tests/controller/learning/environment/test_pool.py",
)
MODULES = (
    *QUICK,
    "tests/collectors/ingest",
    "tests/collectors/native",
    "tests/controller/cluster/cost_map/test_cost_map.py",
    "tests/controller/scheduling/containers/test_packing.py",
    "tests/controller/learning/agent/test_halved.py",
    "tests/controller/learning/agent/test_inference.py",
    "tests/controller/learning/environment/test_twins.py",
    "tests/dataplane/allreduce/test_corruption.py",
    "tests/dataplane/allreduce/test_engine.py",
    "tests/dataplane/allreduce/test_format_kernels.py",
    "tests/dataplane/allreduce/test_loss_recovery.py",
    "tests/dataplane/allreduce/test_replay.py",
    "tests/dataplane/allreduce/test_rings.py",
    "tests/dataplane/nic/flows",
    "tests/dataplane/switch/tables",
)
RAISING = "not refused and not rows_names"
"""Left out: NumPy frees an array there while an error propagates, when Python functions cannot be called."""
CHOSEN = MODULES if "MILLRACE_EXAMPLES" in os.environ else QUICK
LIMIT_S = 1500
BEYOND = """
import ctypes
import numpy as np
from dataplane.native import Array, kernel, kernel_library, u64
from tests.dataplane.native.guarded_arrays import Guards

@kernel
def element(values: Array[u64], at: u64) -> u64:
    return values[at]

def test_one() -> None:
    values = np.ones(513, np.uint64)
    read = kernel_library(element).bind(element)
    assert read(values.ctypes.data, 512) == 1
    assert read(values.ctypes.data, 513 if {at_end} else (1 << 64) - 1) != 1
"""


def run(side: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.dataplane.native.guarded_arrays", side, "-q", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)


@pytest.mark.parametrize("side", ["end", "begin"])
def test_kernels_keep_to_their_arrays(side: str) -> None:
    done = run(side, "-m", "not root and not gpu", "-k", RAISING, *CHOSEN)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    assert int(done.stdout.split()[-1]) > 10_000


@pytest.mark.parametrize("side", ["end", "begin"])
def test_one_element_too_far_ends_the_process(tmp_path: Path, side: str) -> None:
    test = tmp_path / "test_beyond.py"
    test.write_text(BEYOND.replace("{at_end}", str(side == "end")), encoding="utf-8")
    done = run(side, f"--rootdir={ROOT}", str(test))
    assert done.returncode == -signal.SIGSEGV, (done.stdout + done.stderr)[-3000:]
