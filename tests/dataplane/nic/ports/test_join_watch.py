"""Ports that join TCP segments automatically: only without a frame reader at the other end, and again afterwards."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import pytest

from dataplane.fabric.kernel import namespaces
from dataplane.linux import PACKET_ADD_MEMBERSHIP, PACKET_MEMBERSHIP_PROMISCUOUS, SOL_PACKET
from dataplane.nic import NicPort, RingSettings, open_port
from dataplane.nic.devices import ethernet, far_end
from dataplane.nic.devices.far_end import PLAIN_STACK
from dataplane.nic.ports.join_watch import JoinWatch
from tests.dataplane.nic.ports.test_segments import ACK, FIRST, PSH
from tests.network_namespace import network_namespace
from tests.two_namespaces import HERE, THERE, LongCable, long_cable
from tests.waiting import wait_until

pytestmark = pytest.mark.root
MTU, ETHERNET_BYTES, SIZE = 1_500, 14, 1_400
BURST = [
    replace(FIRST, sequence=SIZE * n, identification=n, payload=bytes([n]) * SIZE, flags=ACK | (PSH if n == 7 else 0))
    for n in range(8)
]
FRAMES = [each.encode() for each in BURST]
"""Frames that may leave as one packet."""


@dataclass(slots=True)
class Watched:
    """A port with its watch, and the watch's last report."""

    cable: LongCable
    port: NicPort
    reasons: list[str] = field(default_factory=list)

    @property
    def reason(self) -> str | None:
        return self.reasons[-1] if self.reasons else None

    @property
    def trains(self) -> int:
        assert self.port.gate is not None
        return self.port.gate.trains

    def send_until(self, condition: Callable[[], bool]) -> None:
        """Send bursts until a condition holds."""

        def send_and_ask() -> bool:
            self.port.send(FRAMES)
            return condition()

        wait_until(send_and_ask)

    def joins_again(self) -> bool:
        """Send a burst; return whether it was joined."""
        before = self.trains
        self.port.send(FRAMES)
        return self.trains > before


@pytest.fixture
def watched() -> Iterator[Watched]:
    with ExitStack() as stack:
        cable = stack.enter_context(long_cable(MTU))
        port = stack.enter_context(cable.here(lambda: open_port(HERE, settings=RingSettings(join_segments="gated"))))
        watch = cable.here(lambda: JoinWatch({1: port}))
        stack.callback(watch.close)
        made = Watched(cable, port)
        cable.here(lambda: watch.start(lambda _, reason: made.reasons.append(reason)))
        wait_until(lambda: made.reason is not None)
        yield made


def reader(*, promiscuous: bool) -> socket.socket:
    """Return a packet socket on the device `there` of this namespace."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    opened.bind((THERE, 3))
    if promiscuous:
        member = struct.pack("=iHH8s", socket.if_nametoindex(THERE), PACKET_MEMBERSHIP_PROMISCUOUS, 0, b"")
        opened.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, member)
    opened.setblocking(False)
    return opened


def drained(opened: socket.socket) -> list[bytes]:
    """Return a socket's waiting data."""
    frames = []
    while True:
        try:
            frames.append(opened.recv(1 << 17))
        except BlockingIOError:
            return frames


@pytest.mark.parametrize("promiscuous", [True, False])
def test_who_reads_before_a_transfer_sees_every_frame_as_it_was(watched: Watched, promiscuous: bool) -> None:
    assert watched.reasons == [PLAIN_STACK]
    with watched.cable.there(lambda: reader(promiscuous=promiscuous)) as opened:
        sent = 0
        while watched.reason == PLAIN_STACK:
            watched.port.send(FRAMES)
            sent += 1
        watched.port.send(FRAMES)
        assert drained(opened) == FRAMES * (sent + 1)
        assert watched.trains == 0
    watched.send_until(watched.joins_again)
    assert watched.reason == PLAIN_STACK


@pytest.mark.parametrize(
    ("promiscuous", "reason"), [(True, far_end.PROMISCUOUS), (False, far_end.PACKET_SOCKET)], ids=["promiscuous", "not"]
)
def test_who_begins_in_the_midst_of_one_soon_does(watched: Watched, promiscuous: bool, reason: str) -> None:
    watched.send_until(watched.joins_again)
    with watched.cable.there(lambda: reader(promiscuous=promiscuous)) as opened:
        watched.send_until(lambda: watched.reason == reason)
        seen = drained(opened)
        trains = watched.trains
        for _ in range(100):
            watched.port.send(FRAMES)
        assert drained(opened) == FRAMES * 100
        assert watched.trains == trains
    # Nothing was lost or doubled meanwhile, joined or not: the payloads come one behind the other.
    headers = ETHERNET_BYTES + 20 + 32
    payload = b"".join(frame[headers:] for frame in seen)
    whole = b"".join(each.payload for each in BURST)
    assert payload == whole * (len(payload) // len(whole))
    assert max(map(len, seen), default=0) <= ETHERNET_BYTES + 20 + 32 + len(whole)


def test_each_of_several_queues_keeps_to_the_gate() -> None:
    with ExitStack() as stack:
        cable = stack.enter_context(long_cable(MTU))
        settings = RingSettings(join_segments="gated")
        port = stack.enter_context(cable.here(lambda: open_port(HERE, queues=2, settings=settings)))
        gates = {queue.segments.gate.address for queue in port.queues}
        assert port.gate is not None
        assert gates == {port.gate.address}


def test_without_a_watch_nothing_is_joined() -> None:
    with ExitStack() as stack:
        cable = stack.enter_context(long_cable(MTU))
        port = stack.enter_context(cable.here(lambda: open_port(HERE, settings=RingSettings(join_segments="gated"))))
        opened = stack.enter_context(cable.there(lambda: reader(promiscuous=False)))
        for _ in range(10):
            port.send(FRAMES)
        assert drained(opened) == FRAMES * 10


def test_a_device_that_is_no_cable_has_no_gate() -> None:
    def has_gate() -> bool:
        ethernet.set_up("lo", is_up=True)
        with open_port("lo", settings=RingSettings(join_segments="gated")) as port:
            return port.gate is not None

    with network_namespace() as name:
        assert not namespaces.call(name, has_gate)
