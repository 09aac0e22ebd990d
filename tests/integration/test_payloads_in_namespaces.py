"""Payloads arrive unchanged in the kernel: sockets and frames of every kind, all marks, both programs.

One fabric serves all tests, and the daemon changes its telemetry in between; tests/benchmarks/payload.py runs half an
hour of this.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest
from pyroute2 import IPRoute
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment
from scapy.layers.l2 import Ether

from controller.network.p4runtime.session import FABRIC, FABRIC_AGGREGATION
from controller.network.tables.telemetry.int_domain import IntDomain
from controller.network.tables.telemetry.int_watch import Mode, Watch
from dataplane.fabric.kernel import switch_device
from dataplane.nic.port import TOO_LONG
from dataplane.topology.addressing import mac_at
from tests.payloads.bulk import sack_recoveries, transfer
from tests.payloads.cases import DOMAINS, watches_of
from tests.payloads.envelopes import VXLAN_PORT, Envelope, frame, routed
from tests.payloads.kernel import ACROSS, TOPOLOGY, Bed, kernel_bed
from tests.payloads.lines import FAR, FRAGMENTED_BYTES, plain_lines
from tests.payloads.oracle import headers_of
from tests.payloads.talk import Talk
from tests.payloads.tunnels import add_tunnels
from tests.payloads.wire import FRAME_BYTES, Frames, frames_on, seen_at
from tests.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")]
CASES = (
    (FABRIC, "dscp", "md"),
    (FABRIC, "dscp bit", "mx"),
    (FABRIC, "new udp", "hop-by-hop"),
    (FABRIC, "dscp, tunnels", "xd"),
    (FABRIC, "probe marker, tunnels", "md"),
    (FABRIC_AGGREGATION, "udp port, tunnels", "md"),
    (FABRIC_AGGREGATION, "udp port", "mx"),
    (FABRIC_AGGREGATION, "probe marker", "hop-by-hop"),
)
TALK_S, RATE, FRAMES = 0.4, 200.0, 64
LATE_S = 30.0
PLAIN = IntDomain()
SWITCHES = frozenset(node.name for node in TOPOLOGY.switches)


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    """Return a fabric and its daemon."""
    with kernel_bed() as made:
        yield made


@pytest.fixture(scope="module")
def frames(bed: Bed) -> Iterator[Frames]:
    """Return packet sockets at hosts."""
    with frames_on(bed) as opened:
        yield opened


@pytest.fixture(scope="module")
def talk(bed: Bed) -> Iterator[Talk]:
    """Return all kinds of socket lines that this kernel supports."""
    with ExitStack() as stack:
        yield Talk(bed, stack, (*plain_lines(), *add_tunnels(bed)[0]))


@pytest.mark.parametrize(("program", "mark", "mode"), CASES, ids=[" ".join(case) for case in CASES])
def test_what_hosts_send_arrives(bed: Bed, frames: Frames, talk: Talk, program: str, mark: str, mode: Mode) -> None:
    if bed.program != program:
        bed.start(program)
    domain, rng = DOMAINS[mark], random.Random(mark)
    bed.configure(domain, watches_of(mode))
    told = bed.counts("int_")
    verdict = frames.exchange(domain, rng, FRAMES)
    assert verdict.sent == FRAMES
    assert verdict.changed == 0, "\n".join(verdict.examples)
    before = talk.counts.tcp_requests, talk.counts.datagrams

    def have_talked() -> bool:
        # On a busy machine time may run out before each kind of packet had its turn.
        talk.run(rng, headers_of(domain), TALK_S, RATE, FRAGMENTED_BYTES)
        assert talk.counts.faults == (0, 0, 0, 0)
        return talk.counts.tcp_requests > before[0] and talk.counts.datagrams > before[1]

    wait_until(have_talked, "no TCP, or no datagrams")
    told = bed.counts("int_") - told
    for counter in ("int_exported", "int_reports") if mode == "xd" else ("int_sourced", "int_sunk", "int_reports"):
        assert told[counter] > talk.counts.tcp_requests - before[0], counter


def test_the_kernels_own_packets_were_on_the_wire(bed: Bed, talk: Talk) -> None:
    """As they arrive at the far host: none of the lines is another by mistake."""
    with seen_at(bed, FAR) as frames:
        talk.run(random.Random(1), headers_of(PLAIN), TALK_S, RATE, FRAGMENTED_BYTES)
    assert talk.counts.faults == (0, 0, 0, 0)
    packets = [Ether(frame) for frame in frames]
    options = {name for packet in packets if packet.haslayer(TCP) for name, _ in packet[TCP].options}
    assert {"Timestamp", "SAckOK", "WScale", "MD5", "TFO"} <= options
    assert any(packet.haslayer(TCP) and packet[TCP].flags == "S" and packet[TCP].payload for packet in packets)
    for family in (IP, IPv6):
        datagrams = [packet.payload.payload for packet in packets if isinstance(packet.payload, family)]
        datagrams = [datagram for datagram in datagrams if isinstance(datagram, UDP)]
        assert {bool(datagram.chksum) for datagram in datagrams if datagram.dport != VXLAN_PORT} == {False, True}
        assert {bool(datagram.chksum) for datagram in datagrams if datagram.dport == VXLAN_PORT} == {family is IPv6}
    assert any(packet.haslayer(IP) and packet[IP].frag > 0 for packet in packets)
    assert any(packet.haslayer(IPv6ExtHdrFragment) for packet in packets)
    assert any(len(frame) == FRAME_BYTES for frame in frames)


def test_tcp_repairs_losses_by_selective_acknowledgments(bed: Bed) -> None:
    bed.configure(PLAIN)
    data = random.Random(2).randbytes(1 << 20)

    def has_repaired() -> bool:
        assert transfer(bed, data) == data
        return sack_recoveries(bed) > 0

    wait_until(has_repaired, "TCP never repaired a loss by selective acknowledgments", limit_s=LATE_S)


FULL = Envelope()
FULL_PAYLOAD = bytes(FRAME_BYTES - 42)


def full_frames(count: int) -> tuple[list[bytes], bytes]:
    """Return frames that fill the MTU, and their expected form on arrival."""
    src, dst = (TOPOLOGY.host[name] for name in ACROSS)
    sent = frame(TOPOLOGY, src, dst, FULL, FULL_PAYLOAD)
    assert len(sent) == FRAME_BYTES
    edge = TOPOLOGY.attachment[dst.name]
    return [sent] * count, routed(sent, dst.mac, mac_at(TOPOLOGY, edge.node, edge.port), 3)


def test_full_frames_arrive_with_all_that_int_can_ask_for(bed: Bed, frames: Frames) -> None:
    bed.configure(PLAIN, (Watch(instructions=tuple(range(16))),))
    sent, expected = full_frames(8)
    # On a busy machine a link may be dead for a moment, as its hellos are late.
    wait_until(lambda: frames.send(ACROSS, sent, expect=len(sent)) == [expected] * len(sent), "full frames got lost")


def test_what_int_makes_too_long_for_a_link_is_counted(bed: Bed, frames: Frames) -> None:
    """Links between switches take 1,500 bytes, unknown to the controller: their kernel refuses, we count drops."""
    bed.configure(PLAIN)
    sent, _ = full_frames(8)
    with short_links(bed):
        before = bed.refused()[TOO_LONG]
        assert frames.send(ACROSS, sent, expect=0) == []
        wait_until(lambda: bed.refused()[TOO_LONG] >= before + len(sent), bed.refused, limit_s=LATE_S)


def test_int_leaves_out_what_has_no_room_for_it(bed: Bed, frames: Frames) -> None:
    bed.configure(IntDomain(mtu_bytes=1500))
    sent, expected = full_frames(8)
    with short_links(bed):
        assert frames.send(ACROSS, sent, expect=len(sent)) == [expected] * len(sent)


@contextmanager
def short_links(bed: Bed) -> Iterator[None]:
    """Give the devices between switches the hosts' MTU."""
    ends = [(link.tail.node, link.tail.port) for link in TOPOLOGY.directed_links.values() if link.tail.node in SWITCHES]
    ends = [(node, port) for node, port in ends if TOPOLOGY.neighbours[node][port].node in SWITCHES]
    _set_mtu(bed, ends, 1500)
    yield
    _set_mtu(bed, ends, bed.fabric.settings.switch_mtu)


def _set_mtu(bed: Bed, ends: Sequence[tuple[str, int]], mtu: int) -> None:
    for node, port in ends:
        bed.fabric.call_in(node, partial(_set_device_mtu, switch_device(port), mtu))


def _set_device_mtu(device: str, mtu: int) -> None:
    with IPRoute() as netlink:
        (index,) = netlink.link_lookup(ifname=device)
        netlink.link("set", index=index, mtu=mtu)
