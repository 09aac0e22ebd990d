"""A library with NVML's interface, compiled for tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def environment_with_library(folder: Path, *, lost: bool = False) -> dict[str, str]:
    """Compile the library into a folder; return the environment in which processes find it, or skip without compiler.

    `lost`: the driver does not answer any more.
    """
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("no C compiler to make the library with")
    source, library = Path(__file__).with_name("fake_nvml.c"), folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, source], check=True)
    return os.environ | {"LD_LIBRARY_PATH": str(folder), "FAKE_NVML_LOST": "1" if lost else ""}
