"""TCP between virtual hosts, end to end: data, speed, and closing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from dataplane.errors import FabricError
from dataplane.fabric.virtual import VirtualFabric
from dataplane.fabric.virtual.bulk import BulkFlow
from dataplane.fabric.virtual.tcp import Congestion, State, TcpSettings
from dataplane.fabric.virtual.tcp.statistics import Sample, TcpStatistics
from dataplane.topology.values import LinkKey
from dataplane.wire import ipv4
from dataplane.wire.packet import decode_tcp_frame
from tests.dataplane.fabric.virtual.tcp.ends import MS, SECOND, Ends, MakeFabric, dumbbell

SHARE = 1448 / (1448 + 66 + 24)
"""Share of data in a full segment, with timestamps and what Ethernet sends between frames."""
BOTH = pytest.mark.parametrize("congestion", list(Congestion))


def states(ends: Ends) -> tuple[State, State | None]:
    return ends.client.state, None if ends.accepted is None else ends.accepted.state


def test_a_stream_each_way_and_an_orderly_end(make_fabric: MakeFabric) -> None:
    ends = Ends(make_fabric(dumbbell()))
    assert states(ends) == (State.SYN_SENT, None)
    ends.client.write(b"question")
    ends.run(50 * MS)
    assert states(ends) == (State.ESTABLISHED, State.ESTABLISHED)
    ends.server.write(b"answer")
    ends.client.close()
    ends.run(50 * MS)
    assert states(ends) == (State.FIN_WAIT_2, State.CLOSE_WAIT)
    ends.server.write(b", and more after the other end has finished")
    ends.server.close()
    ends.run(100 * MS)
    assert ends.got == {"b": b"question", "a": b"answer, and more after the other end has finished"}
    assert states(ends) == (State.TIME_WAIT, State.CLOSED)
    with pytest.raises(FabricError, match="nothing can be written in state time-wait"):
        ends.client.write(b"x")
    ends.run(61 * SECOND)
    assert ends.ended == ["b has all", "a has all", "b closed", "a closed"]
    assert ends.client.error is ends.server.error is None
    assert ends.fabric.host("a").tcp.connections == ends.fabric.host("b").tcp.connections == ()


def test_who_writes_and_closes_before_it_is_connected_is_heard(make_fabric: MakeFabric) -> None:
    ends = Ends(make_fabric(dumbbell()))
    ends.client.write(b"all")
    ends.client.close()
    with pytest.raises(FabricError, match="nothing can be written in state syn-sent"):
        ends.client.write(b"more")
    ends.run(SECOND)
    assert (ends.got["b"], ends.ended, ends.client.state) == (b"all", ["b has all"], State.FIN_WAIT_2)


def test_both_ends_may_finish_at_once(make_fabric: MakeFabric) -> None:
    ends = Ends(make_fabric(dumbbell()))
    ends.run(50 * MS)
    ends.client.close()
    ends.server.close()
    ends.run(15 * MS)
    assert states(ends) == (State.CLOSING, State.CLOSING)
    ends.run(50 * MS)
    assert states(ends) == (State.TIME_WAIT, State.TIME_WAIT)


def test_both_ends_may_open_at_once(make_fabric: MakeFabric) -> None:
    fabric = make_fabric(dumbbell())
    a, b = fabric.host("a"), fabric.host("b")
    connection = a.tcp.connect(b.node.ipv4, 7, local_port=9)
    other = b.tcp.connect(a.node.ipv4, 9, local_port=7)
    connection.write(b"hello")
    fabric.run_until(SECOND)
    assert connection.state is other.state is State.ESTABLISHED
    assert other.read(10) == b"hello"


@pytest.mark.parametrize("without", ["", "sack", "timestamps", "window_scaling", "rack", "tail_loss_probes"])
@BOTH
def test_every_byte_arrives_whatever_is_lost_and_late(
    make_fabric: MakeFabric, congestion: Congestion, without: str
) -> None:
    """BulkFlow compares all bytes; a twentieth of the frames is lost each way."""
    changed: dict[str, Any] = {without: False} if without else {}
    settings = TcpSettings(congestion=congestion, **changed)
    fabric = make_fabric(dumbbell("100 Mbit/s", loss="5%", jitter="5 ms"), seed=3)
    flow = BulkFlow(fabric, "a", "b", size_bytes=1_000_000, settings=settings)
    fabric.run_until(60 * SECOND)
    assert flow.finished_ns is not None
    assert flow.received_bytes == 1_000_000
    assert flow.statistics.retransmissions > 20
    assert flow.statistics.delivered_bytes == 1_000_000


def test_streams_go_over_ipv6_too(make_fabric: MakeFabric) -> None:
    fabric = make_fabric(dumbbell())
    taken: list[bytes] = []
    fabric.host("a").on_frame(lambda frame, _: taken.append(frame))
    flow = BulkFlow(fabric, "a", "c", size_bytes=10_000, ip_version=4)
    fabric.run_until(SECOND)
    assert flow.received_bytes == 10_000
    with pytest.raises(FabricError, match="'x' is not an IP address"):
        fabric.host("a").tcp.connect("x", 1)


@BOTH
def test_alone_a_flow_fills_the_bottleneck(make_fabric: MakeFabric, congestion: Congestion) -> None:
    """Once slow start is over: the queue holds five times what the path does.

    Within a fiftieth. A loss delays the data behind it, so neither end of the measurement is in a recovery.
    """
    fabric = make_fabric(dumbbell("4 Mbit/s", queue_frames=32))
    end_ns = 11 * SECOND // 2
    flow = BulkFlow(fabric, "a", "b", stop_ns=end_ns, settings=TcpSettings(congestion=congestion))
    fabric.run_until(end_ns)
    assert flow.statistics.recoveries > 0
    assert flow.goodput_bps(2 * SECOND, end_ns) == pytest.approx(4_000_000 * SHARE, rel=0.02)
    assert flow.statistics.timeouts == 0


def test_reno_s_goodput_under_loss_is_that_of_mathis(make_fabric: MakeFabric) -> None:
    """Mathis, Semke, Mahdavi, Ott (1997): sqrt(3/2) segments / (round trip sqrt(p)), within a quarter.

    Losses of acknowledgments cost nothing. A segment more each round trip, with acknowledgments delayed or not, makes
    the constant the one of the paper's model without delay.
    """
    seconds = 10
    fabric = make_fabric(dumbbell("50 Mbit/s", queue_frames=1_000, loss="4%"), seed=1)
    flow = BulkFlow(fabric, "a", "b", stop_ns=seconds * SECOND, settings=TcpSettings(congestion=Congestion.RENO))
    fabric.run_until(seconds * SECOND)
    rtt_s = 0.0204
    expected = 1448 * 8 * 1.5**0.5 / (rtt_s * 0.04**0.5)
    assert flow.goodput_bps(2 * SECOND, seconds * SECOND) == pytest.approx(expected, rel=0.25)


@BOTH
def test_two_flows_share_a_bottleneck(make_fabric: MakeFabric, congestion: Congestion) -> None:
    """The second starts a second later; in the last six seconds each gets at least a third, together all."""
    fabric = make_fabric(dumbbell("3 Mbit/s", queue_frames=24))
    settings = TcpSettings(congestion=congestion)
    flows = [
        BulkFlow(fabric, src, dst, start_ns=start * SECOND, stop_ns=12 * SECOND, settings=settings)
        for src, dst, start in (("a", "b", 0), ("c", "d", 1))
    ]
    fabric.run_until(12 * SECOND)
    rates = [flow.goodput_bps(6 * SECOND, 12 * SECOND) for flow in flows]
    assert sum(rates) == pytest.approx(3_000_000 * SHARE, rel=0.05)
    assert min(rates) > sum(rates) / 3


class Tampering:
    """Intercepts a host's TCP output before it enters the network: records its times, and loses one segment."""

    def __init__(self, fabric: VirtualFabric, host: str) -> None:
        self.times_ns: list[int] = []
        self.lose_next = False
        self._fabric, stack = fabric, fabric.host(host).tcp
        self._send = stack._send
        stack._send = self._tamper

    def _tamper(self, frame: bytes) -> bool:
        self.times_ns.append(self._fabric.now_ns)
        if self.lose_next and len(frame) > 1_000:
            self.lose_next = False
            return True
        return self._send(frame)


