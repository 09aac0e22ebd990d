"""Device faults, each against the real thing: a one-line error at open, a counter afterwards."""

from __future__ import annotations

import fcntl
import functools
import os
import struct
from collections.abc import Iterator

import pytest
from pyroute2 import IPRoute

from dataplane.errors import PortError
from dataplane.fabric.kernel import namespaces
from dataplane.nic import NicPort, PortKind, RingSettings
from dataplane.nic.devices import ethernet
from dataplane.nic.devices.device import Device, DeviceWatch, find_device
from dataplane.nic.driver.opening import DEVICE_KINDS
from dataplane.nic.ports.bpf import SocketProgram
from dataplane.nic.ports.packet_socket import open_packet_sockets
from tests.dataplane.nic.children import run_child
from tests.dataplane.nic.conftest import Cable, receive
from tests.network_namespace import add_pair, network_namespace
from tests.waiting import wait_until

pytestmark = pytest.mark.root
every_kind = pytest.mark.parametrize("kind", DEVICE_KINDS, ids=lambda kind: kind.name)
FRAME = bytes.fromhex("020000000002 020000000001 88b5") + bytes(46)


def test_another_xdp_program_on_the_device(cable: Cable) -> None:
    program = cable.call(lambda: SocketProgram(find_device("here"), 1))
    try:
        cable.call(program.attach)
        with pytest.raises(PortError, match=r"^interface here: another XDP program is on it$"):
            cable.open("here", PortKind.XDP)
        cable.open("here").close()  # ports without a program are not affected
    finally:
        program.close()
    cable.open("here", PortKind.XDP).close()


def test_without_rights(cable: Cable) -> None:
    needs_root = "needs root (CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF)"
    lines = run_child(
        cable,
        "os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)\n"
        "for kind in DEVICE_KINDS: try_to_open(kind)",
    )
    assert lines == [f"interface here: features cannot be set: {needs_root}"] * len(DEVICE_KINDS)
    no_raw, no_bpf = "drop_capabilities(13)\n", "drop_capabilities(39, 21)\n"  # CAP_NET_RAW; CAP_BPF, CAP_SYS_ADMIN
    assert run_child(cable, f"{no_raw}try_to_open(PortKind.PACKET_V2)") == [
        f"interface here: a raw socket: {needs_root}"
    ]
    assert run_child(cable, f"{no_bpf}try_to_open(PortKind.XDP)") == [f"interface here: an XDP program: {needs_root}"]


def test_rings_that_do_not_fit_into_locked_memory(cable: Cable) -> None:
    # Locked memory is counted by user: use one without other processes. CAP_IPC_LOCK is 14.
    lines = run_child(
        cable,
        "change_user(1_000_000 + os.getpid())\n"
        "drop_capabilities(14)\n"
        "resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 20, 1 << 20))\n"
        "try_to_open(PortKind.XDP)\n"
        "try_to_open(PortKind.XDP, rx_frames=64, tx_frames=64)\n",
    )
    problem = "10240 KiB of rings exceed the memory that a user may lock, 1024 KiB"
    assert lines == [f"interface here: {problem}: raise ulimit -l, or ask for smaller rings", "opened"]


@every_kind
def test_a_process_with_too_many_files(cable: Cable, kind: PortKind) -> None:
    lines = run_child(
        cable,
        f"kind = PortKind({kind.value})\n"
        "open_files = lambda: len(os.listdir('/proc/self/fd'))\n"
        "try_to_open(kind)\n"
        "before, most = open_files(), resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "for files in range(before, before + 10):\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))\n"
        "    try_to_open(kind)\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))\n"
        "    gc.collect()\n"
        "    assert open_files() == before\n",
    )
    assert set(lines) == {"opened", "interface here: cannot be inspected: Too many open files"}


@every_kind
def test_a_link_that_is_down_at_open(cable: Cable, kind: PortKind) -> None:
    cable.change("here", state="down")
    with pytest.raises(PortError, match=r"^interface here is down: ip link set here up$"):
        cable.open("here", kind)


def test_a_cable_that_is_loose_at_the_other_end(cable: Cable) -> None:
    with cable.open("here") as here:
        wait_until(lambda: here.has_link)
        cable.change("there", state="down")
        wait_until(lambda: not here.has_link)
        assert not here.is_down
        cable.change("there", state="up")
        wait_until(lambda: here.has_link)
    assert not here.has_link


@every_kind
def test_link_that_was_down_loses_no_later_frames(cable: Cable, kind: PortKind) -> None:
    with cable.open("here", kind) as here, cable.open("there", kind) as there:
        cable.change("here", state="down")
        cable.change("here", state="up")
        wait_until(lambda: here.has_link)
        assert here.send([FRAME] * 20) == 20
        assert receive(there, 20) == [FRAME] * 20
        assert not sum(here.read_counters().drops.values())


