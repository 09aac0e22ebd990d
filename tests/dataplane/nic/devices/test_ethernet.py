"""Devices read and set through netlink, on veth pairs; requests that a driver does not support say so."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

import pytest

from dataplane.errors import PortError
from dataplane.fabric.kernel import namespaces
from dataplane.nic import PortKind, RingSettings, open_port
from dataplane.nic.devices import ethernet, steering
from dataplane.nic.devices.device import find_device
from dataplane.nic.devices.ethernet import EthernetDevice
from dataplane.nic.devices.offloads import OFFLOADS
from dataplane.nic.devices.steering import SteeringRule
from tests.dataplane.nic.conftest import Cable
from tests.network_namespace import network_namespace
from tests.waiting import HANG_S, wait_until

root = pytest.mark.root


def read(cable: Cable, device: str = "here") -> EthernetDevice:
    return cable.call(lambda: ethernet.read_device(device))


@root
def test_a_device_tells_what_it_is(make_cable: Callable[..., Cable]) -> None:
    cable = make_cable(mtu=1800, queues=2)
    wait_until(lambda: read(cable).has_link)
    device = read(cable)
    assert (device.name, device.driver, device.mtu, device.is_up) == ("here", "veth", 1800, True)
    assert len(bytes.fromhex(device.address.replace(":", ""))) == 6
    assert device.channels == ethernet.Channels(rx=2, tx=2, combined=0, most_rx=2, most_tx=2, most_combined=0)
    assert device.features["tx-checksum-ip-generic"]
    assert not device.features["rx-ntuple-filter"]
    assert device.timestamping.receive_software
    assert not device.timestamping.receive_hardware
    assert device.timestamping.clock is None
    assert (device.rings, device.indirection, device.xdp_program) == (None, None, None)
    assert cable.call(ethernet.list_devices) == ["here", "lo", "there"]


@root
def test_a_device_that_is_missing_is_one_line(cable: Cable) -> None:
    refused = r"^interface nowhere: no such device in this network namespace$"
    requests: list[Callable[[], object]] = [
        lambda: ethernet.read_device("nowhere"),
        lambda: ethernet.read_channels("nowhere"),
        lambda: ethernet.set_channels("nowhere", rx=1),
        lambda: ethernet.set_features("nowhere", {"rx-gro": False}),
        lambda: ethernet.set_mtu("nowhere", 1500),
        lambda: steering.count_rules("nowhere"),
        lambda: steering.set_indirection("nowhere", [0]),
    ]
    for request in requests:
        with pytest.raises(PortError, match=refused):
            cable.call(request)


@root
def test_devices_are_read_and_set_from_coroutines_as_well(cable: Cable) -> None:
    async def act() -> EthernetDevice:
        ethernet.set_features("here", {"rx-gro": False})
        ethernet.set_mtu("here", 1400)
        open_port("here").close()
        return ethernet.read_device("here")

    assert cable.call(lambda: asyncio.run(act())).mtu == 1400


@root
def test_channels_are_set_up_to_what_the_device_has(make_cable: Callable[..., Cable]) -> None:
    cable = make_cable(queues=4)
    cable.call(lambda: ethernet.set_channels("here", rx=3, tx=2))
    channels = read(cable).channels
    assert channels is not None
    assert (channels.rx, channels.tx, channels.receive_queues) == (3, 2, 3)
    with pytest.raises(PortError, match=r"^interface here: channels \(rx 5\) cannot be set: .*exceeds maximum"):
        cable.call(lambda: ethernet.set_channels("here", rx=5))
    with pytest.raises(PortError, match=r"^interface here: channels: give numbers of 0 or more, not nothing$"):
        cable.call(lambda: ethernet.set_channels("here"))
    # The configured number counts: AF_XDP takes a socket per receive queue.
    with pytest.raises(PortError, match=r"^interface here: has fewer receive queues than its peer has transmit queues"):
        cable.open("here", PortKind.XDP, 3)
    cable.call(lambda: ethernet.set_channels("there", tx=3))
    cable.open("here", PortKind.XDP, 3).close()


@root
def test_features_are_set_or_refused_by_name(cable: Cable) -> None:
    cable.call(lambda: ethernet.set_features("here", {"rx-gro": True, "tx-tcp-segmentation": False}))
    features = read(cable).features
    assert (features["rx-gro"], features["tx-tcp-segmentation"]) == (True, False)
    with pytest.raises(PortError, match=r"^interface here: its driver cannot switch rx-ntuple-filter on$"):
        cable.call(lambda: ethernet.set_features("here", {"rx-ntuple-filter": True}))
    with pytest.raises(PortError, match=r"^interface here: this kernel has no feature warp$"):
        cable.call(lambda: ethernet.set_features("here", {"warp": True}))


@root
def test_a_port_has_no_offload_left_that_its_device_can_switch(cable: Cable) -> None:
    with cable.open("here"):
        features = read(cable).features
    assert [name for name in OFFLOADS if features.get(name)] == []


@root
def test_mtu_and_link_state_are_set(cable: Cable) -> None:
    cable.call(lambda: ethernet.set_mtu("here", 1234))
    assert read(cable).mtu == 1234
    with pytest.raises(PortError, match=r"^interface here: an MTU of 100000000 cannot be set: "):
        cable.call(lambda: ethernet.set_mtu("here", 100_000_000))
    cable.call(lambda: ethernet.set_up("there", is_up=False))
    wait_until(lambda: not read(cable).has_link)
    assert (read(cable).is_up, read(cable, "there").is_up) == (True, False)


@root
@pytest.mark.parametrize(
    ("request_it", "refused"),
    [
        (lambda: ethernet.set_ring("here", rx=512), r"rings \(rx 512\) cannot be set: "),
        (lambda: steering.set_indirection("here", [0, 0]), r"steering \(2 values of the hash\): "),
        (lambda: steering.insert_rule("here", SteeringRule("udp", 0)), r"steering rule for queue 0: "),
        (lambda: steering.delete_rule("here", 3), r"steering rule 3: "),
    ],
)
def test_what_the_driver_lacks_is_refused_by_name(cable: Cable, request_it: Callable[[], object], refused: str) -> None:
    with pytest.raises(PortError, match=f"^interface here: {refused}its driver does not support it$"):
        cable.call(request_it)
    assert cable.call(lambda: steering.count_rules("here")) is None


@root
@pytest.mark.parametrize("kind", [PortKind.PACKET_V2, PortKind.PACKET_V3])
def test_hardware_stamps_need_a_device_with_a_clock(cable: Cable, kind: PortKind) -> None:
    with pytest.raises(PortError, match=r"^interface here: has no clock to stamp frames with: ask for soft"):
        cable.open("here", kind, settings=RingSettings(stamps="hardware"))
    with pytest.raises(PortError, match=r"^interface here: AF_XDP does not report hardware time stamps: use PACKET_V2"):
        cable.open("here", PortKind.XDP, settings=RingSettings(stamps="hardware"))


@root
def test_a_device_moves_to_another_namespace(cable: Cable) -> None:
    with network_namespace() as other:
        cable.call(lambda: ethernet.move_to_namespace("there", other))
        assert cable.call(ethernet.list_devices) == ["here", "lo"]
        assert namespaces.call(other, ethernet.list_devices) == ["lo", "there"]
        assert not namespaces.call(other, lambda: ethernet.read_device("there")).is_up
        namespaces.call(other, lambda: ethernet.set_up("there", is_up=True))
        namespaces.call(other, lambda: open_port("there")).close()
    with pytest.raises(PortError, match=r"^interface here: network namespace nowhere: No such file"):
        cable.call(lambda: ethernet.move_to_namespace("here", "nowhere"))


@root
def test_opening_many_ports_takes_no_seconds(make_cable: Callable[..., Cable]) -> None:
    cable = make_cable()
    settings = RingSettings(rx_frames=64, tx_frames=64)
    cable.open("here", settings=settings).close()
    began = time.process_time()
    for _ in range(32):
        cable.open("here", settings=settings).close()
    assert time.process_time() - began < 1.0


def test_ports_that_are_on_no_device_need_no_netlink() -> None:
    text = "import sys; sys.modules['pyroute2'] = None; from dataplane.nic import memory_pair; memory_pair()[0].close()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", text], env=environment, timeout=HANG_S, check=False).returncode == 0


def test_a_steering_rule_is_laid_out_as_the_kernel_has_it() -> None:
    # struct ethtool_rxnfc of linux/ethtool.h: fields at 20, masks at 92, queue at 168, location at 176.
    rule = SteeringRule("udp", 3, destination=IPv4Address("192.0.2.1"), destination_port=32766)
    encoded = rule.encode()
    assert len(encoded) == 192
    assert encoded[:20] == bytes.fromhex("32000000 02000000 0000000000000000 02000000")
    assert encoded[20:92] == bytes.fromhex("00000000 c0000201 0000 7ffe").ljust(72, b"\0")
    assert encoded[92:168] == bytes.fromhex("00000000 ffffffff 0000 ffff").ljust(76, b"\0")
    assert encoded[168:180] == bytes.fromhex("0300000000000000 ffffffff")
    tcp6 = SteeringRule("tcp", None, 6, source=IPv6Address("2001:db8::1"), source_port=80, location=7).encode()
    assert tcp6[16:36] == bytes.fromhex("05000000 20010db8000000000000000000000001")
    assert (tcp6[52:56], tcp6[168:180]) == (bytes.fromhex("0050 0000"), b"\xff" * 8 + bytes.fromhex("07000000"))


def test_steering_rules_that_no_frame_can_match_are_refused() -> None:
    with pytest.raises(PortError, match=r"^steering rule: None to 192.0.2.1 is not IPv6$"):
        SteeringRule("udp", 1, 6, destination=IPv4Address("192.0.2.1")).encode()
    with pytest.raises(PortError, match=r"^steering rule: ports None and 65536 must be 0 to 65535$"):
        SteeringRule("udp", 1, destination_port=65536).encode()


def test_no_device_has_a_name_beyond_the_kernels() -> None:
    with pytest.raises(PortError, match=r"^interface x+\.\.\.: the name of a device cannot be that long$"):
        find_device("x" * 100_000)