@pytest.mark.parametrize("sack", [True, False])
@pytest.mark.parametrize(("congestion", "factor"), [(Congestion.RENO, 0.5), (Congestion.CUBIC, 0.7)])
def test_one_loss_costs_half_or_three_tenths_and_no_timeout(
    make_fabric: MakeFabric, congestion: Congestion, factor: float, sack: bool
) -> None:
    fabric = make_fabric(dumbbell("100 Mbit/s", queue_frames=4_000))
    tampering = Tampering(fabric, "a")
    settings = TcpSettings(congestion=congestion, receive_buffer_bytes=100_000, sample_ns=MS, sack=sack)
    flow = BulkFlow(fabric, "a", "b", stop_ns=SECOND, settings=settings)
    fabric.run_until(SECOND // 2)
    tampering.lose_next = True
    fabric.run_until(SECOND)
    statistics = flow.statistics
    assert (statistics.recoveries, statistics.retransmissions, statistics.timeouts) == (1, 1, 0)
    before = next(sample for sample in statistics.samples if sample.time_ns >= SECOND // 2)
    threshold = statistics.samples[-1].threshold_bytes
    assert threshold is not None
    # The data in flight is the receiver's window in whole segments, and less than the sender's.
    under_way = 100_000 // 1448 * 1448
    assert before.window_bytes >= under_way
    assert threshold == pytest.approx(factor * under_way, rel=0.02)


def test_broken_path_is_retried_with_exponential_backoff(make_fabric: MakeFabric) -> None:
    fabric = make_fabric(dumbbell())
    tampering = Tampering(fabric, "a")
    flow = BulkFlow(fabric, "a", "b", size_bytes=3_000_000)
    fabric.call_at(SECOND, lambda: fabric.lose("s1", "s2", lost=True))
    fabric.run_until(20 * SECOND)
    sent = [time_ns for time_ns in tampering.times_ns if time_ns > SECOND + 150 * MS]
    gaps = [after - before for before, after in pairwise(sent)]
    assert 200 * MS < gaps[0] < 600 * MS
    assert all(after == 2 * before for before, after in pairwise(gaps))
    assert len(gaps) >= 4
    assert flow.statistics.samples[-1].window_bytes == 1448
    fabric.lose("s1", "s2", lost=False)
    fabric.run_until(60 * SECOND)
    assert flow.received_bytes == 3_000_000


def test_path_that_stays_broken_ends_the_connection(make_fabric: MakeFabric) -> None:
    ends = Ends(make_fabric(dumbbell()), retries=3)
    ends.run(100 * MS)
    ends.fabric.lose("s1", "s2", lost=True)
    ends.client.write(b"x")
    ends.run(10 * SECOND)
    assert ends.client.state is State.CLOSED
    assert str(ends.client.error) == "tcp 10.0.1.1 port 49152 to 10.0.2.1 port 80 was not answered: 4 attempts"
    with pytest.raises(FabricError, match="was not answered"):
        ends.client.write(b"x")
    assert "a closed" in ends.ended


def test_a_connection_that_nobody_takes_is_refused(make_fabric: MakeFabric) -> None:
    fabric = make_fabric(dumbbell())
    assert fabric.host("b").tcp.connections == ()
    connection = fabric.host("a").tcp.connect("10.0.2.1", 81)
    fabric.run_until(SECOND)
    assert str(connection.error) == "tcp 10.0.1.1 port 49152 to 10.0.2.1 port 81 was refused"
    assert fabric.host("b").tcp.drops.no_connection == 1


def test_a_host_that_is_not_there_is_asked_seven_times(make_fabric: MakeFabric) -> None:
    fabric = make_fabric(dumbbell())
    connection = fabric.host("a").tcp.connect("10.0.2.1", 81)  # its host has no TCP, as it was never used
    fabric.run_until(200 * SECOND)
    assert connection.statistics.segments_sent == 7
    assert "was not answered: 7 attempts" in str(connection.error)


def test_who_gives_up_resets_the_other_end(make_fabric: MakeFabric) -> None:
    ends = Ends(make_fabric(dumbbell()))
    ends.run(100 * MS)
    ends.client.abort()
    ends.run(100 * MS)
    assert "was given up here" in str(ends.client.error)
    assert "was reset by the other end" in str(ends.server.error)
    assert ends.ended == ["a closed", "b closed"]


def test_receive_window_closes_and_opens_with_reading(make_fabric: MakeFabric) -> None:
    ends = Ends(make_fabric(dumbbell()), server=TcpSettings(receive_buffer_bytes=20_000))
    stream = random.Random(1).randbytes(100_000)
    ends.run(50 * MS)
    ends.server.on_data = None
    assert ends.client.write(stream) == len(stream)
    ends.run(300 * SECOND)
    assert ends.server.statistics.received_bytes == 20_000
    assert ends.client.state is State.ESTABLISHED, "a closed window is probed, and is no failure"
    received = b""
    for _ in range(200):
        received += ends.server.read(3_000)
        ends.run(20 * MS)
    assert received == stream


def test_write_takes_what_fits_and_reports_new_room(make_fabric: MakeFabric) -> None:
    ends = Ends(make_fabric(dumbbell()), send_buffer_bytes=10_000)
    calls: list[int] = []
    ends.client.on_writable = lambda: calls.append(ends.fabric.now_ns)
    assert ends.client.write(bytes(25_000)) == 10_000
    assert ends.client.write(b"x") == 0
    ends.run(SECOND)
    assert len(calls) == 1
    assert ends.client.write(b"x") == 1


def test_segments_out_of_order_are_put_in_order(make_fabric: MakeFabric) -> None:
    """Each third frame of the sender waits for a while before it enters the network, behind up to two others."""
    fabric = make_fabric(dumbbell("100 Mbit/s"))
    host = fabric.host("a")
    send, count = host.tcp._send, [0]

    def later(frame: bytes) -> None:
        send(frame)

    def shuffle(frame: bytes) -> bool:
        count[0] += 1
        if count[0] % 3 == 0:
            fabric.call_after(30_000, partial(later, frame))
            return True
        return send(frame)

    host.tcp._send = shuffle
    flow = BulkFlow(fabric, "a", "b", size_bytes=1_000_000)
    fabric.run_until(10 * SECOND)
    assert flow.received_bytes == 1_000_000
    assert flow.statistics.recoveries <= 1, "two that overtake are no loss"


def mark_beyond(fabric: VirtualFabric, switch: str, depth: int) -> None:
    """Let a switch mark frames that find more than `frames` waiting, as programs do: ECT becomes CE (RFC 3168)."""
    pipeline = fabric.switch(switch)._pipeline
    assert pipeline is not None
    egress = pipeline.egress

    def marked(packets: Sequence[Any], now_us: int) -> Any:
        result = egress(packets, now_us)
        outputs = []
        for packet, output in zip(packets, result.outputs, strict=True):
            data = output.data
            if packet.enq_qdepth > depth and data[15] & 3 in {1, 2}:
                header = replace(ipv4.decode(data, 14), ecn=3).checked().encode()
                data = data[:14] + header + data[34:]
            outputs.append(replace(output, data=data))
        return replace(result, outputs=outputs)

    pipeline.egress = marked  # type: ignore[method-assign]


@BOTH
def test_marks_reduce_the_window_and_lose_nothing(make_fabric: MakeFabric, congestion: Congestion) -> None:
    rates, queues = [], []
    for ecn in (True, False):
        fabric = make_fabric(dumbbell(queue_frames=200))
        mark_beyond(fabric, "s1", 20)
        settings = TcpSettings(congestion=congestion, ecn=ecn, hystart=False)
        flow = BulkFlow(fabric, "a", "b", stop_ns=3 * SECOND, settings=settings)
        fabric.run_until(3 * SECOND)
        queues.append(fabric.switch("s1").counters().ports[3].queued_frames)
        rates.append(flow.goodput_bps(SECOND, 3 * SECOND))
        assert (flow.statistics.marks > 2) is ecn
        assert (flow.statistics.retransmissions == 0) is ecn
    assert rates[0] == pytest.approx(10_000_000 * SHARE, rel=0.05)
    assert queues[0] < 60 < queues[1]


def test_an_end_without_ecn_is_not_marked(make_fabric: MakeFabric) -> None:
    ends = Ends(make_fabric(dumbbell()), server=TcpSettings(ecn=False), ecn=True)
    seen: list[int] = []

    def note(frame: bytes, _: int) -> None:
        segment = decode_tcp_frame(frame)
        assert segment is not None
        seen.append(segment.ip.ecn)

    ends.fabric.host("b").on_frame(note)
    ends.client.write(b"x")
    ends.run(SECOND)
    assert set(seen) == {0}


def test_cut_or_corrupt_frames_are_counted_and_harmless(make_fabric: MakeFabric) -> None:
    fabric = make_fabric(dumbbell())
    frames: list[bytes] = []
    fabric.host("b").on_frame(lambda frame, _: frames.append(frame))
    ends = Ends(fabric)
    ends.client.write(b"hello")
    ends.run(SECOND)
    rng, stack = random.Random(2), fabric.host("b").tcp
    for frame in frames * 20:
        changed = bytearray(frame)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(14, len(changed))] ^= 1 << rng.randrange(8)
        stack.receive(bytes(changed), fabric.now_ns)
        stack.receive(frame[: rng.randrange(len(frame))], fabric.now_ns)
    assert stack.drops.malformed > 20
    assert stack.drops.corrupt > 20
    ends.client.write(b" again")
    ends.run(SECOND)
    assert ends.got["b"] == b"hello again"


def test_a_reset_that_only_comes_near_is_asked_for_again(make_fabric: MakeFabric) -> None:
    """RFC 5961, section 3: without the next sequence number a connection cannot be reset."""
    ends = Ends(make_fabric(dumbbell()))
    ends.run(100 * MS)
    address, server = ends.server.address, ends.server
    forged = ends.fabric.host("a").tcp
    from dataplane.fabric.virtual.tcp.segments import RST, Segment  # noqa: PLC0415
    from dataplane.wire.tcp import Tcp  # noqa: PLC0415
    from dataplane.wire.tcp_options import TcpOptions  # noqa: PLC0415

    before = server.statistics.segments_sent
    sequence = (server._peer_first + 1 + 500) % (1 << 32)
    header = Tcp(address.remote_port, address.local_port, sequence, flags=RST)
    forged._transmit(ends.client.address, Segment(header, TcpOptions()))
    ends.run(100 * MS)
    assert server.state is State.ESTABLISHED
    assert server.statistics.segments_sent == before + 1


def test_equal_seeds_give_equal_runs(make_fabric: MakeFabric) -> None:
    def samples(seed: int) -> list[Any]:
        fabric = make_fabric(dumbbell("100 Mbit/s", loss="1%", jitter="1 ms"), seed=seed)
        flow = BulkFlow(fabric, "a", "b", stop_ns=SECOND // 2)
        fabric.run_until(SECOND // 2)
        return list(flow.statistics.samples)

    assert samples(1) == samples(1) != samples(2)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"mtu_bytes": 100}, "tcp: mtu_bytes is 100, not 576 to 9000"),
        ({"delayed_ack_ns": SECOND}, "tcp: delayed_ack_ns is 1000000000, not 0 to 500000000"),
        ({"initial_rto_ns": 1}, "tcp: initial_rto_ns is not between least_rto_ns and most_rto_ns"),
    ],
)
def test_settings_have_bounds(wrong: dict[str, int], problem: str) -> None:
    with pytest.raises(FabricError) as caught:
        TcpSettings(**wrong)  # type: ignore[arg-type]
    assert str(caught.value) == problem


