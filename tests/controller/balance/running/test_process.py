"""The loop as `millrace balance drive` runs it."""

from __future__ import annotations

import asyncio
import csv
import os
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from controller.balance.errors import LeverError
from controller.balance.rules.history import read_history
from controller.balance.running.finding import single_instance
from controller.balance.running.loop import Tick
from controller.balance.running.process import drive
from controller.balance.running.settings import RunSettings
from controller.common.errors import PathError
from dataplane.cgroups import group_at, quotas_milli_of
from dataplane.config import load
from dataplane.errors import ConfigError
from tests.benchmarks.balancing.real_plant import PERIOD_US, RealPlant


@pytest.mark.root
def test_drive_moves_records_and_releases_a_namespaced_unit(tmp_path: Path) -> None:
    if os.geteuid() != 0 or "cpu" not in group_at("/").folders:
        pytest.skip("needs root and control groups with a quota of CPU time")
    record, ready, ticks = tmp_path / "record.csv", list[str](), list[Tick]()
    with RealPlant(20_000_000, cpu_s_per_megabyte=0.12, sub_units=80) as plant:
        settings = tmp_path / "unit.yaml"
        settings.write_text(
            f"unit: u0\n"
            f"bus: {{interface: {{interface: e0, namespace: {plant.upstream}}}}}\n"
            f"load: {{group: {plant.group}}}\n"
            f"levers: {{cpu_quota: {{group: {plant.group}, low: 10, period_us: {PERIOD_US}, set: true}}}}\n"
            f"platform: {{}}\n"
            f"interval_s: 0.2\n"
            f"record: {record}\n"
        )
        asyncio.run(drive(load(settings, RunSettings), ready.append, ticks.append, turns=5))
        assert quotas_milli_of(group_at(plant.group))[0] == 800
    assert ready == [f"unit u0; cpu quota of {plant.group}: sub-units at 80 of 10 to {100 * (os.cpu_count() or 1)}"]
    assert ticks[-1].state.sub_units < 60
    with record.open(newline="") as file:
        written = list(csv.DictReader(file))
    stood = [(tick.before.sub_units, tick.sample.bus) for tick in ticks if tick.sample is not None]
    assert [(int(row["sub_units"]), float(row["bus"])) for row in written] == stood
    assert {(row["unit"], row["precision"], row["frequency_mhz"]) for row in written} == {("u0", "", "")}
    assert len(read_history(record, "u0")) > 0


@pytest.mark.root
def test_the_bus_may_be_a_shaped_device_of_the_own_namespace(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to make a network device")
    settings, ticks = tmp_path / "unit.yaml", list[Tick]()
    settings.write_text(
        "unit: u0\nbus: {interface: {interface: mrbal0}}\nload: {group: /nobody}\ninterval_s: 0.05\n"
        "silence: {stale: 1s}\n"
    )
    with IPRoute() as routes:
        routes.link("add", ifname="mrbal0", kind="veth", peer={"ifname": "mrbal1"})
        index = routes.link_lookup(ifname="mrbal0")[0]
        try:
            routes.tc("add", "tbf", index, 0x10000, rate=1_250_000, burst=32 << 10, limit=1 << 20)
            asyncio.run(drive(load(settings, RunSettings), list[str]().append, ticks.append, turns=2))
        finally:
            routes.link("del", index=index)
    (problem,) = {tick.problem for tick in ticks}
    assert problem.startswith("unit u0: control group /nobody: ")


def test_a_record_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    settings = tmp_path / "unit.yaml"
    settings.write_text("unit: u0\nbus: {interface: {interface: e0}}\nload: {group: /nobody}\nrecord: /dev/full\n")
    with pytest.raises(ConfigError, match=r"^/dev/full: No space left on device$"):
        asyncio.run(drive(load(settings, RunSettings), list[str]().append, list[Tick]().append, turns=1))


def test_absent_sensors_are_reported_at_start_and_each_turn(tmp_path: Path) -> None:
    settings, ready, ticks = tmp_path / "unit.yaml", list[str](), list[Tick]()
    bus = "{interface: {interface: e0, namespace: nowhere}}"
    for text, problem in (
        (bus, "unit u0: network namespace /run/netns/nowhere: No such file or directory"),
        ('{pcie: "0000:ff:1f.7"}', "unit u0: device 0000:ff:1f.7 not found"),
    ):
        settings.write_text(
            f"unit: u0\nbus: {text}\nload: {{group: /nobody}}\ninterval: 10ms\nsilence: {{stale: 1s}}\n"
        )
        asyncio.run(drive(load(settings, RunSettings), ready.append, ticks.append, turns=1))
        assert (ready[-1], ticks[-1].problem) == (f"unit u0; {problem}", problem)


def test_machine_without_any_lever_is_an_error_at_start(tmp_path: Path) -> None:
    settings = tmp_path / "unit.yaml"
    settings.write_text(
        "unit: u0\nbus: {interface: {interface: e0}}\nload: {group: /nobody}\n"
        "levers: {cpu_quota: {group: /mr-nobody, set: true}}\n"
    )
    with pytest.raises(LeverError, match="lever of unit u0: none available: lever cpu quota of /mr-nobody: no such"):
        asyncio.run(drive(load(settings, RunSettings), print, print, turns=1))


def test_unknown_host_or_unwritable_record_is_an_error_at_start(
    tmp_path: Path,
) -> None:
    settings = tmp_path / "unit.yaml"
    settings.write_text("unit: u0\nbus: {telemetry: {host: h99, topology: abilene}}\nload: {group: /nobody}\n")
    with pytest.raises(PathError, match="has no host 'h99'"):
        asyncio.run(drive(load(settings, RunSettings), print, print, turns=1))
    settings.write_text(
        f"unit: u0\nbus: {{interface: {{interface: e0}}}}\nload: {{group: /nobody}}\nrecord: {tmp_path}/no/file\n"
    )
    with pytest.raises(ConfigError, match="no/file: No such file or directory"):
        asyncio.run(drive(load(settings, RunSettings), print, print, turns=1))


def test_second_drive_of_a_pool_holder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    settings, address = tmp_path / "unit.yaml", f"unix:{tmp_path}/api.sock"
    settings.write_text(
        "unit: u0\nbus: {interface: {interface: e0}}\nload: {group: /nobody}\n"
        f'levers: {{pool: {{pool: gpus, holder: u0, api: "{address}"}}}}\n'
    )
    with (
        single_instance("gpus", "u0", address),
        pytest.raises(LeverError, match="lever units of pool gpus: holder u0 is already driven on this machine"),
    ):
        asyncio.run(drive(load(settings, RunSettings), print, print, turns=1))
