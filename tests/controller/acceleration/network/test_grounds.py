"""Topology, hardware file, feed or rate to what decisions are made on; what is wrong with them in one line."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from collectors.errors import FeedError
from collectors.values import Snapshot
from controller.acceleration.errors import AccelerationError
from controller.acceleration.model import Works, times
from controller.acceleration.network.grounds import ground_by_rate, ground_over
from controller.acceleration.network.hardware import Hardware, load_hardware
from controller.acceleration.network.loading import load_ground
from controller.acceleration.network.switches import SwitchTree
from controller.acceleration.network.trees import Aggregators
from controller.acceleration.values import TIE_BAND, Accelerator, Compression, Growth, TransferModel, Work
from controller.apps.cli.accel.ground import ground_of
from controller.cluster.cost_map import CostMap
from dataplane.errors import ConfigError
from dataplane.topology.families import from_text
from dataplane.topology.file import loads
from dataplane.topology.values import DeviceKind

LAB = """\
millrace: 1
name: lab
collector: {host: c1}
switches: [{name: s1}]
hosts:
- {name: h1, switch: s1, cores: 8, devices: [{kind: gpu, memory: 40 GiB, bus: {kind: pcie, rate: 25 GB/s}}]}
- {name: h2, switch: s1, cores: 8, devices: [{kind: gpu, memory: 16 GiB, bus: {kind: pcie, rate: 12 GB/s}}]}
- {name: h3, switch: s1, cores: 8}
- {name: c1, switch: s1}
"""
FILE = """\
millrace: 1
machines: [h1, h2]
fan_in: 4
aggregators: member
transfer: sum
finite_sum: true
network_efficiency: 0.9
preset: 1.5
switch: {cells: 1024, efficiency: 0.5}
accelerators:
- {kind: gpu, parallelism: 64, compression: {ratio: 0.3, rate: 0.1 GB/s}}
- {kind: gpu, name: slow, parallelism: 8, bus: 1 GB/s, memory: 1 GiB, runs: [sort], speed_up: {sort: 3}}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "hardware.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def quiet(text: str) -> CostMap:
    return CostMap.of(loads(text), Snapshot(0, {}, {}, {}))


def test_a_hardware_file_says_what_there_is(tmp_path: Path) -> None:
    found = load_hardware(write(tmp_path, FILE))
    assert (found.machines, found.fan_in, found.aggregators) == (("h1", "h2"), 4, Aggregators.MEMBER)
    assert (found.transfer, found.has_finite_sum, found.preset) == (TransferModel.SUM, True, 1.5)
    assert (found.tie_band, load_hardware(write(tmp_path, f"{FILE}tie_band: 0.1\n")).tie_band) == (TIE_BAND, 0.1)
    fast, slow = found.accelerators
    assert fast == Accelerator(DeviceKind.GPU, 64, compression=Compression(0.3, 0.1))
    assert (slow.label, slow.faster_by("sort"), slow.bus_gb_per_s, slow.memory_gb) == ("slow", 3, 1, (1 << 30) / 1e9)
    assert slow.runs == frozenset({"sort"})


def test_missing_buses_and_memory_default_to_the_topology_least(tmp_path: Path) -> None:
    ground = ground_over(load_hardware(write(tmp_path, FILE)), quiet(LAB))
    assert ground.tie_band == ground_by_rate(Hardware(machines=2), 1e9).tie_band == TIE_BAND
    fast, slow = ground.accelerators
    assert (fast.bus_gb_per_s, fast.memory_gb) == (12, (16 << 30) / 1e9)
    assert (slow.bus_gb_per_s, slow.memory_gb) == (1, (1 << 30) / 1e9)
    assert ground.machines.network.rate_gbit_per_s == pytest.approx(9)
    assert isinstance(ground.switch, SwitchTree)
    assert ground.switch.s_per_gb == pytest.approx(1.6)


def test_an_accelerator_that_not_every_machine_has_is_no_choice(tmp_path: Path) -> None:
    text = FILE.replace("[h1, h2]", "[h1, h2, h3]")
    ground = ground_over(load_hardware(write(tmp_path, text)), quiet(LAB))
    assert ground.accelerators == ()
    assert ground.notes[:2] == ("gpu: not a choice, machine h3 has none", "slow: not a choice, machine h3 has none")


def test_device_of_unknown_parallelism_is_noted_and_no_choice() -> None:
    ground = ground_over(Hardware(machines=("h1", "h2")), quiet(LAB))
    assert ground.accelerators == ()
    assert "gpu: in the topology, but no hardware file gives their parallelism" in ground.notes


