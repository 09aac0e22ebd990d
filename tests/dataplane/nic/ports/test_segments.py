"""TCP segments that leave as one packet: which ones are joined, and that splitting restores them, to the bit."""

from __future__ import annotations

import ctypes
import os
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address

import pytest

from dataplane.native import Array, as_u64, copy, kernel, kernel_library, offset, pointer_to, u8, u32, u64
from dataplane.native.doorbell import Bell
from dataplane.nic import PortKind, RingSettings
from dataplane.nic.devices.offloads import disable_offloads
from dataplane.nic.layouts import MessageHeader
from dataplane.nic.ports.kernels.segment_transmit import commit_segment, reserve_segment
from dataplane.nic.ports.queue import JoinGate, PacketQueue
from dataplane.nic.ports.segment_sender import FOREVER, LineMemory, open_gate, shut_gate
from dataplane.wire import ipv4, tcp
from dataplane.wire.ipv4 import DONT_FRAGMENT, PROTOCOL_TCP, Ipv4
from dataplane.wire.packet import link_header, tcp_frame
from tests.dataplane.nic.conftest import Cable, receive, total_bytes
from tests.waiting import wait_until

SRC_MAC, DST_MAC = 0x02_00_00_00_00_02, 0x02_00_00_00_00_01
SRC, DST = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
ACK, PSH, FIN, ECE = 0x10, 0x08, 0x01, 0x40
TIMES = bytes.fromhex("0101080a 00000007 00000009")
JOINING = RingSettings(join_segments="always")
MTU = 2_000
_HOUR_NS = 3_600_000_000_000


@dataclass(frozen=True, slots=True)
class Segment:
    """One frame of a stream, with the fields that these tests vary."""

    sequence: int
    payload: bytes = bytes(range(100))
    identification: int = 7
    ip_flags: int = DONT_FRAGMENT
    ttl: int = 64
    ecn: int = 0
    src: IPv4Address = SRC
    port: int = 80
    acknowledgment: int = 5
    flags: int = ACK
    window: int = 100
    urgent: int = 0
    reserved: int = 0
    options: bytes = TIMES
    ip_options: bytes = b""

    def encode(self) -> bytes:
        header = tcp.Tcp(
            *(4_000, self.port, self.sequence, self.acknowledgment, self.reserved, self.flags, self.window),
            urgent=self.urgent,
            options=self.options,
        )
        inner = tcp.segment(self.src, DST, header, self.payload)
        ip = Ipv4(
            *(self.src, DST, PROTOCOL_TCP, 20 + len(self.ip_options) + len(inner)),
            ecn=self.ecn,
            identification=self.identification,
            flags=self.ip_flags,
            ttl=self.ttl,
            options=self.ip_options,
        )
        return link_header(SRC_MAC, DST_MAC, 4) + ip.checked().encode() + inner


FIRST = Segment(1_000)
NEXT = replace(FIRST, sequence=1_100, identification=8)
THIRD = replace(FIRST, sequence=1_200, identification=9)


def changed(frame: bytes, position: int) -> bytes:
    """Return a frame with one bit changed."""
    return frame[:position] + bytes([frame[position] ^ 1]) + frame[position + 1 :]


def of_ipv6(sequence: int) -> bytes:
    return tcp_frame(
        src_mac=SRC_MAC,
        dst_mac=DST_MAC,
        src=IPv6Address("fd00::1"),
        dst=IPv6Address("fd00::2"),
        header=tcp.Tcp(1, 2, sequence, flags=ACK),
        payload=bytes(100),
    )


@kernel
def line_up(queue: PacketQueue, data: Array[u8], lengths: Array[u32], count: u32) -> None:
    """Queue consecutive frames without sending any."""
    start: u64 = 0
    for index in range(count):
        copy(reserve_segment(queue, lengths[index]), offset(data, start), as_u64(lengths[index]))
        commit_segment(queue, lengths[index])
        start += as_u64(lengths[index])


def frames_of_messages(*frames: bytes, gate: JoinGate | None = None) -> list[int]:
    """Return the number of frames of each message once these are queued."""
    memory = LineMemory(-1, MTU, gate or open_gate())
    queue = PacketQueue(kind=PortKind.PACKET_V2, transmit_room=memory.room, shortest_frame=14, longest_frame=MTU)
    queue.segments, queue.device_fd = memory.line, -1
    lengths = (ctypes.c_uint32 * len(frames))(*map(len, frames))
    kernel_library(line_up).bind(line_up)(queue, pointer_to(bytearray(b"".join(frames))), lengths, len(frames))
    messages = (MessageHeader * memory.line.messages).from_address(memory.line.vector.address)
    counts = [message.vector_count for message in messages]
    memory.close()
    return counts


