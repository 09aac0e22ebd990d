"""Load of machines: shares of time between two samples, and missing values with the reason."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors.devices.discovery import discover
from collectors.devices.root import Root
from collectors.devices.sampling import Sampler
from collectors.devices.values import Pressure
from dataplane.clock import MonotonicClock, VirtualClock
from tests.collectors.devices.machines import BOARD, BOARD_LINKS, PCI, RAPL, SERVER, SERVER_LINKS
from tests.recorded import write_tree

SECOND = 1_000_000_000


def test_a_server(tmp_path: Path) -> None:
    clock = VirtualClock(5)
    sampler = Sampler(Root(write_tree(tmp_path, SERVER, SERVER_LINKS)), clock)
    first = sampler.host()
    assert (first.time_ns, first.cpu_busy) == (5, None)
    assert first.missing == {
        "cpu_busy": "shares of time need an earlier sample",
        "power_w": "shares of time need an earlier sample",
    }
    assert (first.memory_used_bytes, first.memory_total_bytes) == (200000 << 10, 500000 << 10)
    assert first.clock_hz == 2_000_003_500
    assert first.pressure == {"cpu": Pressure(0.125, None), "io": Pressure(0.01, 0.005)}
    clock.advance_to(5 + SECOND)
    write_tree(tmp_path, {"proc/stat": "cpu  130 0 120 720 120 0 5 5 0 0\n", f"{RAPL}:0/energy_uj": "60000000\n"})
    second = sampler.host()
    assert (second.cpu_busy, second.power_w) == (60 / 100, 60.0)


def test_devices_of_a_server(tmp_path: Path) -> None:
    clock = VirtualClock()
    sampler = Sampler(Root(write_tree(tmp_path, SERVER, SERVER_LINKS)), clock)
    first = {sample.address: sample for sample in sampler.devices()}
    amd, npu, dpu = (first[f"0000:{slot}:00.0"] for slot in ("81", "d1", "a1"))
    assert (amd.utilisation, amd.memory_used_bytes, amd.clock_hz) == (0.37, 1 << 20, 1_700_000_000)
    assert (amd.power_w, amd.temperature_c) == (41.0, 35.5)
    assert set(amd.missing) == {"pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "pcie_link_bytes_per_s"}
    assert first["0000:41:00.0"].pcie_link_bytes_per_s == 7_876_923_076
    assert (npu.utilisation, npu.clock_hz) == (None, 1_400_000_000)
    assert "utilisation" in npu.missing
    assert (dpu.network_rx_bytes, dpu.network_tx_bytes, dpu.utilisation) == (70, 7, None)
    assert first["0000:41:00.0"].missing["utilisation"] == "the driver does not report it in /sys"
    clock.advance_to(SECOND)
    write_tree(tmp_path, {f"{PCI}/0000:d1:00.0/npu_busy_time_us": "251000\n"})
    assert {sample.address: sample for sample in sampler.devices()}["0000:d1:00.0"].utilisation == 0.25


def test_a_board_says_little_and_that_is_said(tmp_path: Path) -> None:
    sampler = Sampler(Root(write_tree(tmp_path, BOARD, BOARD_LINKS)), VirtualClock())
    assert [device.missing["utilisation"] for device in sampler.devices()] == [
        "the driver does not report it in /sys"
    ] * 2
    sample = sampler.host()
    unknown = {"cpu_busy", "clock_hz", "memory_used_bytes", "memory_total_bytes", "pressure", "power_w"}
    assert set(sample.missing) == unknown
    assert (sample.memory_used_bytes, sample.pressure) == (None, {})


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_nonsense_in_files_gives_no_figures_and_no_exceptions(tmp_path: Path, data: st.DataObject) -> None:
    tree = SERVER | {"proc/self/net/dev": "a\nb\n eth0: " + "7 " * 16}
    if not (tmp_path / "proc").exists():
        write_tree(tmp_path, tree, SERVER_LINKS)
    name = data.draw(st.sampled_from(sorted(tree)))
    text = tree[name]
    position = data.draw(st.integers(0, len(text)))
    write_tree(
        tmp_path, {name: text[:position] + data.draw(st.text("0 -,:.\nxé9\t", max_size=6)) + text[position + 3 :]}
    )
    root = Root(tmp_path)
    machine = discover(root, "")
    sampler = Sampler(root, VirtualClock())
    for _ in range(2):
        host = sampler.host()
    assert host.cpu_busy is None or 0 <= host.cpu_busy <= 1
    assert machine.cpu_milli >= 0
    assert all(sample.rx_bytes >= 0 for sample in sampler.interfaces())
    assert len(sampler.devices()) == len(machine.devices)
    write_tree(tmp_path, {name: text})


def test_this_machine() -> None:
    sampler = Sampler(Root(), MonotonicClock())
    sampler.host()
    sample = sampler.host()
    assert sample.cpu_busy is None or 0 <= sample.cpu_busy <= 1
    assert sample.memory_used_bytes is not None
    assert sample.memory_total_bytes is not None
    assert 0 < sample.memory_used_bytes < sample.memory_total_bytes