def test_machines_default_to_hosts_without_the_collector() -> None:
    assert ground_over(Hardware(), quiet(LAB)).hosts == ("h1", "h2", "h3")
    assert ground_over(Hardware(machines=2), quiet(LAB)).hosts == ("h1", "h2")
    topology = from_text("ring:switches=3,hosts=1")
    assert topology.collector is not None
    found = ground_over(Hardware(), CostMap.of(topology, Snapshot(0, {}, {}, {})))
    assert found.hosts == tuple(host.name for host in topology.hosts if host.name != topology.collector.host)
    assert found.notes == ("free bandwidth between machines is nominal",)


def test_a_rate_is_the_specifications_sum_and_paths_are_the_tree() -> None:
    work = Works.of([Work("filter", Growth.LINEAR, cpu_s_per_100mb=0.005, input_gb=1)])
    by_rate = ground_by_rate(Hardware(machines=1000), 1e9)
    assert times(work, by_rate.machines).transfer_s[0] == pytest.approx(888.9, abs=0.05)
    per_path = ground_by_rate(Hardware(machines=1000, transfer=TransferModel.PER_PATH), 1e9)
    assert times(work, per_path.machines).transfer_s[0] == pytest.approx(24)
    over = ground_over(Hardware(machines=3), quiet(LAB))
    assert over.tree is not None
    assert times(work, over.machines).transfer_s[0] == pytest.approx(over.tree.transfer_s(0.1))


def test_one_machine_moves_nothing_and_large_fan_in_is_one_round() -> None:
    work = Works.of([Work("filter", Growth.LINEAR, cpu_s_per_100mb=1, input_gb=1)])
    alone = ground_over(Hardware(machines=1), quiet(LAB))
    assert times(work, alone.machines)[0].total_s == 10
    few = ground_over(Hardware(machines=2, fan_in=1000), quiet(LAB))
    assert few.tree is not None
    assert [len(part.transfers) for part in few.tree.rounds] == [1]


def test_infinite_rate_moves_in_no_time_and_others_are_refused() -> None:
    work = Works.of([Work("filter", Growth.LINEAR, cpu_s_per_100mb=1, input_gb=1)])
    assert times(work, ground_by_rate(Hardware(machines=4), math.inf).machines).transfer_s[0] == 0
    for wrong in (0, -1e9, math.nan, -math.inf):
        with pytest.raises(AccelerationError, match="network: rate_gbit_per_s"):
            ground_by_rate(Hardware(machines=4), wrong)


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("fan_in: 4", "fan_in: 1", 3, "a fan-in of 1 is below 2"),
        ("machines: [h1, h2]", "machines: 0", 2, "0 machines"),
        ("machines: [h1, h2]", "machines: []", 2, "no machines"),
        ("machines: [h1, h2]", "machines: [h1, h1]", 2, "machine h1 is named twice"),
        ("preset: 1.5", "preset: 0.5", 8, "a preset of 0.5 is not finite and at least 1"),
        ("preset: 1.5", "tie_band: -0.1", 8, "a tie band of -0.1 is not finite and at least 0"),
        ("preset: 1.5", "tie_band: .nan", 8, "a tie band of nan is not finite and at least 0"),
        ("preset: 1.5", "preset: .inf", 8, "a preset of inf is not finite and at least 1"),
        ("network_efficiency: 0.9", "network_efficiency: -1", 7, "-1.0 is not above 0 and at most 1"),
        ("efficiency: 0.5", "efficiency: 0", 9, "0.0 is not above 0 and at most 1"),
        ("cells: 1024", "cells: 1000", 9, "1000 cells: not a power of two"),
        ("parallelism: 64", "parallelism: -64", 11, "-64.0 is not above 0"),
        ("parallelism: 64", "parallelism: .nan", 11, "nan is not above 0"),
        ("ratio: 0.3", "ratio: 3", 11, "a compression ratio of 3"),
        ("rate: 0.1 GB/s", "rate: fast", 11, "'fast' is not a rate such as '12.8 GB/s'"),
        ("bus: 1 GB/s", "bus: -1 GB/s", 12, "'-1 GB/s' is not a rate"),
        ("memory: 1 GiB", "memory: 1 GB", 12, "'1 GB' is not a size"),
        ("name: slow, ", "", 12, "two accelerators have the label gpu: give one a name"),
        ("kind: gpu, parallelism", "kind: cpu, parallelism", 11, "a CPU is not an accelerator"),
        ("preset: 1.5", "presets: 1.5", 8, "presets"),
    ],
)
def test_hardware_file_error_names_its_line(tmp_path: Path, old: str, new: str, line: int, problem: str) -> None:
    assert old in FILE
    with pytest.raises(ConfigError) as caught:
        load_hardware(write(tmp_path, FILE.replace(old, new, 1)))
    assert f":{line}: " in str(caught.value)
    assert problem in str(caught.value)