@pytest.mark.parametrize(
    ("frames", "messages"),
    [
        ([FIRST, NEXT, THIRD], [3]),
        ([FIRST], [1]),
        ([replace(each, options=b"") for each in (FIRST, NEXT)], [2]),
        ([replace(each, ip_flags=0) for each in (FIRST, NEXT)], [2]),
        ([replace(FIRST, sequence=2**32 - 50), replace(NEXT, sequence=50)], [2]),
        ([replace(FIRST, identification=2**16 - 1), replace(NEXT, identification=0)], [2]),
        ([FIRST, replace(NEXT, payload=bytes(99)), replace(THIRD, sequence=1_199)], [2, 1]),
        ([FIRST, replace(NEXT, flags=ACK | PSH), THIRD], [2, 1]),
        ([replace(FIRST, flags=ACK | PSH), NEXT, THIRD], [1, 2]),
        ([FIRST, replace(NEXT, payload=bytes(101))], [1, 1]),
        ([FIRST, replace(NEXT, payload=b"")], [1, 1]),
        ([FIRST, FIRST], [1, 1]),
        ([FIRST, THIRD, NEXT], [1, 1, 1]),
        ([FIRST, replace(NEXT, identification=7)], [1, 1]),
        ([FIRST, replace(NEXT, identification=9)], [1, 1]),
        ([FIRST, replace(NEXT, ttl=63)], [1, 1]),
        ([FIRST, replace(NEXT, ecn=3)], [1, 1]),
        ([FIRST, replace(NEXT, src=IPv4Address("10.0.0.3"))], [1, 1]),
        ([FIRST, replace(NEXT, port=81)], [1, 1]),
        ([FIRST, replace(NEXT, acknowledgment=6)], [1, 1]),
        ([FIRST, replace(NEXT, window=101)], [1, 1]),
        ([FIRST, replace(NEXT, urgent=1)], [1, 1]),
        ([FIRST, replace(NEXT, options=TIMES[:-1] + b"\x0a")], [1, 1]),
        ([FIRST, replace(NEXT, options=b"")], [1, 1]),
        ([FIRST, replace(NEXT, ip_flags=0)], [1, 1]),
        *([[replace(each, ip_flags=flags) for each in (FIRST, NEXT)], [1, 1]] for flags in (1, 4)),
        *([[replace(each, flags=flags) for each in (FIRST, NEXT)], [1, 1]] for flags in (0, ACK | FIN, ACK | ECE)),
        ([replace(each, reserved=1) for each in (FIRST, NEXT)], [1, 1]),
        ([replace(each, ip_options=bytes(4)) for each in (FIRST, NEXT)], [1, 1]),
    ],
)
def test_what_linux_would_join_is_one_message_and_nothing_else(frames: list[Segment], messages: list[int]) -> None:
    assert frames_of_messages(*(frame.encode() for frame in frames)) == messages


@pytest.mark.parametrize("offset", [14 + 10, 14 + 20 + 16, 14 + 20 + 20 + 12, -1], ids=["ip", "tcp", "first", "last"])
def test_wrong_checksums_stay_with_their_frames(offset: int) -> None:
    for size in (100, 101, 102, 103):
        first = replace(FIRST, payload=random.Random(size).randbytes(size))
        second = replace(first, sequence=1_000 + size, identification=8)
        frames = [first.encode(), second.encode()]
        assert frames_of_messages(*frames) == [2]
        at = offset % len(frames[0])
        assert frames_of_messages(changed(frames[0], at), frames[1]) == [1, 1]
        assert frames_of_messages(frames[0], changed(frames[1], at)) == [1, 1]


def test_what_is_no_tcp_of_ipv4_or_is_padded_is_not_joined() -> None:
    assert frames_of_messages(of_ipv6(0), of_ipv6(100)) == [1, 1]
    padded = [frame.encode() + b"\0" for frame in (FIRST, NEXT)]
    assert frames_of_messages(*padded) == [1, 1]
    for length in range(14, 14 + 20 + 20 + 12 + 1):
        cut = FIRST.encode()[:length]
        assert frames_of_messages(cut, cut) == [1, 1]


def test_a_train_ends_before_it_is_longer_than_an_ipv4_packet() -> None:
    size = 1_448
    stream = [replace(FIRST, sequence=size * n, identification=n, payload=bytes(size)) for n in range(90)]
    messages = frames_of_messages(*(each.encode() for each in stream))
    assert sum(messages) == 90
    assert len(messages) == 3
    assert max(messages) * size + 52 <= 65_535


