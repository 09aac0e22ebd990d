"""Every kind of port on a veth pair: exact bytes, counters, rings that run over, devices that go and come back."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable

import pytest

from dataplane.errors import PortError
from dataplane.nic import NicPort, PortKind, RingSettings
from dataplane.nic.driver.opening import DEVICE_KINDS
from tests.dataplane.nic.conftest import Cable, needs_dpdk, receive, total_bytes
from tests.waiting import wait_until

MACS = bytes.fromhex("020000000002 020000000001")
FRAME = MACS + b"\x88\xb5" + bytes(range(46))
TAGGED = MACS + bytes.fromhex("8100 6005") + b"\x88\xb5" + bytes(range(46))
SERVICE_TAGGED = MACS + bytes.fromhex("88a8 0003 8100 0004") + b"\x88\xb5" + bytes(range(46))
JUMBO_MTU = 9216

pytestmark = pytest.mark.root
KINDS = (*DEVICE_KINDS, pytest.param(PortKind.DPDK, marks=needs_dpdk))
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def make_frame(length: int, seed: int = 0) -> bytes:
    """Return a frame of random bytes behind an experimental ethertype."""
    return (MACS + b"\x88\xb5" + random.Random(length << 8 | seed).randbytes(length))[:length]


def open_both(cable: Cable, kind: PortKind, settings: RingSettings | None = None) -> tuple[NicPort, NicPort]:
    return cable.open("here", kind, settings=settings), cable.open("there", kind, settings=settings)


@every_kind
def test_frames_cross_to_the_byte_and_own_ones_do_not_come_back(cable: Cable, kind: PortKind) -> None:
    here, there = open_both(cable, kind)
    # DPDK's driver restores the outer tag, which the kernel takes out, always as 802.1Q.
    frames = [FRAME, TAGGED, FRAME if kind is PortKind.DPDK else SERVICE_TAGGED, make_frame(2014)]
    with here, there:
        assert here.send(frames) == 4
        assert receive(there, 4) == frames
        assert there.send(frames[::-1]) == 4
        assert receive(here, 4) == frames[::-1]
        assert (here.receive(8), there.receive(8)) == ([], [])
    for reading in (here.read_counters(), there.read_counters()):
        assert (reading.rx_frames, reading.rx_bytes) == (4, total_bytes(frames))
        assert (reading.tx_frames, reading.tx_bytes) == (4, total_bytes(frames))
        assert (reading.drops, reading.checksum_not_ready) == ({}, 0)


@every_kind
def test_every_length_crosses(make_cable: Callable[..., Cable], kind: PortKind) -> None:
    # Around the sizes of chunks, pages and slots, and a stride through all others.
    edges = [2**power + step for power in range(4, 14) for step in range(-2, 3)]
    lengths = sorted({*range(14, JUMBO_MTU + 14, 61), *edges, 3839, 3840, 3841, 9229, 9230} - set(range(14)))
    frames = [make_frame(length) for length in lengths]
    here, there = open_both(make_cable(JUMBO_MTU), kind)
    with here, there:
        for start in range(0, len(frames), 32):
            batch = frames[start : start + 32]
            assert here.send(batch) == len(batch)
            assert receive(there, len(batch)) == batch


@every_kind
def test_a_burst_larger_than_the_ring_is_cut_and_counted(cable: Cable, kind: PortKind) -> None:
    settings = RingSettings(rx_frames=64, tx_frames=64, block_bytes=1 << 16)
    here, there = open_both(cable, kind, settings)
    frames = [make_frame(1500, seed) for seed in range(256)] * 4
    with here, there:
        sent = here.send(frames)
        tx = here.read_counters()
        received: list[bytes] = []
        wait_until(lambda: bool(here.send([])) or total_seen(there, received) == here.read_counters().tx_frames)
        rx = there.read_counters()
    assert sent == tx.tx_frames
    assert tx.tx_frames + tx.drops.get("send_queue_full", 0) == len(frames)
    assert rx.drops["socket_full"] == tx.tx_frames - rx.rx_frames > 0
    assert set(received) <= set(frames)


def total_seen(port: NicPort, received: list[bytes]) -> int:
    received += port.receive(1000)
    reading = port.read_counters()
    return reading.rx_frames + sum(reading.drops.values())


@every_kind
def test_frames_in_a_stream_keep_their_order(cable: Cable, kind: PortKind) -> None:
    # Many times round the rings.
    here, there = open_both(cable, kind, RingSettings(rx_frames=64, tx_frames=64, block_bytes=1 << 16))
    with here, there:
        for lap in range(100):
            frames = [make_frame(60 + number, lap) for number in range(20)]
            assert here.send(frames) == 20
            dropped = sum(there.read_counters().drops.values())
            got = receive(there, 20)
            # A receiver that waits for a processor may find its ring full: what is lost is counted, the rest in order.
            lost = sum(there.read_counters().drops.values()) - dropped
            left = iter(frames)
            assert all(frame in left for frame in got)
            assert len(got) + lost >= 20


@every_kind
def test_what_may_not_be_sent_is_counted_by_cause(cable: Cable, kind: PortKind) -> None:
    here, there = open_both(cable, kind)
    tagged_to_the_brim = TAGGED[:16] + bytes(2002)
    with here, there:
        assert here.send([bytes(3000), b"short", make_frame(2015), tagged_to_the_brim, FRAME, bytes(1 << 16)]) == 2
        assert receive(there, 2) == [tagged_to_the_brim, FRAME]
        assert here.read_counters().drops == {"too_long": 3, "send_refused": 1}


def test_a_frame_longer_than_a_slot_is_counted_and_not_cut(make_cable: Callable[..., Cable]) -> None:
    cable = make_cable(4000)
    with cable.open("here") as here, cable.open("there", settings=RingSettings(frame_bytes=1500)) as there:
        long, short = make_frame(4000), make_frame(1500)
        assert here.send([short, long, short]) == 3
        assert receive(there, 2) == [short, short]
        assert there.read_counters().drops == {"received_too_long": 1}


@every_kind
def test_a_new_mtu_counts_from_then_on(cable: Cable, kind: PortKind) -> None:
    here, there = open_both(cable, kind)
    for device in ("here", "there"):
        cable.change(device, mtu=1000)
    with here, there:
        here.send([make_frame(1800), FRAME])
        if kind is not PortKind.XDP:  # which does not look, here or in the kernel; the other end drops it
            assert here.read_counters().drops == {"too_long": 1}
            assert here.read_counters().tx_frames == 1
        assert receive(there, 1) == [FRAME]
        for device in ("here", "there"):
            cable.change(device, mtu=2000)
        assert here.send([make_frame(1800)]) == 1
        assert receive(there, 1) == [make_frame(1800)]


@every_kind
def test_a_port_that_goes_down_drops_and_comes_back(cable: Cable, kind: PortKind) -> None:
    here, there = open_both(cable, kind)
    with here, there:
        cable.change("here", state="down")
        wait_until(lambda: here.is_down)
        assert here.send([FRAME] * 3) == 0
        assert here.read_counters().drops == {"port_down": 3}
        assert here.receive(8) == []
        cable.change("here", state="up")
        wait_until(lambda: not here.is_down)
        # The kernel lets frames through up to a second later (linkwatch).
        wait_until(lambda: bool(here.send([TAGGED]) and TAGGED in there.receive(8)))
        wait_until(lambda: bool(there.send([TAGGED]) and TAGGED in here.receive(8)))
        # Frames dropped while it was down do not arrive later.
        assert FRAME not in there.receive(64)


@every_kind
def test_a_port_that_is_down_for_long_counts_each_frame(cable: Cable, kind: PortKind) -> None:
    here, there = open_both(cable, kind, RingSettings(rx_frames=64, tx_frames=64))
    with here, there:
        cable.change("here", state="down")
        for _ in range(10):
            here.send([FRAME] * 32)
        assert here.read_counters().drops == {"port_down": 320}
        cable.change("here", state="up")
        wait_until(lambda: bool(here.send([TAGGED]) and TAGGED in there.receive(8)))


@every_kind
def test_a_device_that_vanishes_does_not_raise(cable: Cable, kind: PortKind) -> None:
    here, there = open_both(cable, kind)
    with here, there:
        cable.change("here", command="del")
        assert here.is_down
        assert here.send([FRAME]) == 0
        assert here.receive(8) == []
        assert here.read_counters().drops == {"port_down": 1}
    here.close()
    assert (here.send([FRAME]), here.receive(1), here.is_down, here.fileno()) == (0, [], True, -1)


@every_kind
def test_checksums_that_were_left_to_the_device_are_counted(cable: Cable, kind: PortKind) -> None:
    if kind in (PortKind.XDP, PortKind.DPDK):
        pytest.skip("does not tell")
    with cable.open("there", kind) as there:
        cable.call(send_unfinished_datagram)
        assert len(receive(there, 1)) == 1
        assert there.read_counters().checksum_not_ready == 1


def send_unfinished_datagram() -> None:
    """Send with a virtio header (linux/virtio_net.h) that asks for the checksum to be filled in."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind(("here", 0))
        raw.setsockopt(263, 15, 1)
        datagram = (
            MACS + b"\x08\x00" + bytes.fromhex("45000024000000004011000000000000000000000009000900100000") + bytes(8)
        )
        raw.send(bytes.fromhex("01000000000022000600") + datagram)


