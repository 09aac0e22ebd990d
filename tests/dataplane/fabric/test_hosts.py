from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.errors import FabricError
from dataplane.fabric import hosts
from dataplane.fabric.hosts import (
    Arrivals,
    Flow,
    Probe,
    Receiver,
    Sender,
    decode_probe,
    find_probe,
    flow_between,
)
from dataplane.topology import addressing
from dataplane.topology.file import load_topology
from dataplane.wire.packet import decode_udp_frame, udp_frame

TOPOLOGY = load_topology("abilene")
SECOND = 1_000_000_000
PROBE_HEX = "6d696c6c72616365 00000007 0000000000000102 0000000000030405"


def flow(rate_bps: int = 8_000_000, **changes: object) -> Flow:
    return replace(flow_between(TOPOLOGY, 7, "h-losa", "h-nycm", rate_bps), **changes)  # type: ignore[arg-type]


def packets(sender: Sender, count: int) -> list[int]:
    """Send `count` packets when they are due; return the times."""
    times = []
    for _ in range(count):
        due_ns = sender.next_send_ns()
        assert due_ns is not None
        times.append(due_ns)
        sender.payload(due_ns)
    return times


# probes


def test_probe_bytes() -> None:
    probe = Probe(7, 0x0102, 0x030405)
    assert probe.encode() == bytes.fromhex(PROBE_HEX)
    assert decode_probe(bytes.fromhex(PROBE_HEX) + bytes(100)) == probe


@pytest.mark.parametrize("size", range(hosts.PROBE_BYTES))
def test_every_truncated_probe_is_none(size: int) -> None:
    assert decode_probe(bytes.fromhex(PROBE_HEX)[:size]) is None


@settings(deadline=None)
@given(st.binary(max_size=64))
def test_any_bytes_are_a_probe_or_none(data: bytes) -> None:
    for candidate in (data, hosts.MAGIC + data):
        probe = decode_probe(candidate)
        assert probe is None or candidate.startswith(probe.encode())


def test_a_probe_is_found_behind_whatever_was_put_before_it() -> None:
    frame = Sender(flow(), random.Random(0)).frame(5)
    assert find_probe(frame[:42] + bytes(28) + frame[42:]) == Probe(7, 0, 5)
    assert find_probe(frame[:60]) is None


# senders


def test_frames_are_what_the_flow_says() -> None:
    a_flow = flow(frame_bytes=777, dscp=10)
    frame = Sender(a_flow, random.Random(0)).frame(99)
    assert len(frame) == 777
    datagram = decode_udp_frame(frame)
    assert datagram is not None
    assert datagram.checksum_ok
    assert datagram.ethernet.src == TOPOLOGY.host["h-losa"].mac
    assert datagram.ethernet.dst == addressing.port_mac(8, 1)
    assert (datagram.ip.src, datagram.ip.dst) == (TOPOLOGY.host["h-losa"].ipv4, TOPOLOGY.host["h-nycm"].ipv4)
    assert datagram.ip.dscp == 10
    assert (datagram.src_port, datagram.dst_port) == (20007, 20007)
    assert decode_probe(datagram.payload) == Probe(7, 0, 99)


@settings(deadline=None)
@given(st.integers(0, (1 << 64) - 2), st.sampled_from([4, 6]), st.integers(100, 200), st.integers(0, 63))
def test_every_frame_of_a_flow_is_what_udp_frame_makes(now_ns: int, version: int, frame_bytes: int, dscp: int) -> None:
    a_flow = flow_between(TOPOLOGY, 3, "h-losa", "h-nycm", 1000, frame_bytes=frame_bytes, dscp=dscp, ip_version=version)
    sender, twin = Sender(a_flow, random.Random(0)), Sender(a_flow, random.Random(0))
    for time_ns in (now_ns, now_ns + 1):
        assert sender.frame(time_ns) == udp_frame(
            src_mac=a_flow.src_mac,
            dst_mac=a_flow.dst_mac,
            src=a_flow.src,
            dst=a_flow.dst,
            src_port=a_flow.src_port,
            dst_port=a_flow.dst_port,
            payload=twin.payload(time_ns),
            dscp=dscp,
        )


