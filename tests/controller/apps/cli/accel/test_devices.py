"""Devices that `millrace accel explain` plans for: the machine's, the topology's, the hardware file's, assumed ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.apps.cli import main
from controller.apps.cli.accel import devices
from tests.collectors.devices.machines import SERVER, SERVER_LINKS

QUERY = ("select l.price from lines l where l.day > 9", "--table", "lines=100000000:10 GB", "--t", "filter=0.5")
BY_RATE = ("--rate", "100 Gbit/s", "--machines", "4")
WITHOUT = {path: text for path, text in SERVER.items() if "/bus/pci/" not in path}
TOPOLOGY = """\
millrace: 1
name: lab
switches: [{name: s1}]
hosts:
- {name: h1, switch: s1, cores: 8, devices: [{kind: gpu, memory: 40 GiB, bus: {kind: pcie, rate: 25 GB/s}}]}
- {name: h2, switch: s1, cores: 8, devices: [{kind: gpu, memory: 16 GiB, bus: {kind: pcie, rate: 5 GB/s}}, {kind: npu}]}
- {name: h3, switch: s1, cores: 8}
"""


def machine(folder: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name, target in SERVER_LINKS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(target)
    return str(folder)


def explain(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[bool, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["millrace", "accel", "explain", *QUERY, *arguments])
        patch.setenv("COLUMNS", "220")
        with pytest.raises(SystemExit) as end:
            main()
    printed = capsys.readouterr()
    return not end.value.code, printed.out, printed.err


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    done, out, err = explain(capsys, *arguments, "--json")
    assert done, err
    answer: dict[str, Any] = json.loads(out)
    return answer


def test_machine_without_accelerator_is_planned_for_its_cpu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    root = machine(tmp_path, WITHOUT)
    plan = document(capsys, *BY_RATE, "--root", root)
    assert plan["choices"] == ["cpu"]
    assert {operator["device"] for operator in plan["operators"]} == {"cpu"}
    (note,) = plan["notes"]
    assert note.startswith(f"no accelerator: the machine in {root} has none, so this plan is for the CPU; --assume gpu")
    assert note in explain(capsys, *BY_RATE, "--root", root)[1]


def test_machine_with_a_gpu_is_planned_for_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = document(capsys, *BY_RATE, "--root", machine(tmp_path, SERVER))
    assert plan["choices"] == ["cpu", "gpu", "gpu-packed"]
    assert plan["operators"][0]["device"] == "gpu"
    note = next(note for note in plan["notes"] if note.startswith("gpu"))
    assert "A100" in note
    assert "figures from the calibration" in note
    assert any(note.startswith("dpu: ") and "no figures" in note for note in plan["notes"])


def test_this_machine_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    from collectors.devices.discovery import discover  # noqa: PLC0415
    from collectors.devices.nvml import open_nvml  # noqa: PLC0415
    from collectors.devices.root import Root  # noqa: PLC0415
    from dataplane.topology.values import DeviceKind  # noqa: PLC0415

    with open_nvml() as nvml:
        has_gpu = any(found.device.kind is DeviceKind.GPU for found in discover(Root(), nvml).devices)
    assert ("gpu" in document(capsys, *BY_RATE)["choices"]) is has_gpu


def test_machine_without_proc_is_planned_for_its_cpu(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on systems other than Linux."""
    monkeypatch.setattr(devices, "_HERE", tmp_path)
    plan = document(capsys, *BY_RATE)
    assert plan["choices"] == ["cpu"]
    assert plan["notes"][-1].startswith("no accelerator: this machine's devices are unknown, as it has no /proc, so")


def test_assumed_accelerator_needs_no_machine(capsys: pytest.CaptureFixture[str]) -> None:
    plan = document(capsys, *BY_RATE, "--assume", "gpu")
    assert plan["choices"] == ["cpu", "gpu", "gpu-packed"]
    assert plan["operators"][0]["device"] == "gpu"
    assert plan["notes"][0].startswith("gpu, gpu-packed: assumed, figures from the calibration (")


def test_topology_gives_the_slowest_bus_of_all_machines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(TOPOLOGY)
    (tmp_path / "two.yaml").write_text(TOPOLOGY.replace("- {name: h3, switch: s1, cores: 8}\n", ""))
    plan = document(capsys, "--topology", str(tmp_path / "two.yaml"))
    assert plan["choices"] == ["cpu", "gpu", "gpu-packed"]
    (scan,) = plan["operators"]
    slow = document(capsys, "--topology", str(tmp_path / "two.yaml"), "--assume", "gpu")["operators"][0]
    assert scan["times"]["gpu"]["bus_s"] == pytest.approx(slow["times"]["gpu"]["bus_s"] * 12.8 / 5)
    assert "npu: not a choice, machine h1 has none" in plan["notes"]
    plan = document(capsys, "--topology", str(tmp_path / "lab.yaml"))
    assert plan["choices"] == ["cpu"]
    assert "gpu: not a choice, machine h3 has none" in plan["notes"]
    assert plan["notes"][-1].startswith("no accelerator: the machines of the topology have none in common")
    assert not any("no hardware file gives" in note for note in plan["notes"])


def test_hardware_file_without_accelerators_is_for_the_cpu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hardware = tmp_path / "hardware.yaml"
    hardware.write_text("millrace: 1\nmachines: 4\n")
    plan = document(capsys, "--rate", "1 Gbit/s", "--hardware", str(hardware))
    assert plan["choices"] == ["cpu"]
    assert plan["notes"][-1].startswith(f"no accelerator: {hardware} lists none")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--assume", "cpu"), "--assume cpu: expected one of gpu, "),
        (("--assume", "abacus"), "--assume abacus: expected one of gpu, "),
        (("--assume", "npu"), "npu: the calibration has no figures of its bus and parallelism; of: gpu"),
        (("--assume", "gpu", "--root", "/"), "--assume and --root exclude each other"),
        (("--root", "/proc"), "/proc: is not a machine's root: it has no folder proc"),
    ],
)
def test_devices_that_cannot_be_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], problem: str
) -> None:
    done, out, err = explain(capsys, *BY_RATE, *arguments)
    assert not done
    assert not out
    assert problem in err
    assert "Traceback" not in err
