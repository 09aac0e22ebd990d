"""NVML through its own bindings: where the driver is not there, and with a library of its interface made for this test.

The bindings load the library by its name once a process, so each case is a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.devices.machines import SERVER, SERVER_LINKS
from tests.collectors.devices.nvml_library import environment_with_library
from tests.recorded import write_tree

pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed (the extra nvml)")

CODE = """
import msgspec
from collectors.devices.nvml import open_nvml
with open_nvml() as nvml:
    if isinstance(nvml, str):
        print(msgspec.json.encode(nvml).decode())
    else:
        print(msgspec.json.encode([*nvml.devices(), nvml.samples(lambda: 7)]).decode())
"""


def output_of(environment: dict[str, str]) -> Any:
    """Return what a process says of NVML in an environment."""
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return output_of(environment_with_library(tmp_path_factory.mktemp("nvml")))


def test_devices_and_notes(answer: Any) -> None:
    (first, third), notes, _ = answer
    assert first == {
        "device": {
            "kind": "gpu",
            "count": 1,
            "model": "Fake A1",
            "memory_bytes": 16 << 30,
            "bus": {"kind": "pcie", "bytes_per_s": 31_507_692_307},
            "rates": [{"format": "fp32", "ops_per_s": 3_000_000_000_000}],
        },
        "address": "0000:c1:00.0",
        "driver": "nvidia",
        "numa_node": None,
        "uuid": "GPU-1",
        "part_of": "",
    }
    assert notes == ["NVML: device 1: GPU is lost"]
    assert third == {
        "device": {
            "kind": "gpu",
            "count": 1,
            "model": "Fake A1 MIG 2g.5gb",
            "memory_bytes": 5 << 30,
            "bus": {"kind": "pcie", "bytes_per_s": None},
            "rates": [],
        },
        "address": "0000:c2:00.0/7/0",
        "driver": "nvidia",
        "numa_node": None,
        "uuid": "MIG-30",
        "part_of": "0000:c2:00.0",
    }


def test_item_5_instances_of_a_divided_device_are_devices(tmp_path: Path) -> None:
    environment = environment_with_library(tmp_path)
    two, _, samples = output_of(environment | {"FAKE_NVML_INSTANCES": "2"})
    assert [device["uuid"] for device in two] == ["GPU-1", "MIG-30", "MIG-31"]
    part = samples[-1]
    assert (part["address"], part["memory_used_bytes"], part["memory_total_bytes"]) == (
        "0000:c2:00.0/8/0",
        1 << 30,
        5 << 30,
    )
    assert part["missing"]["utilisation"] == "NVML: not measured for an instance of a divided device"
    none, notes, _ = output_of(environment | {"FAKE_NVML_INSTANCES": "0"})
    assert [device["uuid"] for device in none] == ["GPU-1"]
    assert notes[1:] == ["NVML: device 2 is divided (MIG), but has no instance that a program could use"]


def test_samples(answer: Any) -> None:
    first, second, third, part = answer[2]
    assert first == {
        "time_ns": 7,
        "address": "0000:c1:00.0",
        "utilisation": 0.42,
        "memory_used_bytes": 4 << 30,
        "memory_total_bytes": 16 << 30,
        "clock_hz": 1_200_000_000,
        "power_w": 123.456,
        "temperature_c": 55.0,
        "pcie_rx_bytes_per_s": 2048 * 1024,
        "pcie_tx_bytes_per_s": 1024 * 1024,
        "pcie_link_bytes_per_s": 7_876_923_076,
        "network_rx_bytes": None,
        "network_tx_bytes": None,
        "processes": {},
        "missing": {},
    }
    assert (second["address"], second["missing"]["utilisation"]) == ("nvml 1", "NVML: GPU is lost")
    assert (third["utilisation"], third["clock_hz"]) == (None, 1_200_000_000)
    assert third["missing"]["memory_total_bytes"] == "NVML: Not Supported"
    assert third["missing"]["pcie_link_bytes_per_s"] == "NVML: Not Supported"
    assert part["address"] == "0000:c2:00.0/7/0"


def test_no_driver(tmp_path: Path) -> None:
    if Path("/proc/driver/nvidia").is_dir():
        pytest.skip("this machine has NVIDIA's driver")
    assert (
        output_of(os.environ | {"LD_LIBRARY_PATH": str(tmp_path)})
        == "NVML: libnvidia-ml.so.1, part of NVIDIA's driver, is not installed"
    )


GONE = """
import os
from pathlib import Path
from collectors.devices.nvml import open_nvml
from collectors.devices.root import Root
from collectors.devices.sampling import Sampler
from dataplane.clock import VirtualClock
with open_nvml() as nvml:
    sampler = Sampler(Root(Path("/no/such/root")), VirtualClock(), nvml)
    for count, lost in (("2", ""), ("1", ""), ("1", "1"), ("2", "")):
        os.environ |= {"FAKE_NVML_INSTANCES": count, "FAKE_NVML_LOST": lost}
        sampler.devices()
        print(dict(sampler.gone))
"""


def test_an_instance_that_disappears_is_gone_until_it_is_back(tmp_path: Path) -> None:
    """A driver that does not answer at all changes nothing."""
    environment = environment_with_library(tmp_path)
    done = subprocess.run([sys.executable, "-c", GONE], env=environment, capture_output=True, text=True, check=True)
    gone = "{'0000:c2:00.0/8/0': 'NVML does not list it any more'}"
    assert done.stdout.splitlines() == ["{}", gone, gone, "{}"]


LOST = """
import sys
from pathlib import Path
from collectors.devices.discovery import discover
from collectors.devices.nvml import open_nvml
from collectors.devices.root import Root
from collectors.devices.sampling import Sampler
from dataplane.clock import VirtualClock
with open_nvml() as nvml:
    root = Root(Path(sys.argv[1]))
    print(discover(root, nvml).notes[0])
    print(Sampler(root, VirtualClock(), nvml).devices()[0].missing["utilisation"])
"""


def test_a_driver_that_does_not_answer_is_a_note_and_a_reason(tmp_path: Path) -> None:
    environment = environment_with_library(tmp_path, lost=True)
    server = write_tree(tmp_path / "server", SERVER, SERVER_LINKS)
    command = [sys.executable, "-c", LOST, str(server)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["NVML: GPU is lost", "NVML: GPU is lost"]
