"""NVIDIA's devices as levers: NVIDIA's bindings against a fake NVML library, one process per case."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.devices.nvml_library import environment_with_library

pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed (the extra nvml)")

BEFORE = """
import json, sys
from dataclasses import astuple
from collectors.devices.nvml import open_nvml
from controller.balance.errors import LeverError
from controller.balance.levers.nvidia import GpuClocks, GpuInstances, GpuPower
said = []
def say(value): said.append(astuple(value))
with open_nvml() as nvml:
    try:
"""
AFTER = """
    except LeverError as error:
        said.append(str(error))
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return environment_with_library(tmp_path_factory.mktemp("nvml"))


def run_with(library: dict[str, str], code: str, **more: str) -> Any:
    """Run code in a process with this fake device; return its results."""
    lines = "".join(f"        {line.strip()}\n" for line in code.strip().splitlines())
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + lines + AFTER],
        env=library | more,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_a_clock_is_read_only_unless_settings_say_otherwise(library: dict[str, str], tmp_path: Path) -> None:
    code = """
    lever = GpuClocks(nvml, "0000:c1:00.0")
    say(lever.read())
    say(lever.move(-300))
    lever.release()
    """
    lock = tmp_path / "lock"
    standing, nothing = run_with(library, code, FAKE_NVML_LOCK=str(lock))
    why_not = "its settings lack set: true"
    assert standing == [1500, 345, 1500, 1, False, why_not, [345, 1000, 1200, 1400, 1500]]
    assert nothing == [0, -300, why_not, False]
    assert not lock.exists()


def test_gpu_clock_moves_among_supported_ones_and_is_reset(library: dict[str, str], tmp_path: Path) -> None:
    code = """
    lever = GpuClocks(nvml, "0000:c1:00.0", may_set=True)
    say(lever.move(-300))
    say(lever.move(-100))
    say(lever.move(+1000))
    lever.release()
    say(lever.read())
    """
    lock = tmp_path / "lock"
    down, between, up, after = run_with(library, code, FAKE_NVML_LOCK=str(lock))
    assert down == [-300, 0, "", False]
    assert between == [0, -100, "no step in between", True]
    assert up == [300, 700, "at its limit of 1500", False]
    assert after[0] == 1500
    assert lock.read_text().splitlines() == ["lock 345 1200", "lock 345 1500", "reset 0 0"]


def test_gpu_clock_that_needs_root_cannot_move(library: dict[str, str]) -> None:
    code = """
    lever = GpuClocks(nvml, "0000:c1:00.0", may_set=True)
    say(lever.move(-300))
    say(lever.read())
    """
    nothing, standing = run_with(library, code)
    assert nothing == [0, -300, "NVML: Insufficient Permissions: only root may set clocks", False]
    assert standing[4] is False


def test_instances_are_made_and_removed_but_not_those_in_use(library: dict[str, str]) -> None:
    code = """
    lever = GpuInstances(nvml, "0000:c2:00.0", 2, may_set=True)
    say(lever.read())
    say(lever.move(+5))
    say(lever.move(-1))
    lever.release()
    say(lever.read())
    say(lever.move(-1))
    """
    first, more, less, after, in_use = run_with(library, code)
    assert first[:3] == [1, 0, 3]
    assert more == [2, 3, "at its limit of 3", False]
    assert less == [-1, 0, "", False]
    assert after[0] == 1
    assert in_use == [0, -1, "NVML: the remaining instances are in use", False]


def test_power_cap_moves_within_its_range_and_is_restored(library: dict[str, str], tmp_path: Path) -> None:
    code = """
    lever = GpuPower(nvml, "0000:c1:00.0", may_set=True)
    say(lever.read())
    say(lever.move(-100))
    say(lever.move(-100))
    lever.release()
    say(lever.read())
    """
    lock = tmp_path / "lock"
    standing, down, low, after = run_with(library, code, FAKE_NVML_LOCK=str(lock))
    assert standing[:5] == [250, 100, 300, 1, True]
    assert down == [-100, 0, "", False]
    assert low == [-50, -50, "at its limit of 100", False]
    assert after[0] == 250
    assert lock.read_text().splitlines() == ["power 150000 0", "power 100000 0", "power 250000 0"]


def test_power_cap_that_needs_root_cannot_move(library: dict[str, str]) -> None:
    code = """
    lever = GpuPower(nvml, "0000:c1:00.0", may_set=True)
    say(lever.move(-100))
    say(lever.read())
    """
    nothing, standing = run_with(library, code)
    assert nothing == [0, -100, "NVML: Insufficient Permissions: only root may set limits of power", False]
    assert standing[4] is False


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ('GpuPower(nvml, "0000:c2:00.0")', "lever power cap of 0000:c2:00.0: NVML: Not Supported"),
        (
            'GpuPower(nvml, "0000:c1:00.0", low_w=400)',
            "lever power cap of 0000:c1:00.0: low_w is 400 W, above its highest cap of 300 W",
        ),
        ('GpuInstances(nvml, "0000:c1:00.0", 2)', "lever instances of 0000:c1:00.0: NVML: Not Supported"),
        ('GpuInstances(nvml, "0000:c2:00.0", 5)', "lever instances of 0000:c2:00.0: no instance profile has 5 slices"),
        ('GpuClocks(nvml, "0000:c2:00.0")', "lever clock of 0000:c2:00.0: NVML: Not Supported"),
        ('GpuClocks(nvml, "0000:ff:00.0")', "lever clock of 0000:ff:00.0: NVML: GPU is lost"),
    ],
)
def test_device_without_the_lever_reports_it_in_a_line(library: dict[str, str], code: str, problem: str) -> None:
    assert run_with(library, code) == [problem]
