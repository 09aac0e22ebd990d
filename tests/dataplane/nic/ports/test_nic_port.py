"""Ports that Python polls, on veth pairs in a namespace of their own: exact bytes, VLAN tags, checksums, failures."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from pyroute2 import IPRoute

from dataplane.errors import PortError
from dataplane.fabric.kernel import namespaces
from dataplane.nic import NicPort, PortKind, RingSettings
from dataplane.nic import open_port as open_device
from dataplane.nic.devices.offloads import disable_offloads
from tests.network_namespace import network_namespace
from tests.waiting import wait_until

MACS = bytes.fromhex("020000000002 020000000001")
FRAME = MACS + b"\x88\xb5" + bytes(range(46))
TAGGED = MACS + bytes.fromhex("8100 6005") + b"\x88\xb5" + bytes(range(46))
SERVICE_TAGGED = MACS + bytes.fromhex("88a8 0003 8100 0004") + b"\x88\xb5" + bytes(range(46))


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace with a pair `here` - `there`, both up, IPv6 silent."""
    with network_namespace(("here", "there"), mtu=2000) as name:
        yield name


def _set(name: str, device: str, **change: str) -> None:
    def act() -> None:
        with IPRoute() as netlink:
            netlink.link(change.pop("command", "set"), index=netlink.link_lookup(ifname=device)[0], **change)

    namespaces.call(name, act)


def open_port(name: str, device: str, rx_frames: int = 512) -> NicPort:
    return namespaces.call(name, lambda: open_device(device, PortKind.PACKET_V2, 1, RingSettings(rx_frames=rx_frames)))


def receive(port: NicPort, count: int) -> list[bytes]:
    """Wait, two seconds at most, for this many frames."""
    frames: list[bytes] = []
    while len(frames) < count and select.select([port], [], [], 2.0)[0]:
        frames += port.receive(8)
    return frames


@pytest.mark.root
def test_frames_cross_to_the_byte_and_own_ones_do_not_come_back(namespace: str) -> None:
    # The kernel takes the outermost tag out of every frame that it receives (skb_vlan_untag).
    here, there = open_port(namespace, "here"), open_port(namespace, "there")
    frames = [FRAME, TAGGED, SERVICE_TAGGED, MACS + b"\x08\x00" + bytes(2000)]
    assert here.send(frames) == 4
    assert receive(there, 4) == frames
    assert here.receive(8) == []
    sent, received = here.read_counters(), there.read_counters()
    assert (sent.tx_frames, sent.tx_bytes, sent.rx_frames) == (4, sum(map(len, frames)), 0)
    assert (received.rx_frames, received.rx_bytes, received.drops) == (4, sum(map(len, frames)), {})
    here.close()
    there.close()


@pytest.mark.root
def test_checksums_are_on_the_wire_once_offloads_are_off(namespace: str) -> None:
    there = open_port(namespace, "there")

    def send_datagram() -> None:
        with IPRoute() as netlink:
            index = netlink.link_lookup(ifname="here")[0]
            if not netlink.get_addr(index=index):
                netlink.addr("add", index=index, address="192.0.2.1", prefixlen=24)
                netlink.neigh("add", ifindex=index, dst="192.0.2.2", lladdr="02:00:00:00:00:02", state=0x80)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.sendto(b"payload!", ("192.0.2.2", 9))

    namespaces.call(namespace, lambda: disable_offloads("here"))
    namespaces.call(namespace, send_datagram)
    (frame,) = [frame for frame in receive(there, 1) if frame[12:14] == b"\x08\x00"]
    pseudo = frame[26:34] + struct.pack("!HH", 17, len(frame) - 34)
    total = sum(struct.unpack(f"!{(len(pseudo) + len(frame) - 34) // 2}H", pseudo + frame[34:]))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    assert total == 0xFFFF
    assert there.read_counters().checksum_not_ready == 0
    there.close()


@pytest.mark.root
def test_unsendable_frames_are_counted_and_the_port_recovers(namespace: str) -> None:
    here, there = open_port(namespace, "here"), open_port(namespace, "there")
    assert here.send([bytes(3000), b"short", FRAME]) == 1
    assert here.read_counters().drops == {"too_long": 1, "send_refused": 1}
    _set(namespace, "here", state="down")
    assert (here.send([FRAME]), here.is_down) == (0, True)
    assert here.read_counters().drops["port_down"] == 1
    _set(namespace, "here", state="up")
    # The kernel lets frames through up to a second later (linkwatch).
    wait_until(lambda: here.send([FRAME]) == 1, "nothing can be sent")
    assert not here.is_down
    wait_until(lambda: there.send([FRAME]) == 1 and FRAME in here.receive(8), "nothing arrives")
    here.close()
    there.close()


@pytest.mark.root
def test_a_device_that_vanishes_does_not_raise(namespace: str) -> None:
    here = open_port(namespace, "here")
    _set(namespace, "here", command="del")
    assert receive(here, 1) == []
    assert here.is_down
    assert here.send([FRAME]) == 0
    assert here.receive(8) == []
    here.close()
    here.close()


@pytest.mark.root
def test_frames_that_the_process_was_too_slow_for_are_counted(namespace: str) -> None:
    here, there = open_port(namespace, "here"), open_port(namespace, "there", rx_frames=32)
    assert here.send([FRAME] * 200) == 200
    received = len(receive(there, 1)) + len(there.receive(500))
    reading = there.read_counters()
    assert reading.drops == {"socket_full": 200 - received}
    assert there.read_counters() == reading
    here.close()
    there.close()


@pytest.mark.root
def test_missing_and_down_devices_are_refused_in_one_line(namespace: str) -> None:
    with pytest.raises(PortError, match="interface nowhere: no such device"):
        open_port(namespace, "nowhere")
    _set(namespace, "here", state="down")
    with pytest.raises(PortError, match="interface here is down"):
        open_port(namespace, "here")


def test_without_rights_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(socket.socket):
        def __init__(self, family: int = -1, *rest: Any, **named: Any) -> None:
            if family == socket.AF_PACKET:
                raise PermissionError(1, "Operation not permitted")
            super().__init__(family, *rest, **named)

    monkeypatch.setattr(socket, "socket", Refused)
    with pytest.raises(PortError, match="interface lo: a raw socket: needs root"):
        open_device("lo", PortKind.PACKET_V2)
