"""Meter readings over an interval, on trees of files, and the reasons for missing ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from collectors.devices.root import Root
from collectors.devices.sampling import Sampler
from collectors.values import Snapshot
from controller.balance.errors import SampleError
from controller.balance.running.meters import (
    DeviceBus,
    DeviceLoad,
    DeviceUse,
    Direction,
    GroupLoad,
    InterfaceUse,
    ReceivedByTelemetry,
)
from controller.cluster.cost_map import CostMap
from controller.common.errors import CostMapError
from dataplane.clock import VirtualClock
from dataplane.topology.values import LinkKey
from tests.collectors.devices.machines import SERVER, SERVER_LINKS
from tests.controller.balance.running.parts import GROUPS, MACHINE, SECOND
from tests.controller.cluster.cost_map.fabrics import fabric, link_state
from tests.recorded import write_tree


def net(rx_bytes: int, tx_bytes: int) -> dict[str, str]:
    return {
        "proc/self/net/dev": f"a\nb\n  e0: {rx_bytes} 0 0 0 0 0 0 0 {tx_bytes} 0 0 0 0 0 0 0\n",
        "sys/class/net/e0/speed": "8\n",
    }


def used(milliseconds: int, quota_us: int = 50_000) -> dict[str, str]:
    return {
        f"{GROUPS}/unit/cpu.stat": f"usage_usec {milliseconds * 1000}\n",
        f"{GROUPS}/unit/cpu.max": f"{quota_us} 100000\n",
    }


def test_the_load_of_a_group_is_of_its_quota(tmp_path: Path) -> None:
    meter = GroupLoad("u", "/unit", Root(write_tree(tmp_path, MACHINE | used(0))))
    meter.begin(0)
    write_tree(tmp_path, used(250))
    assert meter.share(SECOND) == 0.5


def test_changed_or_ineffective_quota_gives_no_load(tmp_path: Path) -> None:
    meter = GroupLoad("u", "/unit", Root(write_tree(tmp_path, MACHINE | used(0))))
    meter.begin(0)
    write_tree(tmp_path, used(250, quota_us=40_000))
    with pytest.raises(SampleError, match="unit u: control group /unit: its quota changed while it was measured"):
        meter.share(SECOND)
    meter.begin(0)
    write_tree(tmp_path, used(900, quota_us=40_000))
    with pytest.raises(SampleError, match="control group /unit was used to 162% of its capacity"):
        meter.share(SECOND)


@pytest.mark.parametrize(("direction", "share"), [(Direction.SENT, 0.5), (Direction.RECEIVED, 0.25)])
def test_the_use_of_a_network_device_is_of_its_links_rate(tmp_path: Path, direction: Direction, share: float) -> None:
    meter = InterfaceUse("u", "e0", direction, lambda: None, Root(write_tree(tmp_path, net(0, 0))))
    meter.begin(0)
    write_tree(tmp_path, net(250_000, 500_000))
    assert meter.share(SECOND) == share


def test_configured_link_rate_is_used_and_a_wrong_one_detected(tmp_path: Path) -> None:
    rates = [4_000_000] * 4
    root = Root(write_tree(tmp_path, net(0, 0)))
    meter = InterfaceUse("u", "e0", Direction.SENT, rates.pop, root)
    meter.begin(0)
    write_tree(tmp_path, net(0, 500_000))
    assert meter.share(SECOND) == 1.0
    write_tree(tmp_path, net(0, 2_000_000))
    with pytest.raises(SampleError, match="network device e0 was used to 400% of its capacity"):
        meter.share(SECOND)


def test_link_without_a_steady_known_rate_gives_no_sample(tmp_path: Path) -> None:
    root = Root(write_tree(tmp_path, net(0, 0)))
    rates = iter([8_000_000, 4_000_000])
    meter = InterfaceUse("u", "e0", Direction.SENT, lambda: next(rates), root)
    meter.begin(0)
    with pytest.raises(SampleError, match="its link's rate changed while it was measured"):
        meter.share(SECOND)
    (tmp_path / "sys/class/net/e0/speed").write_text("-1\n")
    with pytest.raises(SampleError, match="network device e0 reports no link rate: set `rate`"):
        InterfaceUse("u", "e0", Direction.SENT, lambda: None, root).begin(0)
    with pytest.raises(SampleError, match="unit u: network device e7 not found"):
        InterfaceUse("u", "e7", Direction.SENT, lambda: None, root).begin(0)


def test_device_load_is_the_drivers_and_gaps_have_reasons(tmp_path: Path) -> None:
    sampler = Sampler(Root(write_tree(tmp_path, SERVER, SERVER_LINKS)), VirtualClock())
    use = DeviceUse("u", "0000:81:00.0", sampler)
    assert DeviceLoad(use).share(0) == 0.37
    with pytest.raises(SampleError, match=r"device 0000:81:00.0: pcie_rx_bytes_per_s: the driver does not report it"):
        DeviceBus(use).share(0)
    with pytest.raises(SampleError, match=r"unit u: device 0000:ff:00.0 not found"):
        DeviceLoad(DeviceUse("u", "0000:ff:00.0", sampler)).begin(0)


def test_received_share_is_that_of_telemetry_or_no_sample() -> None:
    topology = fabric("ring:switches=3,hosts=1")
    key = LinkKey("s1", "h1")
    rate_bps = topology.directed_links[key].rate_bps
    state = replace(link_state(topology, key, Random(1)), available_bps=rate_bps // 4, age_ns=2)
    costs = CostMap.of(topology, Snapshot(7, {key: state}, {}, {}))
    assert ReceivedByTelemetry("u", "h1", lambda: costs).share(0) == 0.75
    with pytest.raises(SampleError, match="unit u: no telemetry of the link towards host h2"):
        ReceivedByTelemetry("u", "h2", lambda: costs).share(0)

    def refuse() -> CostMap:
        raise CostMapError("the network's state is 12.0 s old")

    with pytest.raises(SampleError, match=r"unit u: the network's state is 12.0 s old"):
        ReceivedByTelemetry("u", "h1", refuse).share(0)