def test_devices_that_cannot_be_opened_are_refused_in_one_line(cable: Cable) -> None:
    for kind in DEVICE_KINDS:
        with pytest.raises(PortError, match=r"^interface nowhere: no such device in this network namespace$"):
            cable.open("nowhere", kind)
        with pytest.raises(PortError, match=r"^interface here: a port has at least one queue, not 0$"):
            cable.open("here", kind, 0)
    with pytest.raises(PortError, match=r"^interface here: ports of kind MEMORY have no device$"):
        cable.open("here", PortKind.MEMORY)
    cable.change("here", state="down")
    with pytest.raises(PortError, match=r"^interface here is down: ip link set here up$"):
        cable.open("here")


@every_kind
def test_too_large_ring_is_refused_before_the_kernel_is_asked(
    cable: Cable, kind: PortKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A machine that seems to have 64 MiB, so that a bug does no harm.
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 1 << 14, "SC_PAGE_SIZE": 1 << 12}.__getitem__)
    with pytest.raises(PortError, match=r"^interface here: a ring of \d+ MiB is more than an eighth .* \(8 MiB\)$"):
        cable.open("here", kind, settings=RingSettings(rx_frames=1 << 13))


@pytest.mark.parametrize("kind", [PortKind.PACKET_V2, PortKind.PACKET_V3], ids=lambda kind: kind.name)
def test_a_ring_that_the_kernel_refuses_is_told(cable: Cable, kind: PortKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dataplane.nic.ports.packet_socket._BLOCK_BYTES", 4096 + 16)
    monkeypatch.setattr("dataplane.nic.ports.packet_socket._power_of_two", lambda nbytes: nbytes)
    settings = RingSettings(block_bytes=4096 + 16, rx_frames=64)
    with pytest.raises(
        PortError, match=r"^interface here: a receive ring of \d+ KiB cannot be allocated: Invalid argument$"
    ):
        cable.open("here", kind, settings=settings)
