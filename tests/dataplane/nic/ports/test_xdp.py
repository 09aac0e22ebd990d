"""AF_XDP sockets: binding to the device, system calls, and leftovers of a killed one."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from dataplane.native import pointer_to
from dataplane.nic import NicPort, PortKind, RingSettings, open_port
from dataplane.nic.devices import ethernet
from dataplane.nic.ports.queue import XdpQueue
from tests.dataplane.nic.children import start_child
from tests.dataplane.nic.conftest import Cable, receive
from tests.waiting import HANG_S, wait_until

pytestmark = pytest.mark.root
FRAME = bytes.fromhex("020000000002 020000000001 88b5") + bytes(46)
LONG_FRAME = FRAME + bytes(8000)
PAGES = 1 << 14
"""Pages pinned by the port of the killed child; nothing else pins as many at the same time."""


def queue_of(port: NicPort) -> XdpQueue:
    (queue,) = port.queues
    assert isinstance(queue, XdpQueue)
    return queue


def test_a_port_tells_how_it_came_by_its_device(cable: Cable) -> None:
    with cable.open("here", PortKind.XDP) as here:
        assert (here.information.queues, here.information.program_place) == (1, "driver")
        assert not here.information.is_zero_copy  # veth hands sockets over by copying
    with cable.open("here") as here:
        assert (here.information.is_zero_copy, here.information.program_place) == (False, "")


def test_driver_without_xdp_uses_the_generic_hook(cable: Cable) -> None:
    cable.call(lambda: ethernet.set_up("lo", is_up=True))
    with cable.call(lambda: open_port("lo", PortKind.XDP, settings=RingSettings(frame_bytes=1500))) as port:
        assert port.information.program_place == "generic"
        assert port.send([FRAME]) == 1
        assert receive(port, 1) == [FRAME]


def test_the_kernel_is_woken_to_send_only_when_it_asks(cable: Cable) -> None:
    with cable.open("here", PortKind.XDP) as here, cable.open("there") as there:
        flags = (ctypes.c_uint32 * 1)(0)
        asked = queue_of(here).tx.flags
        queue_of(here).tx.flags = pointer_to(flags)
        assert here.send([FRAME] * 3) == 3
        assert there.receive(8) == []
        assert (here.read_counters().tx_frames, queue_of(here).tx_pending) == (0, 3)
        queue_of(here).tx.flags = asked  # this one does
        here.send([FRAME])
        assert receive(there, 4) == [FRAME] * 4
        assert here.read_counters().tx_frames == 4


@pytest.mark.parametrize("asks", [False, True])
def test_the_kernel_is_woken_to_receive_only_when_it_asks(cable: Cable, asks: bool) -> None:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with cable.open("here", PortKind.XDP) as here, cable.open("there") as there, near, far:
        flags = (ctypes.c_uint32 * 1)(int(asks))
        queue = queue_of(here)
        queue.fill.flags = pointer_to(flags)
        # A wake-up is a recv(2) that asks for nothing; on this socket it takes the message.
        own, queue.fd = queue.fd, near.fileno()
        far.send(b"left alone")
        there.send([FRAME])
        assert receive(here, 1) == [FRAME]
        queue.fd = own
        assert bool(select.select([near], [], [], 0)[0]) != asks


@pytest.mark.parametrize("frame", [FRAME, LONG_FRAME], ids=["short", "long"])
def test_who_polls_busily_runs_the_device(cable: Cable, frame: bytes) -> None:
    for device in ("here", "there"):
        cable.change(device, mtu=9000)
    settings = RingSettings(busy_poll_us=100)
    with cable.open("here", PortKind.XDP, settings=settings) as here, cable.open("there", PortKind.XDP) as there:
        # A hardware driver's reaction is its own; veth has delivered the frames before the poll.
        with socket.socket(44, socket.SOCK_RAW, 0, os.dup(here.fileno())) as opened:
            assert opened.getsockopt(socket.SOL_SOCKET, 46) == 100  # SO_BUSY_POLL
            assert opened.getsockopt(socket.SOL_SOCKET, 69) == 1  # SO_PREFER_BUSY_POLL
        for _ in range(20):
            assert there.send([frame] * 16) == 16
            assert poll(here, 16) == [frame] * 16


def poll(port: NicPort, count: int) -> list[bytes]:
    """Poll until this many frames have arrived."""
    frames: list[bytes] = []

    def ask() -> bool:
        frames.extend(port.receive(count - len(frames)))
        return len(frames) == count

    wait_until(ask)
    return frames


def test_frames_of_several_chunks_and_of_one_mix(cable: Cable) -> None:
    for device in ("here", "there"):
        cable.change(device, mtu=9000)
    with cable.open("here", PortKind.XDP) as here, cable.open("there", PortKind.XDP) as there:
        frames = [FRAME, LONG_FRAME, FRAME[:14], LONG_FRAME[:4097], FRAME] * 10
        assert here.send(frames) == len(frames)
        assert receive(there, len(frames)) == frames
        assert there.read_counters().drops == {}


KILLED = """
settings = RingSettings(rx_frames=1 << 14, tx_frames=64)
ports = [open_port("here", kind, settings=settings) for kind in DEVICE_KINDS]
ports += [open_port("there", kind) for kind in (PortKind.PACKET_V2, PortKind.PACKET_V3)]
print("open", flush=True)
while True:
    for port in ports:
        port.send(port.receive(64) or [bytes(60)])
"""


def pinned_pages() -> int:
    """Return the number of pages that devices and sockets have pinned."""
    lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    numbers = {name: int(value) for name, value in map(str.split, lines)}
    return numbers["nr_foll_pin_acquired"] - numbers["nr_foll_pin_released"]


def count_sockets(family: str) -> int:
    """Return how many sockets of a protocol the namespace of this thread has."""
    lines = Path("/proc/thread-self/net/protocols").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[2]) for line in lines if line.split()[0] == family)


def is_promiscuous() -> bool:
    with IPRoute() as netlink:
        return any(link.get_attr("IFLA_PROMISCUITY") for link in netlink.get_links())


def test_a_killed_process_leaves_nothing_behind(cable: Cable) -> None:
    def sockets() -> int:
        return cable.call(lambda: count_sockets("PACKET") + count_sockets("XDP"))

    devices = cable.call(ethernet.list_devices)
    with cable.open("there") as traffic, start_child(cable, KILLED) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"open\n"
        wait_until(lambda: bool(traffic.send([FRAME] * 64) and traffic.receive(64)))
        assert cable.call(lambda: ethernet.read_device("here")).xdp_program is not None
        held = pinned_pages()
        assert sockets() == 6
        child.send_signal(signal.SIGKILL)
        child.wait(HANG_S)
        # Reopening works at once, without any cleaning up.
        for kind in (PortKind.XDP, PortKind.PACKET_V2, PortKind.PACKET_V3):
            cable.open("here", kind).close()
    wait_until(lambda: held - pinned_pages() >= PAGES)
    wait_until(lambda: sockets() == 0)
    assert cable.call(lambda: ethernet.read_device("here")).xdp_program is None
    assert not cable.call(is_promiscuous)
    assert cable.call(ethernet.list_devices) == devices
