"""Counters of network devices, and the use of a link that follows from them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from collectors.devices.interfaces import interface_rates, read_interfaces
from collectors.devices.root import Root
from collectors.devices.values import InterfaceSample
from tests.recorded import write_tree

S = 1_000_000_000
HEADER = (
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast"
    "|bytes    packets errs drop fifo colls carrier compressed\n"
)
DEV = HEADER + (
    "    lo: 2517849318 6309546    0    0    0     0          0         0 2517849318 6309546 0 0 0 0 0 0\n"
    "  eth0: 7965581651  335612    1    2    0     0          0         0 16162709  157025   3 4 0 0 0 0\n"
    "veth1:7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n"
)


def test_counters_are_read_for_all_but_loopback(tmp_path: Path) -> None:
    tree = {"proc/self/net/dev": DEV, "proc/7/net/dev": DEV, "sys/class/net/eth0/speed": "25000\n"}
    root = Root(write_tree(tmp_path, tree | {"sys/class/net/veth1/speed": "-1\n"}))
    eth0, veth1 = read_interfaces(root, 5)
    assert eth0 == InterfaceSample(
        "eth0", 5, 7965581651, 16162709, 335612, 157025, 1, 3, 2, 4, link_rate_bps=25_000_000_000
    )
    assert (veth1.rx_bytes, veth1.tx_bytes, veth1.link_rate_bps) == (7, 8, None)
    # Another process may live in another namespace, where eth0 is another device.
    assert read_interfaces(root, 5, "7")[0].link_rate_bps is None
    assert read_interfaces(root, 5, "8") == ()


BEFORE = InterfaceSample("eth0", 1 * S, rx_bytes=0, tx_bytes=1000, rx_packets=0, tx_packets=10)
AFTER = InterfaceSample("eth0", 3 * S, rx_bytes=0, tx_bytes=1000 + 976 * 500, rx_packets=0, tx_packets=510, tx_drops=2)


def test_rates_are_those_on_the_wire() -> None:
    rates = interface_rates(BEFORE, AFTER, link_rate_bps=10_000_000)
    assert rates is not None
    assert (rates.tx_bps, rates.rx_bps, rates.tx_drops) == (2_000_000, 0, 2)
    assert (rates.tx_share, rates.rx_share, rates.interval_ns) == (0.2, 0.0, 2 * S)
    unknown = interface_rates(BEFORE, AFTER)
    assert unknown is not None
    assert unknown.tx_share is None


def test_counters_that_go_back_say_nothing() -> None:
    assert interface_rates(AFTER, BEFORE) is None
    assert interface_rates(BEFORE, BEFORE) is None
    assert interface_rates(AFTER, dataclasses.replace(BEFORE, time_ns=5 * S)) is None


def test_this_machine() -> None:
    assert all(sample.rx_bytes >= 0 and sample.time_ns == 9 for sample in read_interfaces(Root(), 9))
