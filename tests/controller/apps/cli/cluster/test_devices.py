"""`millrace devices` on recorded machines and on this one."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner

from collectors.devices.discovery import discover
from collectors.devices.root import Root
from controller.apps.cli.app import app
from controller.cluster.hardware import node_of, node_of_machine
from dataplane.errors import ConfigError
from dataplane.topology.file import loads
from tests.collectors.devices.machines import SERVER, SERVER_LINKS
from tests.collectors.devices.nvml_library import environment_with_library
from tests.recorded import write_tree


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return write_tree(tmp_path, SERVER, SERVER_LINKS)


def run(*words: str) -> str:
    done = CliRunner().invoke(app, ["devices", *words])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_table_for_people(server: Path) -> None:
    text = run("--root", str(server))
    assert "AMD EPYC 7543" in text
    assert "This process may use 8 CPUs and unlimited memory." in text
    assert "Note: NVML: not queried for a recorded machine" in text


def test_yaml_in_a_topology_file_gives_the_same_node(server: Path) -> None:
    fragment = textwrap.indent(run("--root", str(server), "-o", "yaml"), "  ")
    host = loads(f"millrace: 1\nname: x\nswitches: [{{name: s}}]\nhosts:\n- name: h\n  switch: s\n{fragment}").hosts[0]
    node = node_of_machine("h", discover(Root(server), ""))
    written = node_of(host)
    assert (written.cpu_milli, written.memory, written.processors) == (node.cpu_milli, node.memory, node.processors)
    assert written.cpu_milli == 8000
    assert [device.kind for device in written.devices] == [device.kind for device in node.devices]


def test_json_for_programs(server: Path) -> None:
    machine = json.loads(run("--root", str(server), "-o", "json"))
    assert machine["processors"]["sockets"] == 2
    assert len(machine["devices"]) == 6


def test_watching(server: Path) -> None:
    lines = run("--root", str(server), "--watch", "--samples", "1", "--interval", "0").splitlines()
    assert "memory 0.2 GiB, waiting for cpu 12%, waiting for io 1%" in lines[0]
    assert lines[2] == "  0000:81:00.0 busy 37%, memory 0.0 GiB, at 1.70 GHz, power 41 W"
    sample = json.loads(run("--watch", "--samples", "1", "--interval", "0", "-o", "json"))
    assert sample["host"]["memory_total_bytes"] > 0


BOTH = """
from typer.testing import CliRunner
from controller.apps.cli.app import app
for words in (["-o", "yaml"], ["--watch", "--samples", "1", "--interval", "0"]):
    print(CliRunner().invoke(app, ["devices", *words], catch_exceptions=False).output)
"""


def test_devices_of_nvml(tmp_path: Path) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed (the extra nvml)")
    # NVIDIA's bindings load the library by name: only a separate process finds the test's.
    command, environment = [sys.executable, "-c", BOTH], environment_with_library(tmp_path)
    text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert "# NVML: device 1: GPU is lost" in text
    assert (
        "- {kind: gpu, count: 1, model: Fake A1, memory: 16 GiB, bus: {kind: pcie, rate: 31.507692307 GB/s}, "
        "rates: {fp32: 3 Top/s}}"
    ) in text
    assert "  0000:c1:00.0 busy 42%, memory 4.0 GiB, at 1.20 GHz, power 123 W, PCIe in 0.00 GB/s" in text
    assert "  nvml 1 NVML: GPU is lost" in text


def test_a_folder_that_is_no_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none: is not a machine's root"):
        CliRunner().invoke(app, ["devices", "--root", str(tmp_path / "none")], catch_exceptions=False)