def test_ipv6_frames_have_the_same_size() -> None:
    a_flow = flow_between(TOPOLOGY, 1, "h-losa", "h-nycm", 1000, frame_bytes=300, ip_version=6)
    frame = Sender(a_flow, random.Random(0)).frame(0)
    datagram = decode_udp_frame(frame)
    assert len(frame) == 300
    assert datagram is not None
    assert datagram.ip.src == TOPOLOGY.host["h-losa"].ipv6


def test_constant_rate_never_drifts() -> None:
    times = packets(Sender(flow(rate_bps=3_000_000, start_ns=50), random.Random(0)), 3001)
    assert times[0] == 50
    assert times[3000] == 50 + 8 * SECOND  # 3000 frames of 8000 bits
    assert {later - earlier for earlier, later in pairwise(times)} == {2_666_666, 2_666_667}


def test_poisson_arrivals_have_the_rate_and_repeat_with_the_seed() -> None:
    a_flow = flow(rate_bps=8_000_000, arrivals=Arrivals.POISSON)
    times = packets(Sender(a_flow, random.Random(1)), 5000)
    assert times == packets(Sender(a_flow, random.Random(1)), 5000)
    assert times != packets(Sender(a_flow, random.Random(2)), 5000)
    assert times[-1] == pytest.approx(5 * SECOND, rel=0.05)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert sum(gap > 1_000_000 for gap in gaps) / len(gaps) == pytest.approx(0.3679, abs=0.02)  # 1/e


@pytest.mark.parametrize("arrivals", list(Arrivals))
def test_a_packet_that_is_left_out_has_its_time_but_no_number(arrivals: Arrivals) -> None:
    whole, part = (Sender(flow(arrivals=arrivals), random.Random(1)) for _ in range(2))
    times = packets(whole, 20)
    for _ in range(5):
        part.skip()
    assert packets(part, 15) == times[5:]
    assert (part.sent_frames, part.skipped_frames) == (15, 5)
    probe = decode_probe(part.payload(0))
    assert probe is not None
    assert probe.sequence == 15


def test_a_flow_ends_before_its_stop() -> None:
    sender = Sender(flow(stop_ns=3_000_000), random.Random(0))
    assert packets(sender, 3) == [0, 1_000_000, 2_000_000]
    assert sender.next_send_ns() is None


@pytest.mark.parametrize(
    "changes", [{"rate_bps": 0}, {"frame_bytes": 69}, {"frame_bytes": 10_000}, {"flow_id": -1}, {"flow_id": 1 << 32}]
)
def test_impossible_flows_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(FabricError):
        flow(**changes)


def test_flows_need_hosts() -> None:
    with pytest.raises(FabricError, match="no host 'losa'"):
        flow_between(TOPOLOGY, 1, "losa", "h-nycm", 1000)


# receivers


def receive(receiver: Receiver, sequence: int, at_ns: int, *, sent_ns: int = 0, size: int = 100) -> None:
    receiver.receive_payload(Probe(7, sequence, sent_ns).encode(), size, at_ns)


def test_measurement_of_a_clean_flow() -> None:
    receiver = Receiver()
    for number in range(100):
        receive(receiver, number, SECOND + number * 1000, sent_ns=SECOND + number * 900, size=125)
    seen = receiver.measure(7, SECOND, SECOND + 100_000)
    assert (seen.packets, seen.bytes, seen.lost, seen.late, seen.duplicates) == (100, 12_500, 0, 0, 0)
    assert seen.throughput_bps == 12_500 * 8 / 100e-6
    assert (seen.delay_mean_ns, seen.delay_p50_ns, seen.delay_p99_ns, seen.delay_max_ns) == (4950, 4900, 9800, 9900)
    assert seen.loss == 0


