"""`millrace balance levers` and `drive` as commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from collectors.devices.root import Root
from controller.apps.cli.app import app
from controller.apps.cli.balance.driving import _lever_rows
from controller.balance.running.finding import Host
from dataplane.clock import VirtualClock
from dataplane.errors import ConfigError
from tests.collectors.devices.nvml_library import environment_with_library
from tests.controller.balance.levers.test_clocks import EQUAL
from tests.controller.balance.levers.test_gpu_clocks import ADDRESS, AMD, PCI
from tests.recorded import write_tree


def test_levers_of_a_machine_and_reasons_for_missing_ones(tmp_path: Path) -> None:
    rows = list(_lever_rows(Host(Root(write_tree(tmp_path, EQUAL)), VirtualClock(), "NVML: not here")))
    nvidia = "clocks, power and instances of NVIDIA GPUs"
    names = ["cpu quota of /", "cpu clock of all CPUs", "power cap of intel-rapl:0", nvidia]
    assert [row[0] for row in rows] == names
    assert rows[0][5] == "unavailable: no such control group with a CPU quota"
    assert rows[1][1:5] == ("frequency", 3200, 800, 3200)
    assert rows[2][5] == "unavailable: no powercap on this machine: its kernel or hypervisor hides it"
    assert rows[3][5] == "unavailable: NVML: not here"


def test_clock_and_power_of_other_makers_devices_are_shown(tmp_path: Path) -> None:
    ids = {
        f"{PCI}/{name}": f"{text}\n" for name, text in (("class", "0x038000"), ("vendor", "0x1002"), ("device", "1"))
    }
    root = Root(write_tree(tmp_path, AMD | ids, {f"{PCI}/driver": "../../../bus/pci/drivers/amdgpu"}))
    rows = {row[0]: row[1:5] for row in _lever_rows(Host(root, VirtualClock(), "NVML: not here"))}
    assert rows[f"clock of {ADDRESS}"] == ("frequency", 1700, 500, 1700)
    assert rows[f"power cap of {ADDRESS}"] == ("power", 250, 100, 300)


def test_this_machine_has_a_note_for_each_lever() -> None:
    done = CliRunner().invoke(app, ["balance", "levers", "--format", "json"])
    assert done.exit_code == 0, done.output
    table: list[dict[str, Any]] = json.loads(done.output)
    assert len(table) >= 3
    assert all(row["note"] for row in table)


def test_clocks_and_instances_of_nvidias_devices_are_shown(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "controller.apps.cli", "balance", "levers", "--format", "json"],
        env=environment_with_library(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    rows = {row["lever"]: row for row in json.loads(done.stdout)}
    assert rows["clock of 0000:c1:00.0"]["note"] == "one of 5 clocks; settable where settings have set: true"
    assert rows["power cap of 0000:c1:00.0"]["note"] == "settable where settings have set: true"
    assert rows["instances of 0000:c1:00.0"]["note"] == "unavailable: NVML: Not Supported"
    assert rows["instances of 0000:c2:00.0"]["note"].startswith("unavailable: NVML: ")


def test_settings_that_cannot_be_are_a_line(tmp_path: Path) -> None:
    settings = tmp_path / "unit.yaml"
    settings.write_text("unit: u0\n")
    done = CliRunner().invoke(app, ["balance", "drive", "--settings", str(settings)])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception) == f"{settings}:1: missing required field `bus`"
