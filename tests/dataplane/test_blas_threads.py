"""Loaded linear algebra libraries use the configured number of threads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.waiting import HANG_S

PROGRAM = """
import ctypes, re
from pathlib import Path
import numpy, scipy.linalg
from dataplane.blas_threads import tell_loaded
tell_loaded(1)
names = set(re.findall(r"/\\S*openblas\\S*\\.so\\S*", Path("/proc/self/maps").read_text()))
for name in sorted(names):
    library = ctypes.CDLL(name)
    for call in ("scipy_openblas_get_num_threads64_", "scipy_openblas_get_num_threads"):
        if hasattr(library, call):
            print(getattr(library, call)())
"""


def test_numpy_and_scipy_are_told() -> None:
    """Each has its own library; scipy's has a Fortran call in addition to the C one."""
    pytest.importorskip("scipy")
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert completed.returncode == 0, completed.stderr
    if not completed.stdout:
        pytest.skip("numpy and scipy here compute without OpenBLAS")
    assert set(completed.stdout.split()) == {"1"}