def test_measurement_takes_what_arrived_in_its_time() -> None:
    receiver = Receiver()
    for number, at_ns in enumerate((10, 20, 30, 40)):
        receive(receiver, number, at_ns, sent_ns=at_ns - number)
    seen = receiver.measure(7, 20, 40)
    assert (seen.packets, seen.delay_mean_ns) == (2, 1.5)
    assert [window.packets for window in receiver.windows(7, 0, 45, 20)] == [1, 2]
    empty = receiver.measure(7, 50, 60)
    assert (empty.packets, empty.delay_mean_ns, empty.delay_p99_ns, empty.loss) == (0, None, None, 0.0)
    assert receiver.measure(8, 0, 1).packets == 0


def test_loss_reordering_and_repetition_are_told_apart() -> None:
    receiver = Receiver()
    for at_ns, sequence in enumerate((0, 3, 1, 3, 5)):
        receive(receiver, sequence, at_ns)
    seen = receiver.measure(7, 0, 10)
    assert (seen.packets, seen.missing, seen.late, seen.duplicates) == (5, 3, 1, 1)
    assert seen.lost == 2
    assert seen.loss == pytest.approx(2 / 6)


def test_damaged_frames_are_counted() -> None:
    receiver = Receiver()
    frame = Sender(flow(), random.Random(0)).frame(0)
    assert receiver.receive(frame, 5) == Probe(7, 0, 0)
    receiver.receive(b"\x00" * 5, 0)
    receiver.receive(frame[:12] + b"\x08\x06" + frame[14:], 0)
    receiver.receive(frame[:-1] + b"\x01", 0)
    assert (receiver.malformed, receiver.corrupt, receiver.unmeasured) == (1, 1, 0)
    assert (receiver.flow_ids, receiver.received_frames(7), receiver.received_frames(8)) == ((7,), 1, 0)


def test_memory_is_bounded_and_totals_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "KEEP_PACKETS", 10)
    receiver = Receiver()
    for number in range(25):
        receive(receiver, number, number)
    assert receiver.received_frames(7) == 25
    assert 5 <= receiver.measure(7, 0, 100).packets <= 10
    assert receiver.measure(7, 24, 25).packets == 1


def test_a_wild_sequence_number_costs_no_memory() -> None:
    receiver = Receiver()
    receive(receiver, (1 << 64) - 1, 1, sent_ns=(1 << 64) - 1)
    receive(receiver, 5, 2)
    seen = receiver.measure(7, 0, 10)
    assert (seen.missing, seen.duplicates) == ((1 << 64) - 1, 1)


def test_flows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "MAX_FLOWS", 1)
    receiver = Receiver()
    receive(receiver, 0, 0)
    assert receiver.receive_payload(Probe(8, 0, 0).encode(), 100, 0) is None
    assert receiver.unmeasured == 1


def test_a_measurement_needs_time() -> None:
    with pytest.raises(FabricError, match="measured"):
        Receiver().measure(1, 5, 5)


@settings(deadline=None)
@given(st.binary(max_size=120))
def test_any_frame_is_counted_at_most_once(data: bytes) -> None:
    receiver = Receiver()
    receiver.receive(data, 0)
    assert receiver.malformed + receiver.corrupt + len(receiver.flow_ids) <= 1


@settings(deadline=None)
@given(st.lists(st.integers(0, 30), max_size=60))
def test_counts_add_up_for_any_order(sequences: list[int]) -> None:
    receiver = Receiver()
    for at_ns, sequence in enumerate(sequences):
        receive(receiver, sequence, at_ns)
    seen = receiver.measure(7, 0, 100)
    distinct = set(sequences)
    assert seen.packets - seen.duplicates == len(distinct)
    assert seen.lost == (max(distinct) + 1 - len(distinct) if distinct else 0)