def test_samples_beyond_the_limit_are_left_out_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dataplane.fabric.virtual.tcp.statistics.MOST_SAMPLES", 2)
    statistics = TcpStatistics()
    for time_ns in range(5):
        statistics.add(Sample(time_ns, 1, None, 0, None, 0, 0))
    assert ([sample.time_ns for sample in statistics.samples], statistics.is_full) == ([0, 1], True)
    assert caplog.messages == ["a TCP connection has 2 samples: later ones are left out (longer sample_ns)"]


def test_ports_are_taken_once(make_fabric: MakeFabric) -> None:
    fabric = make_fabric(dumbbell())
    stack = fabric.host("b").tcp
    listener = stack.listen(80, lambda _: None)
    with pytest.raises(FabricError, match="b: port 80 already has a listener"):
        stack.listen(80, lambda _: None)
    listener.close()
    stack.listen(80, lambda _: None)
    with pytest.raises(FabricError, match="b: 70000 is not a port"):
        stack.connect("10.0.1.1", 70_000)
    stack.connect("10.0.1.1", 5, local_port=6)
    with pytest.raises(FabricError, match="b: port 6 is taken"):
        stack.connect("10.0.1.1", 5, local_port=6)
    with pytest.raises(FabricError, match="neither a size nor an end"):
        BulkFlow(fabric, "a", "b")
    assert fabric.cables[LinkKey("s1", "s2")].counters.frames == 0