def test_inconsistent_ground_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AccelerationError, match="topology lab has no host 'h9'"):
        ground_over(Hardware(machines=("h1", "h9")), quiet(LAB))
    with pytest.raises(AccelerationError, match="machines: 9 requested, topology lab has 3"):
        ground_over(Hardware(machines=9), quiet(LAB))
    with pytest.raises(AccelerationError, match="the number of machines is unknown"):
        ground_by_rate(Hardware(), 1e9)
    with pytest.raises(AccelerationError, match="not both"):
        load_ground("leaf-spine", None, feed="unix:x", rate_bps=1e9)
    with pytest.raises(AccelerationError, match="no topology for the network"):
        load_ground(None, None)
    with pytest.raises(AccelerationError, match="without a collector's feed"):
        load_ground("leaf-spine", None, path_server="unix:x")
    with pytest.raises(FeedError, match="nobody-here"):
        load_ground("leaf-spine", None, feed=f"unix:{tmp_path}/nobody-here")
    with pytest.raises(ConfigError, match=r"missing\.yaml"):
        load_ground("leaf-spine", tmp_path / "missing.yaml")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "--topology"),
        ({"topology": "abilene", "feed": "unix:x", "rate": "1 Gbit/s"}, "--feed and --rate"),
        ({"rate": "1 Gbit/s", "feed": "unix:x"}, "--feed and --rate"),
        ({"topology": "abilene", "server": "unix:x"}, "--server requires --feed"),
        ({"rate": "fast", "machines": 4}, "'fast' is not a rate such as '10 Gbit/s'"),
        ({"rate": "-1 Gbit/s", "machines": 4}, "is not a rate"),
        ({"rate": "-inf", "machines": 4}, "is not a rate"),
        ({"rate": "0 Gbit/s", "machines": 4}, "is not between 1 bit/s and 100 Tbit/s"),
    ],
)
def test_options_that_do_not_go_together_are_named(options: dict[str, str | int], problem: str) -> None:
    with pytest.raises(typer.BadParameter, match=problem):
        ground_of(**{"topology": None, "hardware": None, **options})  # type: ignore[arg-type]


def test_options_stand_before_the_files_figures(tmp_path: Path) -> None:
    path = write(tmp_path, FILE)
    found = ground_of(None, path, rate="2 Gbit/s", machines=7, fan_in=3)
    assert (found.machines.count, found.machines.fan_in) == (7, 3)
    assert found.machines.network.rate_gbit_per_s == pytest.approx(1.8)
    assert (found.hosts, found.tree) == ((), None)


def test_device_with_shared_memory_may_have_an_infinite_bus(tmp_path: Path) -> None:
    path = write(tmp_path, "{millrace: 1, machines: 2, accelerators: [{kind: gpu, parallelism: 8, bus: inf}]}")
    assert load_hardware(path).accelerators[0].bus_gb_per_s == math.inf


def test_an_infinite_rate_moves_everything_in_no_time() -> None:
    machines = ground_of(None, None, rate="inf", machines=1000).machines
    for model in TransferModel:
        (found,) = times(Works.of([Work("filter", Growth.LINEAR, 1.0, 1.0)]), replace(machines, transfer=model))
        assert found.transfer_s == 0


def test_host_rate_limits_the_network_rate(tmp_path: Path) -> None:
    hardware = load_hardware(write(tmp_path, "{millrace: 1, machines: 4, host_rate: 2 Gbit/s}"))
    for rate_bps, expected in ((1e9, 1.0), (10e9, 2.0), (math.inf, 2.0)):
        assert ground_by_rate(hardware, rate_bps).machines.network.rate_gbit_per_s == pytest.approx(expected)
    with pytest.raises(ConfigError, match=r"hardware\.yaml:1: host_rate: '2 Gb' is not a rate"):
        load_hardware(write(tmp_path, "{millrace: 1, host_rate: 2 Gb}"))
