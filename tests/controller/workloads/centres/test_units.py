"""Resources of a machine, divided into units as the settings specify."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.apiserver.resources.hardware import DeviceNeed, Request
from controller.workloads.centres.errors import CentreError
from controller.workloads.centres.folder import CentreFolder
from controller.workloads.centres.selecting import ServedCentre, make_engine
from controller.workloads.centres.settings import UnitSettings
from controller.workloads.centres.units import Found, FoundDevice, divide
from dataplane.config import loads
from dataplane.errors import ConfigError
from dataplane.topology.values import DeviceKind

GPUS = tuple(FoundDevice(number, DeviceKind.GPU, "A", 80 << 30, f"GPU-{number}") for number in range(3))
MACHINE = Found(tuple(range(12)), 12_000, 100, GPUS)


def counts(machine: Found, *units: UnitSettings) -> dict[str, int]:
    return {each.name: len(each.units) for each in divide(machine, units).types}


def test_rest_of_units_of_five_cores_is_reported() -> None:
    made = divide(MACHINE, [UnitSettings(name="five", cores=5, memory_bytes=30)])
    (five,) = made.types
    assert [unit.cores for unit in five.units] == [(0, 1, 2, 3, 4), (5, 6, 7, 8, 9)]
    assert five.request == Request(cpu_milli=5000, memory_bytes=30)
    assert (made.spare_cores, made.spare_memory_bytes, made.spare_devices) == ((10, 11), 40, (0, 1, 2))
    assert made.notes == ("in no unit: 2 cores (10, 11), 0.0 GiB of memory, 3 devices (0, 1, 2)",)


def test_types_divide_the_machine_without_sharing_cores() -> None:
    types = (
        UnitSettings(name="gpu", cores=2, devices=1),
        UnitSettings(name="pinned", core_numbers=("3,4", "7,8")),
        UnitSettings(name="core", count=4),
    )
    made = divide(MACHINE, types)
    assert {each.name: [unit.cores for unit in each.units] for each in made.types} == {
        "gpu": [(0, 1), (2, 5), (6, 9)],
        "pinned": [(3, 4), (7, 8)],
        "core": [(10,), (11,)],
    }
    cores = [core for each in made.types for unit in each.units for core in unit.cores]
    assert len(cores) == len(set(cores))
    gpu = made.of("gpu")
    assert gpu is not None
    assert [unit.devices for unit in gpu.units] == [(0,), (1,), (2,)]
    assert gpu.request.devices == (DeviceNeed(kind=DeviceKind.GPU, count=1),)
    assert made.problems == ("unit type core: unit 3 of 4 is missing: needs 1 cores, 0 left",)


def test_devices_by_number_are_of_their_kind() -> None:
    made = divide(MACHINE, [UnitSettings(name="pair", cores=1, device_numbers=((0, 2),))])
    assert made.types[0].units[0].devices == (0, 2)
    assert made.types[0].request.devices == (DeviceNeed(kind=DeviceKind.GPU, count=2),)
    assert made.spare_devices == (1,)


def test_item_5_instances_and_time_slices_are_units() -> None:
    whole, part = FoundDevice(0, DeviceKind.GPU, "A", 80 << 30, "GPU-0"), "A MIG 1g.10gb"
    instances = [FoundDevice(number, DeviceKind.GPU, part, 10 << 30, f"MIG-{number}") for number in (1, 2)]
    machine = Found(tuple(range(12)), 12_000, 100, (whole, *instances))
    types = (
        UnitSettings(name="instance", devices=1, device_models=(part,)),
        UnitSettings(name="slice", devices=1, device_models=("A",), device_thousandths=300),
    )
    made = divide(machine, types)
    assert {each.name: [unit.devices for unit in each.units] for each in made.types} == {
        "instance": [(1,), (2,)],
        "slice": [(0,), (0,), (0,)],
    }
    assert [each.unit_type().unit.devices for each in made.types] == [
        (DeviceNeed(kind=DeviceKind.GPU, models=(part,)),),
        (DeviceNeed(kind=DeviceKind.GPU, thousandths=300, models=("A",)),),
    ]
    assert made.notes == ("in no unit: 7 cores (5, 6, 7, 8, 9, 10, 11), 0.0 GiB of memory",)
    three = divide(
        machine, [UnitSettings(name="slice", count=4, devices=1, device_models=("A",), device_thousandths=300)]
    )
    assert three.problems == ("unit type slice: unit 4 of 4 is missing: needs 300 thousandths of a device (A), 0 left",)


def test_parts_of_devices_fill_one_before_the_next() -> None:
    types = (UnitSettings(name="half", count=2, devices=1, device_thousandths=500), UnitSettings(name="gpu", devices=1))
    made = divide(MACHINE, types)
    assert [[unit.devices for unit in each.units] for each in made.types] == [[(0,), (0,)], [(1,), (2,)]]


def test_a_part_of_several_devices_or_by_number_is_refused() -> None:
    for more in ("devices: 2", "devices: 1, device_numbers: [[0]]", "devices: 0"):
        with pytest.raises(ConfigError, match="device_thousandths: a unit with part of a device has `devices: 1`, not"):
            loads(f"{{name: u, {more}, device_thousandths: 500}}", UnitSettings)


@pytest.mark.parametrize(
    ("machine", "unit", "problem"),
    [
        (Found((0,), 1000), UnitSettings(name="u", cores=2), "no unit: needs 2 cores, 1 left"),
        (Found((0,), 500), UnitSettings(name="u"), "no unit: needs 1000 thousandths of a core, 500 left"),
        (Found((0,), 1000, 5), UnitSettings(name="u", memory_bytes=6), "no unit: needs 6 bytes of memory, 5 left"),
        (Found((0,), 1000), UnitSettings(name="u", devices=1), r"no unit: needs 1 devices \(gpu\), 0 left"),
        (
            Found((0,), 1000),
            UnitSettings(name="u", core_numbers=("1",)),
            "unit 1 of 1 is missing: core 1 does not exist",
        ),
        (
            Found((0,), 1000),
            UnitSettings(name="u", device_numbers=((0,),)),
            "unit 1 of 1 is missing: device 0 does not exist",
        ),
    ],
)
def test_missing_units_are_reported(machine: Found, unit: UnitSettings, problem: str) -> None:
    made = divide(machine, [unit])
    assert made.types[0].units == ()
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(made.problems)


def test_a_quota_bounds_the_units() -> None:
    half = UnitSettings(name="half", cpu_milli=500)
    assert counts(Found((0, 1), 2000), half) == {"half": 2}
    assert counts(Found((0, 1), 700), half) == {"half": 1}
    assert divide(Found((0, 1), 700), [half]).types[0].request.cpu_milli == 500


def test_of_unknown_memory_none_is_set_apart() -> None:
    assert counts(Found((0,), 1000, None), UnitSettings(name="u", memory_bytes=5)) == {"u": 1}


@pytest.mark.parametrize(
    ("types", "problem"),
    [
        (
            (UnitSettings(name="a", core_numbers=("0-2",)), UnitSettings(name="b", core_numbers=("2-4",))),
            "core 2 belongs to both a and b",
        ),
        ((UnitSettings(name="a", core_numbers=("0", "0")),), "core 0 belongs to both a and a"),
        ((UnitSettings(name="a", device_numbers=((1,), (1,))),), "device 1 belongs to both a and a"),
        ((UnitSettings(name="a", core_numbers=("0", "1-2")),), "a: lists of cores differ in length"),
    ],
)
def test_a_core_or_device_of_two_units_is_refused(types: tuple[UnitSettings, ...], problem: str) -> None:
    with pytest.raises(CentreError, match=f"units: {problem}"):
        divide(MACHINE, types)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("units: [{name: a, core: 3}]", "c.yaml:3: units.*did you mean `cores`"),
        ("units: [{name: a, cores: 0}]", r"c.yaml:3: units\[0\].cores"),
        ("units: [{name: a, core_numbers: ['3-1']}]", "a list of cores is empty"),
        ("units: [{name: a, core_numbers: ['x']}]", r"c.yaml:3: units\[0\].core_numbers\[0\]"),
        ("units: [{name: a}, {name: a}]", "units: a appears twice"),
        ("units: []", "at least one type is needed"),
        ("centres: x", "c.yaml:3: .*centres"),
        ("report_s: 0", "c.yaml:3: report_s"),
        ("slurm: {}\nray: {}", "a centre has one engine: slurm, ray or containers, or none of them"),
        ("local: {unsafe_same_user: true, user: nobody}", "unsafe_same_user: jobs run as the agent's user"),
        ("local: {user: nobody, uids: [70000, 9]}", "user: all jobs run as it"),
        ("local: {warm: [torch]}", "warm: needs unsafe_same_user"),
        ("local: {uids: [1, 9]}", "uids"),
    ],
)
def test_settings_that_are_wrong_name_file_line_and_key(line: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        loads(f"centre: c\nstate: s\n{line}\n", ServedCentre, file="c.yaml")


@pytest.mark.parametrize(("section", "engine"), [("", "local"), ("slurm: {}", "slurm"), ("ray: {}", "ray")])
def test_engine_is_that_of_the_present_section(tmp_path: Path, section: str, engine: str) -> None:
    settings = loads(f"centre: c\nstate: s\n{section}\n", ServedCentre, file="c.yaml")
    made = make_engine(settings, CentreFolder(tmp_path, "c"), tmp_path / "jobs", "1234", "no NVML")
    assert made.name == engine
