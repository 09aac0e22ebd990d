"""Ports of several queues: each flow stays on one of them, and an XDP program goes with its port."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from pyroute2 import IPRoute

from dataplane.errors import PortError
from dataplane.fabric.kernel import namespaces
from dataplane.nic import NicPort, PortKind, RingSettings
from dataplane.wire.checksum import internet_checksum
from tests.dataplane.nic.conftest import Cable
from tests.waiting import HANG_S, wait_until

pytestmark = pytest.mark.root
MACS = bytes.fromhex("020000000002 020000000001")
FLOWS = 64


def make_datagram(flow: int, sequence: int) -> bytes:
    """Return an Ethernet frame with IPv4 and UDP; the flow is in the source port."""
    payload = sequence.to_bytes(4, "big")
    udp = (1000 + flow).to_bytes(2, "big") + bytes.fromhex("0009000c0000") + payload
    head = bytes.fromhex("4500 0020 0000 0000 4011")
    addresses = bytes.fromhex("c0000201 c0000202")
    checksum = internet_checksum(head + b"\0\0" + addresses)
    return MACS + b"\x08\x00" + head + checksum.to_bytes(2, "big") + addresses + udp


def flow_of(frame: bytes) -> int:
    return int.from_bytes(frame[34:36], "big") - 1000


def drain(port: NicPort, frames: int) -> list[list[bytes]]:
    """Receive this many frames and return each queue's."""
    seen: list[list[bytes]] = [[] for _ in port.queues]

    def collect() -> bool:
        for number, queue in enumerate(port.queues):
            seen[number] += port._receive(queue, 10_000)
        return sum(map(len, seen)) >= frames

    wait_until(collect)
    return seen


def test_flows_are_spread_from_the_first_queue_on(cable: Cable) -> None:
    frames = [make_datagram(flow, 0) for flow in range(FLOWS)]
    flows = []
    for first in (0, 1):
        settings = RingSettings(first_queue=first)
        with cable.open("here") as here, cable.open("there", queues=2, settings=settings) as there:
            assert here.send(frames) == len(frames)
            flows.append([set(map(flow_of, part)) for part in drain(there, len(frames))])
    assert flows[0] == flows[1][::-1]


@pytest.mark.parametrize("kind", [PortKind.PACKET_V2, PortKind.PACKET_V3], ids=lambda kind: kind.name)
def test_fanout_keeps_flows_apart_and_in_order(cable: Cable, kind: PortKind) -> None:
    with cable.open("here") as here, cable.open("there", kind, 2) as there:
        frames = [make_datagram(flow, sequence) for sequence in range(10) for flow in range(FLOWS)]
        assert here.send(frames) == len(frames)
        seen = drain(there, len(frames))
        assert sum(map(len, seen)) == len(frames)
        flows = [set(map(flow_of, part)) for part in seen]
        assert not flows[0] & flows[1]
        assert all(len(part) > FLOWS // 8 for part in flows)
        for part in seen:
            for flow in set(map(flow_of, part)):
                assert [frame for frame in part if flow_of(frame) == flow] == [
                    make_datagram(flow, sequence) for sequence in range(10)
                ]
        assert there.receive(10) == []


def test_queues_of_two_ports_do_not_mix(cable: Cable) -> None:
    with cable.open("here", queues=2) as here, cable.open("there", queues=2) as there:
        assert here.send([make_datagram(1, 1)]) == 1
        assert sum(map(len, drain(there, 1))) == 1
        assert here.receive(4) == []


def test_two_xdp_queues_take_every_frame(make_cable: Callable[..., Cable]) -> None:
    cable = make_cable(queues=2)
    with cable.open("here", PortKind.XDP, 2) as here, cable.open("there", PortKind.XDP, 2) as there:
        frames = [make_datagram(flow, 0) for flow in range(FLOWS)]
        assert here.send(frames) == FLOWS
        assert sorted(frame for part in drain(there, FLOWS) for frame in part) == sorted(frames)


def test_xdp_wants_a_socket_for_each_queue(make_cable: Callable[..., Cable]) -> None:
    cable = make_cable(queues=2)
    with pytest.raises(PortError, match=r"has 2 receive queues.* not 1: ethtool -L here rx 1 tx 1"):
        cable.open("here", PortKind.XDP)
    assert not has_program(cable, "here")


def has_program(cable: Cable, device: str) -> bool:
    def look() -> bool:
        with IPRoute() as netlink:
            (link,) = netlink.get_links(netlink.link_lookup(ifname=device)[0])
            xdp = link.get_attr("IFLA_XDP")
            return xdp is not None and xdp.get_attr("IFLA_XDP_PROG_ID") is not None

    return cable.call(look)


def test_a_program_goes_when_its_port_closes(cable: Cable) -> None:
    with cable.open("here", PortKind.XDP):
        assert has_program(cable, "here")
        with pytest.raises(PortError, match=r"^interface here: queue 0 is in use by another AF_XDP socket$"):
            cable.open("here", PortKind.XDP)
        assert has_program(cable, "here")
    assert not has_program(cable, "here")
    cable.open("here", PortKind.XDP).close()


def test_a_program_goes_when_its_process_is_killed(cable: Cable) -> None:
    text = (
        "from dataplane.nic import PortKind, open_port\n"
        "port = open_port('here', PortKind.XDP)\n"
        "print('open', flush=True)\n"
        "input()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = namespaces.start(
        cable.namespace, [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"open\n"
        assert has_program(cable, "here")
        child.send_signal(signal.SIGKILL)
        child.wait(HANG_S)
    wait_until(lambda: not has_program(cable, "here"))
    cable.open("here", PortKind.XDP).close()
