"""Readers at the other end of a cable: each kind is detected; a plain host stack does not count as one."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from pyroute2 import IPRoute

from dataplane.fabric.kernel import namespaces
from dataplane.linux import PACKET_ADD_MEMBERSHIP, PACKET_MEMBERSHIP_PROMISCUOUS, SOL_PACKET, bpf
from dataplane.nic import PortKind, open_port
from dataplane.nic.devices import far_end
from dataplane.nic.devices.far_end import PLAIN_STACK, FarEnd, LinkFacts, NamespacePaths, why_not_by_links
from dataplane.nic.devices.link_events import CableEvents
from tests.network_namespace import network_namespace
from tests.two_namespaces import HERE, THERE, LongCable, long_cable
from tests.waiting import wait_until

Act = Callable[[ExitStack], None]
ALL, IPV4, ARP = 0x0003, 0x0800, 0x0806
_SCHED_CLS, _TCX_INGRESS, _TCX_EGRESS = 3, 46, 47
_CLONE_NEWNET = 0x4000_0000

PLAIN = LinkFacts("veth", 2, 0, 1_500, "noqueue", 0, has_master=False, has_xdp=False, longest_packet=65_536)


@pytest.fixture
def cable() -> Iterator[LongCable]:
    with long_cable() as made:
        yield made


@pytest.fixture
def observer(cable: LongCable) -> Iterator[FarEnd]:
    """Far end as observed from `here`."""
    made = cable.here(lambda: FarEnd(socket.if_nametoindex(HERE), (), NamespacePaths()))
    yield made
    made.close()


def look(cable: LongCable, observer: FarEnd) -> str:
    """Look from a thread of the namespace."""
    return cable.here(observer.look)


def change(device: str, **values: object) -> Act:
    def act(_: ExitStack) -> None:
        with IPRoute() as netlink:
            netlink.link("set", index=socket.if_nametoindex(device), **values)

    return act


def queueing(kind: str, device: str, **values: object) -> Act:
    def act(_: ExitStack) -> None:
        with IPRoute() as netlink:
            netlink.tc("add", kind, socket.if_nametoindex(device), **values)

    return act


def listen(family: int, kind: int, protocol: int, device: str | None = None, *, promiscuous: bool = False) -> Act:
    def act(stack: ExitStack) -> None:
        number = socket.htons(protocol) if family == socket.AF_PACKET else protocol
        opened = stack.enter_context(socket.socket(family, kind, number if device is None else 0))
        if device is not None:
            opened.bind((device, protocol))
        if promiscuous:
            member = struct.pack("=iHH8s", socket.if_nametoindex(THERE), PACKET_MEMBERSHIP_PROMISCUOUS, 0, b"")
            opened.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, member)

    return act


def stacked(kind: str) -> Act:
    def act(_: ExitStack) -> None:
        with IPRoute() as netlink:
            index = socket.if_nametoindex(THERE)
            if kind == "bridge":
                netlink.link("add", ifname="upper", kind="bridge")
                netlink.link("set", index=index, master=socket.if_nametoindex("upper"))
            else:
                netlink.link("add", ifname="upper", kind=kind, link=index, macvlan_mode="bridge")
            netlink.link("set", index=socket.if_nametoindex("upper"), state="up")

    return act


def attached(device: str, kind: int) -> Act:
    """Attach a program by tcx, which no queueing discipline shows."""

    def act(stack: ExitStack) -> None:
        code = bpf.instruction(bpf.SET, 0, immediate=-1 & 0x7FFF_FFFF) + bpf.instruction(bpf.EXIT)
        program = bpf.load_program(_SCHED_CLS, code)
        link = bpf.bpf(bpf.LINK_CREATE, struct.pack("=IIII32x", program, socket.if_nametoindex(device), kind, 0))
        os.close(program)
        stack.callback(os.close, link)

    return act


def xdp_port(stack: ExitStack) -> None:
    stack.enter_context(open_port(THERE, PortKind.XDP))


PACKET = (socket.AF_PACKET, socket.SOCK_RAW)
RAW = (socket.AF_INET, socket.SOCK_RAW)
THERE_ACTS: dict[str, tuple[Act, str]] = {
    "promiscuous": (change(THERE, promiscuity=1, flags=0x100, change=0x100), far_end.PROMISCUOUS),
    "captured promiscuously": (listen(*PACKET, ALL, THERE, promiscuous=True), far_end.PROMISCUOUS),
    "captured": (listen(*PACKET, ALL, THERE), far_end.PACKET_SOCKET),
    "captured on any device": (listen(*PACKET, ALL), far_end.PACKET_SOCKET),
    "IPv4 captured": (listen(*PACKET, IPV4, THERE), far_end.PACKET_SOCKET),
    "cooked": (listen(socket.AF_PACKET, socket.SOCK_DGRAM, ALL, THERE), far_end.PACKET_SOCKET),
    "TCP read raw": (listen(*RAW, socket.IPPROTO_TCP), far_end.RAW_SOCKET),
    "bridge": (stacked("bridge"), far_end.HAS_MASTER),
    "macvlan": (stacked("macvlan"), far_end.PROMISCUOUS),
    "XDP": (xdp_port, far_end.HAS_XDP),
    "MTU": (change(THERE, mtu=1_400), far_end.SMALLER_MTU),
    "GRO": (change(THERE, gro_max_size=30_000), far_end.SHORT_PACKETS),
    "GSO": (change(THERE, gso_max_size=30_000), far_end.SHORT_PACKETS),
    "clsact": (queueing("clsact", THERE), far_end.FILTERED_THERE),
    "ingress": (queueing("ingress", THERE), far_end.FILTERED_THERE),
    "tcx": (attached(THERE, _TCX_INGRESS), far_end.FILTERED_THERE),
    # Readers of other frames than TCP do not matter.
    "ARP": (listen(*PACKET, ARP, THERE), PLAIN_STACK),
    "sends only": (listen(*PACKET, 0, THERE), PLAIN_STACK),
    "ping": (listen(*RAW, socket.IPPROTO_ICMP), PLAIN_STACK),
    "what it sends is shaped": (
        queueing("tbf", THERE, handle=0x10000, rate=125_000_000, burst=100_000, latency=10_000),
        PLAIN_STACK,
    ),
}
HERE_ACTS: dict[str, tuple[Act, str]] = {
    "captured": (listen(*PACKET, ALL, HERE), far_end.CAPTURED),
    "captured on any device": (listen(*PACKET, ALL), far_end.CAPTURED),
    "shaped": (queueing("tbf", HERE, handle=0x10000, rate=125_000_000, burst=100_000, latency=10_000), far_end.SHAPED),
    "loses all": (queueing("pfifo", HERE, handle=0x10000, limit=0), far_end.SHAPED),
    "clsact": (queueing("clsact", HERE), far_end.FILTERED_HERE),
    "tcx": (attached(HERE, _TCX_EGRESS), far_end.FILTERED_HERE),
    "captured on another device": (listen(*PACKET, ALL, "lo"), PLAIN_STACK),
}


@pytest.mark.root
@pytest.mark.parametrize(("act", "reason"), THERE_ACTS.values(), ids=THERE_ACTS)
def test_who_reads_at_the_other_end_is_seen(cable: LongCable, observer: FarEnd, act: Act, reason: str) -> None:
    assert look(cable, observer) == PLAIN_STACK
    with ExitStack() as stack:
        cable.there(lambda: act(stack))
        assert look(cable, observer) == reason


@pytest.mark.root
@pytest.mark.parametrize(("act", "reason"), HERE_ACTS.values(), ids=HERE_ACTS)
def test_who_sees_what_leaves_at_this_end_is_seen(cable: LongCable, observer: FarEnd, act: Act, reason: str) -> None:
    assert look(cable, observer) == PLAIN_STACK
    with ExitStack() as stack:
        cable.here(lambda: act(stack))
        assert look(cable, observer) == reason


@pytest.mark.root
def test_who_reads_here_by_right_does_not_count(cable: LongCable) -> None:
    with ExitStack() as stack:
        reader = cable.here(lambda: socket.socket(*PACKET, socket.htons(ALL)))
        stack.enter_context(reader)
        own = os.fstat(reader.fileno()).st_ino
        observer = cable.here(lambda: FarEnd(socket.if_nametoindex(HERE), [own], NamespacePaths()))
        stack.callback(observer.close)
        assert look(cable, observer) == PLAIN_STACK


@pytest.mark.root
def test_an_end_in_the_same_namespace_and_what_is_no_cable() -> None:
    with network_namespace((HERE, THERE)) as name:
        for device, reason in ((HERE, far_end.SAME_NAMESPACE), ("lo", far_end.NO_VETH)):
            index = namespaces.call(name, lambda device=device: socket.if_nametoindex(device))  # type: ignore[misc]
            observer = namespaces.call(name, lambda index=index: FarEnd(index, (), NamespacePaths()))  # type: ignore[misc]
            assert namespaces.call(name, observer.look) == reason
            observer.close()


@pytest.mark.root
def test_a_namespace_to_which_no_path_leads(cable: LongCable, observer: FarEnd) -> None:
    def nameless() -> int:
        assert ctypes.CDLL(None).unshare(_CLONE_NEWNET) == 0
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    held = cable.there(nameless)  # only by this descriptor, once the thread has ended
    cable.there(lambda: change(THERE, net_ns_fd=held)(ExitStack()))
    assert look(cable, observer) == far_end.NOT_VISIBLE
    os.close(held)


@pytest.mark.root
def test_a_namespace_that_was_looked_at_vanishes_as_it_would(cable: LongCable, observer: FarEnd) -> None:
    assert look(cable, observer) == PLAIN_STACK
    namespaces.remove(cable.far)
    wait_until(lambda: look(cable, observer) == "its other end cannot be inspected: No such device")


@pytest.mark.root
def test_the_kernel_tells_of_the_other_end(cable: LongCable, observer: FarEnd) -> None:
    assert look(cable, observer) == PLAIN_STACK
    events = cable.here(CableEvents)
    assert events.take() == frozenset()
    (far,) = (end for end in observer.ends if end[0] is not None)
    for act in (THERE_ACTS["promiscuous"][0], THERE_ACTS["clsact"][0], THERE_ACTS["MTU"][0]):
        cable.there(lambda act=act: act(ExitStack()))  # type: ignore[misc]
        changed = events.take()
        assert changed is not None
        assert far in changed
    cable.here(lambda: change(HERE, mtu=1_300)(ExitStack()))
    assert (None, cable.here(lambda: socket.if_nametoindex(HERE))) in (events.take() or ())
    events.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        events.take()


@pytest.mark.parametrize(
    ("near", "far", "reason"),
    [
        ({}, {}, PLAIN_STACK),
        ({"queueing": "fq"}, {"promiscuity": 1}, far_end.SHAPED),
        ({}, {"promiscuity": 2, "has_master": True}, far_end.HAS_MASTER),
        ({"promiscuity": 3, "has_xdp": True, "has_master": True}, {"queueing": "fq", "mtu": 9_000}, PLAIN_STACK),
        ({"longest_packet": 65_535}, {}, far_end.SHORT_PACKETS),
    ],
)
def test_what_two_ends_say(near: dict[str, int], far: dict[str, int], reason: str) -> None:
    assert why_not_by_links(replace(PLAIN, **near), replace(PLAIN, **far)) == reason  # type: ignore[arg-type]