@pytest.mark.parametrize(
    ("until_ns", "ask_from_ns", "messages", "asks"),
    [
        (FOREVER, FOREVER, [2], False),
        (_HOUR_NS, 0, [2], False),
        (0, 0, [1, 1], True),
        (-1, -1, [1, 1], True),
        (-1, _HOUR_NS, [1, 1], False),
        (0, FOREVER, [1, 1], False),
    ],
)
def test_a_gate_is_open_for_a_time_and_asked_once_it_is_not(
    until_ns: int, ask_from_ns: int, messages: list[int], asks: bool
) -> None:
    """Times but 0 and FOREVER count from now on."""
    now_ns = time.monotonic_ns()
    until_ns, ask_from_ns = (at if at in {0, FOREVER} else now_ns + at for at in (until_ns, ask_from_ns))
    bell = Bell(fd=os.eventfd(0, os.EFD_NONBLOCK), waiting=1)
    gate = JoinGate(until_ns=until_ns, ask_from_ns=ask_from_ns, bell=bell)
    assert frames_of_messages(FIRST.encode(), NEXT.encode(), gate=gate) == messages
    assert (gate.asked, bell.rings) == (asks, asks)
    assert gate.trains == 0  # those that are sent count
    gate.asked, bell.waiting = 0, 1
    assert frames_of_messages(FIRST.encode(), THIRD.encode(), gate=gate) == [1, 1]
    assert gate.asked == 0  # there was nothing to join
    os.close(bell.fd)


def test_a_shut_gate_with_nobody_to_ask() -> None:
    gate = shut_gate()
    assert frames_of_messages(FIRST.encode(), NEXT.encode(), gate=gate) == [1, 1]
    assert gate.asked == 0


# ---- on devices


def drawn_frames(seed: int) -> list[bytes]:
    """Return frames of two streams, mixed with frames that break trains."""
    rng = random.Random(seed)
    streams = [replace(FIRST, port=port, identification=rng.randrange(2**16)) for port in (80, 81)]
    frames: list[bytes] = []
    while len(frames) < 60:
        number = rng.randrange(2)
        for _ in range(rng.choice((1, 2, 7))):
            short, push = rng.random() < 0.1, rng.random() < 0.1
            payload = rng.randbytes(rng.randrange(1, 700) if short else 700)
            sent = replace(streams[number], payload=payload, flags=ACK | PSH if push else ACK)
            frame = sent.encode()
            frames.append(changed(frame, rng.randrange(14, len(frame))) if rng.random() < 0.05 else frame)
            step = (sent.sequence + len(payload)) % 2**32, (sent.identification + 1) % 2**16
            streams[number] = replace(streams[number], sequence=step[0], identification=step[1])
    return frames


@pytest.mark.root
@pytest.mark.parametrize("queues", [1, 2])
@pytest.mark.parametrize("kind", [PortKind.PACKET_V2, PortKind.PACKET_V3], ids=lambda kind: kind.name)
def test_linux_cuts_them_apart_to_what_they_were(cable: Cable, kind: PortKind, queues: int) -> None:
    with cable.open("here", kind, queues, JOINING) as here, cable.open("there", kind) as there:
        cable.call(lambda: disable_offloads("here"))  # the device takes no joined packets now
        sent = [frame for seed in range(20) for frame in drawn_frames(seed)]
        for start in range(0, len(sent), 60):
            burst = sent[start : start + 60]
            assert here.send(burst) == len(burst)
            assert receive(there, len(burst)) == burst
        reading = here.read_counters()
        assert (reading.tx_frames, reading.tx_bytes) == (len(sent), total_bytes(sent))
        assert (reading.rx_frames, reading.drops) == (0, {})


@pytest.mark.root
def test_a_stack_at_the_other_end_gets_one_packet(cable: Cable) -> None:
    def listen() -> socket.socket:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        opened.bind(("there", 0x0800))
        opened.settimeout(10)
        return opened

    frames = [each.encode() for each in (FIRST, NEXT, replace(THIRD, flags=ACK | PSH))]
    with cable.open("here", settings=JOINING) as here, cable.call(listen) as there:
        assert here.send(frames) == 3
        packet = there.recv(1 << 16)
    inner = frames[0][14 + 20 + 20 + 12 :]
    ip, header = ipv4.decode(packet, 14), tcp.decode(packet, 34)
    assert (ip.total_length, ip.valid) == (len(packet) - 14, True)
    assert (header.sequence, header.flags, header.options) == (1_000, ACK | PSH, TIMES)
    assert packet[14 + 20 + 32 :] == inner * 3


@pytest.mark.root
def test_drops_are_counted_by_frame(make_cable: Callable[..., Cable]) -> None:
    cable = make_cable(MTU)
    frames = [each.encode() for each in (FIRST, NEXT, THIRD)]
    with cable.open("here", settings=JOINING) as here:
        cable.change("here", mtu=1_000)
        long = replace(FIRST, payload=bytes(1_200)).encode()
        assert here.send([long]) == 0
        cable.change("here", state="down")
        assert here.send(frames) == 0
        assert here.is_down
        assert here.read_counters().drops == {"too_long": 1, "port_down": 3}
        cable.change("here", state="up")
        wait_until(lambda: here.send(frames) == 3)
        assert not here.is_down
