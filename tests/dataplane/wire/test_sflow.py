"""sFlow datagrams: those of Open vSwitch, every format both ways, and what Wireshark makes of ours."""

from __future__ import annotations

import shutil
import struct
import subprocess
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from dataplane.errors import WireError
from dataplane.nic.capture.pcap import PcapWriter
from dataplane.wire import sflow
from dataplane.wire.packet import udp_frame
from dataplane.wire.sflow import (
    CounterSample,
    Datagram,
    DiscardedPacket,
    InterfaceCounters,
    PacketSample,
    SampledPacket,
)
from tests.dataplane.wire.golden_sflow import COUNTERS, COUNTERS_OF_3, PACKETS
from tests.waiting import HANG_S

PACKET = SampledPacket(sflow.ETHERNET, 1518, 4, bytes(range(61)))
EVERYTHING = Datagram(
    IPv6Address("2001:db8::1"),
    7,
    0xFFFF_FFFF,
    86_400_000,
    (
        CounterSample(3, InterfaceCounters(9, 10**11, True, 2**64 - 2, 5, 6, 7, 2**40, 8, 9, 10)),
        PacketSample(4, 1000, 1, None, PACKET, transit_ns=25_000, queue_id=3, queue_bytes=15_000),
        PacketSample(5, 1000, None, 2),
        DiscardedPacket(6, 11, 1, 2, 259, PACKET),
    ),
)


def test_open_vswitch_samples_packets() -> None:
    datagram = sflow.decode(PACKETS)
    assert (datagram.agent, datagram.uptime_ms, datagram.skipped) == (IPv4Address("127.0.0.1"), 1000, 0)
    samples = [sample for sample in datagram.samples if isinstance(sample, PacketSample)]
    assert [sample.sequence for sample in samples] == list(range(4, 11))
    # To several interfaces at once: none of them.
    assert [(sample.input, sample.output) for sample in samples[:3]] == [(3, 5), (5, 3), (3, None)]
    first = samples[0].packet
    assert first is not None
    assert (samples[0].rate, first.frame_bytes, first.stripped, len(first.header)) == (2, 1046, 4, 96)


def test_open_vswitch_counts_octets() -> None:
    (before,) = sflow.decode(COUNTERS_OF_3).samples
    bridge, _, after = sflow.decode(COUNTERS).samples
    assert isinstance(before, CounterSample)
    assert isinstance(bridge, CounterSample)
    assert isinstance(after, CounterSample)
    assert before.counters.interface == after.counters.interface == 3
    assert after.counters.out_octets - before.counters.out_octets == 3126
    # Three pings of 1,042 bytes; counters that the bridge lacks, all ones, are no packets.
    assert after.counters.out_packets - before.counters.out_packets == 3
    assert (bridge.counters.is_up, after.counters.is_up) == (False, True)


def test_every_sample_is_the_same_both_ways() -> None:
    assert sflow.decode(sflow.encode(EVERYTHING)) == EVERYTHING
    for golden in (PACKETS, COUNTERS):
        datagram = sflow.decode(golden)
        assert sflow.decode(sflow.encode(datagram)) == datagram


def test_plain_formats_read_like_expanded_ones() -> None:
    head = struct.pack("!II4sIIII", 5, 1, b"\x0a\0\0\1", 0, 1, 2, 2)
    flow = struct.pack("!IIIIIIIIII", 1, 32, 4, 9, 100, 0, 0, 3, 1 << 31 | 2, 0)
    dropped = struct.pack("!IIIIIIIIII", 1, 32, 5, 9, 100, 0, 0, 3, 1 << 30 | 256, 0)
    datagram = sflow.decode(head + flow + dropped)
    assert datagram.samples == (PacketSample(4, 100, 3, None), PacketSample(5, 100, 3, None))


def test_unknown_samples_are_counted_and_skipped() -> None:
    head = struct.pack("!II4sIIII", 5, 1, b"\x0a\0\0\1", 0, 1, 2, 2)
    foreign = struct.pack("!III", 4413 << 12 | 1, 4, 0)
    ours = struct.pack("!IIIIIIIIII", 1, 32, 4, 9, 100, 0, 0, 3, 4, 0)
    datagram = sflow.decode(head + foreign + ours)
    assert (datagram.skipped, datagram.samples) == (1, (PacketSample(4, 100, 3, 4),))


def test_cut_datagrams_are_refused() -> None:
    for size in range(len(COUNTERS_OF_3)):
        with pytest.raises(WireError, match="sflow at byte"):
            sflow.decode(COUNTERS_OF_3[:size])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({3: 4}, "version 4 is not 5"),
        ({7: 9}, "address type 9 is neither IPv4 (1) nor IPv6 (2)"),
        ({24: 255}, "records do not fit"),
    ],
)
def test_refusals_name_what_is_wrong(change: dict[int, int], problem: str) -> None:
    data = bytearray(COUNTERS)
    for at, value in change.items():
        data[at] = value
    with pytest.raises(WireError) as caught:
        sflow.decode(bytes(data))
    assert problem in str(caught.value)


@pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark")
def test_wireshark_reads_what_we_write(tmp_path: Path) -> None:
    frame = udp_frame(
        src_mac=1,
        dst_mac=2,
        src=IPv4Address("10.0.0.1"),
        dst=IPv4Address("10.0.0.2"),
        src_port=5000,
        dst_port=sflow.UDP_PORT,
        payload=sflow.encode(EVERYTHING),
    )
    path = tmp_path / "sflow.pcap"
    with PcapWriter(path) as writer:
        writer.write(frame, 0)
    names = ("agent.v6", "numsamples", "ifindex", "ifinoct", "ifoutoct", "ifoutdisc")
    fields = [argument for name in names for argument in ("-e", f"sflow_245.{name}")]
    argv = ["tshark", "-r", str(path), "-T", "fields", *fields]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=HANG_S).stdout
    assert shown.rstrip("\n").split("\t") == ["2001:db8::1", "4", "9", str(2**64 - 2), str(2**40), "9"]
