"""Libraries of linear algebra that are loaded take the number of threads that they are told."""

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
    """Each has a library of its own; scipy's has a call of Fortran's beside that of C."""
    pytest.importorskip("scipy")
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert completed.returncode == 0, completed.stderr
    if not completed.stdout:
        pytest.skip("numpy and scipy here compute without OpenBLAS")
    assert set(completed.stdout.split()) == {"1"}