@every_kind
def test_removed_namespace_stays_while_its_port_is_open(cable: Cable, kind: PortKind) -> None:
    with cable.open("here", kind) as here, cable.open("there", kind) as there:
        namespaces.remove(cable.namespace)
        assert here.send([FRAME]) == 1
        assert receive(there, 1) == [FRAME]
        assert not here.is_down


@every_kind
def test_a_namespace_that_goes_takes_the_device_of_an_open_port(cable: Cable, kind: PortKind) -> None:
    with network_namespace() as other:
        cable.call(lambda: ethernet.move_to_namespace("there", other))
        namespaces.call(other, lambda: ethernet.set_up("there", is_up=True))
        here = cable.open("here", kind)
    with here:
        wait_until(lambda: here.is_down)
        assert here.send([FRAME]) == 0
        assert FRAME not in here.receive(64)
        assert here.read_counters().drops == {"port_down": 1}


@every_kind
def test_recreated_device_is_not_the_opened_one(cable: Cable, kind: PortKind) -> None:
    with cable.open("here", kind) as here:
        cable.change("here", command="del")
        cable.call(lambda: add_pair("here", "there"))
        assert here.is_down
        assert here.send([FRAME]) == 0
        with cable.open("here", kind) as again, cable.open("there", kind) as there:
            wait_until(lambda: bool(again.send([FRAME]) and FRAME in there.receive(8)))
            assert not again.is_down


@every_kind
def test_a_device_that_gets_another_name_is_still_up(cable: Cable, kind: PortKind) -> None:
    with cable.open("here", kind) as here:
        cable.change("here", ifname="elsewhere")
        assert not here.is_down


@every_kind
def test_jumbo_frames_that_the_slots_do_not_hold_are_counted(cable: Cable, kind: PortKind) -> None:
    with cable.open("there", kind) as there:
        for device in ("here", "there"):
            cable.call(functools.partial(ethernet.set_mtu, device, 9000))
        with cable.open("here") as here:
            jumbo = FRAME + bytes(8900)
            assert here.send([FRAME, jumbo, FRAME]) == 3
        if kind is PortKind.PACKET_V3:  # whose blocks hold frames of any length
            assert receive(there, 3) == [FRAME, jumbo, FRAME]
            return
        assert receive(there, 2) == [FRAME, FRAME]
        dropped = "socket_full" if kind is PortKind.XDP else "received_too_long"  # the kernel does not tell these apart
        assert there.read_counters().drops == {dropped: 1}


@pytest.fixture
def tunnel(cable: Cable) -> Iterator[int]:
    """A TUN device named `here` without Ethernet headers: data written to it arrives unchanged."""

    def make() -> int:
        with IPRoute() as netlink:
            netlink.link("del", index=netlink.link_lookup(ifname="here")[0])
        descriptor = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(descriptor, 0x400454CA, struct.pack("16sH22x", b"here", 0x1001))  # TUNSETIFF, IFF_TUN | IFF_NO_PI
        ethernet.set_up("here", is_up=True)
        return descriptor

    descriptor = cable.call(make)
    yield descriptor
    os.close(descriptor)


@pytest.mark.usefixtures("tunnel")
@every_kind
def test_a_device_without_ethernet_headers_is_refused(cable: Cable, kind: PortKind) -> None:
    with pytest.raises(
        PortError, match=r"^interface here: not an Ethernet device: its frames have no Ethernet header$"
    ):
        cable.open("here", kind)


@pytest.mark.parametrize("kind", [PortKind.PACKET_V2, PortKind.PACKET_V3], ids=lambda kind: kind.name)
def test_runts_are_counted(cable: Cable, tunnel: int, kind: PortKind) -> None:
    # Linux sends no runts from Ethernet devices, so use one without Ethernet headers.
    def open_tunnel() -> NicPort:
        device = Device("here", ethernet.read_device("here").index, 1500)
        sockets = open_packet_sockets(device, kind, 1, RingSettings())
        return NicPort("here", sockets, DeviceWatch("here", device.index))

    packet = b"\x45" + bytes(40)
    with cable.call(open_tunnel) as port:
        for length in (1, 13, 14, 41):
            os.write(tunnel, packet[:length])
        assert receive(port, 2) == [packet[:14], packet]
        assert port.read_counters().drops == {"received_too_short": 2}
        assert port.read_counters().rx_frames == 2


@every_kind
def test_a_runt_does_not_leave(cable: Cable, kind: PortKind) -> None:
    with cable.open("here", kind) as here, cable.open("there") as there:
        assert here.send([FRAME[:13], FRAME[:1], FRAME]) == 1
        assert here.read_counters().drops == {"send_refused": 2}
        here.queues[0].shortest_frame = 1  # the kernel does not take it either
        here.send([FRAME[:13], FRAME])
        assert receive(there, 2) == [FRAME, FRAME]
        assert not any(len(frame) < 14 for frame in there.receive(8))
