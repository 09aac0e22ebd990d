"""Our TCP in virtual time against this machine's kernel, over one topology file.

The kernel's runs between namespaces, through two switches that hold rate, delay and queue, and over links that lose
frames; its windows are read from TCP_INFO. Timing on a busy machine is rough, so the tolerances are:

- slow start: the window is the initial one and a segment for each that was acknowledged, to two segments, in both;
- what a loss leaves of the window in congestion avoidance: 0.5 and 0.7 to 0.06, in both;
- data acknowledged in a round trip, where a hundredth of the frames is lost each way: within a tenth of the kernel's,
  each the mean of three minutes, as one varies by a tenth; by round trips, as those in the kernel grow with all
  else that the machine does;
- where CUBIC's slow start ends in a queue that does not end: within a third of the kernel's window, the median of five;
- how long a burst takes whose last segment or two get lost: within 50 ms of the kernel's least of five.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Final

import pytest

from controller.network.p4runtime.in_process import InProcessSession
from controller.network.p4runtime.session import fabric_program, load_schema
from controller.network.virtual import VirtualController
from dataplane.fabric.kernel import KernelFabric, KernelSettings
from dataplane.fabric.virtual import VirtualFabric
from dataplane.fabric.virtual.bulk import BulkFlow
from dataplane.fabric.virtual.tcp import Congestion, Connection, TcpSettings
from dataplane.linux import SO_DETACH_FILTER, attach_filter
from dataplane.topology.file import loads
from dataplane.topology.values import Topology
from dataplane.wire.packet import decode_tcp_frame
from tests.dataplane.fabric.kernel.paths import install_paths

pytestmark = [pytest.mark.root, pytest.mark.slow]
SECOND: Final = 1_000_000_000
FACTORS: Final = {Congestion.RENO: 0.5, Congestion.CUBIC: 0.7}
UNLIMITED: Final = 0x7FFFFFFF
_NUMBERS: Final = struct.Struct("=8x21I")
"""struct tcp_info, from tcpi_rto to tcpi_reordering."""
_MSS, _RTT, _SSTHRESH, _CWND, _BYTES_ACKED = 2, 15, 17, 18, 120
_OPEN = 0
MS: Final = 1_000_000
SEGMENT: Final = 1448
BURST: Final = 10
"""Segments of a burst."""
LOSING_NS: Final = 70 * MS
"""Duration of losses of marked segments: longer than the path's delay, shorter than the time until a probe."""
MARK: Final = b"L"


def path(loss: str, queue_frames: int = 20, delay_ms: int = 20) -> Topology:
    return loads(f"""
millrace: 1
name: path
defaults: {{access: {{rate: 1 Gbit/s, delay: 0 ns, queue_frames: 1000}}}}
switches: [{{name: s1}}, {{name: s2}}]
hosts: [{{name: h1, switch: s1}}, {{name: h2, switch: s2}}]
links: [{{a: s1, b: s2, rate: 10 Mbit/s, delay: {delay_ms} ms, queue_frames: {queue_frames}, loss: {loss}}}]
""")


@dataclass(frozen=True, slots=True)
class Window:
    """A sender's windows in segments, ssthresh None while unset, and the acknowledged segments."""

    cwnd: float
    ssthresh: float | None
    acked: float
    rtt_ns: int
    is_open: bool = True


@dataclass(slots=True)
class Run:
    """Behaviour of one of the two stacks."""

    windows: list[Window] = field(default_factory=list)
    goodput_bps: float = 0.0
    lasted_ns: float = 0.0

    def reductions(self) -> list[float]:
        """Return what losses in congestion avoidance left of the window."""
        ratios = []
        for before, after in pairwise(self.windows):
            if before.ssthresh is None or after.ssthresh is None or before.cwnd <= 12:
                continue
            if before.cwnd < before.ssthresh:
                continue  # one reduction follows another before the window is what the first leaves
            if after.ssthresh != before.ssthresh and after.ssthresh < before.cwnd:
                ratios.append(after.ssthresh / before.cwnd)
        return ratios

    @property
    def rtt_ns(self) -> float:
        return sum(window.rtt_ns for window in self.windows) / len(self.windows)

    @property
    def segments_a_round_trip(self) -> float:
        first, last = self.windows[0], self.windows[-1]
        return (last.acked - first.acked) * self.rtt_ns / self.lasted_ns

    @property
    def slow_start_end(self) -> float:
        """The window at which slow start ended, in segments."""
        return next(window.ssthresh for window in self.windows if window.ssthresh is not None)

    def slow_start(self) -> list[Window]:
        return [window for window in self.windows if window.ssthresh is None and window.is_open]


def in_kernel(fabric: KernelFabric, congestion: Congestion, seconds: float) -> Run:
    """Send as much as goes from h1 to h2 with the kernel's TCP; sample its windows each few milliseconds."""
    run, arrived = Run(), [0]
    with _connected(fabric, congestion) as (client, taken):

        def receive() -> None:
            buffer = bytearray(1 << 16)
            while count := taken.recv_into(buffer):
                arrived[0] += count

        receiver = threading.Thread(target=receive)
        receiver.start()
        client.setblocking(False)
        began, data = time.monotonic(), bytes(1 << 16)
        while (elapsed := time.monotonic() - began) < seconds:
            try:
                while client.send(data):
                    pass
            except BlockingIOError:
                pass
            run.windows.append(_window(client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)))
            time.sleep(0.002)
        run.goodput_bps, run.lasted_ns = arrived[0] * 8 / elapsed, elapsed * SECOND
        taken.shutdown(socket.SHUT_RD)
        client.close()
        receiver.join()
    return run


@contextmanager
def _connected(fabric: KernelFabric, congestion: Congestion) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield both ends of a connection from h1 to h2, which leaves no memory of the path (a reset ends it)."""

    def make() -> socket.socket:
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)

    with fabric.call_in("h2", make) as server, fabric.call_in("h1", make) as client:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("0.0.0.0", 5001))
        server.listen()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.connect((str(fabric.topology.host["h2"].ipv4), 5001))
        taken, _ = server.accept()
        with taken:
            yield client, taken


def _marked_filter() -> bytes:
    """Return a filter of a TCP socket, whose packets begin with TCP: data that begins with the mark is lost."""
    return b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (0x80, 0, 0, 0),  # the packet's length
            (0x35, 0, 6, 1_000),  # short packets have no mark
            (0x30, 0, 0, 12),  # the header's length
            (0x54, 0, 0, 0xF0),
            (0x74, 0, 0, 2),
            (0x07, 0, 0, 0),
            (0x50, 0, 0, 0),  # the first byte behind it
            (0x15, 0, 1, MARK[0]),
            (0x06, 0, 0, 0),
            (0x06, 0, 0, 0xFFFFFFFF),
        )
    )


def burst(lost: int) -> bytes:
    return b"d" * SEGMENT * (BURST - lost) + MARK * SEGMENT * lost


def tail_in_kernel(fabric: KernelFabric, lost: int) -> float:
    """Send three bursts with the kernel's TCP, the third with its end lost; return the duration of that one."""
    with _connected(fabric, Congestion.CUBIC) as (client, taken):
        for _ in range(2):
            client.sendall(burst(0))
            _take(taken, BURST * SEGMENT)
            time.sleep(0.3)
        attach_filter(taken, _marked_filter())
        began_ns = time.monotonic_ns()
        stopping = threading.Timer(LOSING_NS / SECOND, lambda: taken.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0))
        stopping.start()
        client.sendall(burst(lost))
        _take(taken, BURST * SEGMENT)
        lasted_ns = time.monotonic_ns() - began_ns
        stopping.join()
    return lasted_ns


def _take(taken: socket.socket, nbytes: int) -> None:
    while nbytes:
        nbytes -= len(taken.recv(nbytes))


def tail_in_virtual_time(topology: Topology, lost: int, settings: TcpSettings) -> float:
    """The same with ours."""
    fabric = _ready(topology)
    host, arrived = fabric.host("h2"), [0]
    losing, last_ns = [False], [0]
    sending = fabric.host("h1").tcp
    send = sending._send

    def take(data: bytes) -> None:
        arrived[0] += len(data)
        last_ns[0] = fabric.now_ns

    def accept(connection: Connection) -> None:
        connection.on_data = take

    def lose(frame: bytes) -> bool:
        segment = decode_tcp_frame(frame)
        assert segment is not None
        return (losing[0] and segment.payload[:1] == MARK) or send(frame)

    sending._send = lose
    host.tcp.listen(5001, accept)
    fabric.run_until(SECOND)
    client = sending.connect(host.node.ipv4, 5001, settings)
    for _ in range(2):
        client.write(burst(0))
        fabric.run_until(fabric.now_ns + SECOND // 2)
    began_ns, losing[0] = fabric.now_ns, True
    client.write(burst(lost))
    fabric.run_until(began_ns + LOSING_NS)
    losing[0] = False
    fabric.run_until(began_ns + 2 * SECOND)
    assert arrived[0] == 3 * BURST * SEGMENT
    return last_ns[0] - began_ns


def _window(info: bytes) -> Window:
    numbers = _NUMBERS.unpack_from(info)
    (acked,) = struct.unpack_from("=Q", info, _BYTES_ACKED)
    ssthresh = None if numbers[_SSTHRESH] >= UNLIMITED else float(numbers[_SSTHRESH])
    return Window(numbers[_CWND], ssthresh, acked / numbers[_MSS], numbers[_RTT] * 1000, info[1] == _OPEN)


def _ready(topology: Topology, seed: int = 1) -> VirtualFabric:
    fabric = VirtualFabric(topology, seed=seed)
    schema = load_schema(*fabric_program())
    sessions = {
        node.name: InProcessSession(node.name, node.node_id, fabric.p4runtime(node.name), schema)
        for node in topology.switches
    }
    VirtualController(topology, sessions, fabric.clock, fabric.call_at, watches=()).start()
    return fabric


def in_virtual_time(topology: Topology, congestion: Congestion, seconds: int, seed: int = 1) -> Run:
    """The same with ours, through the same program."""
    fabric = _ready(topology, seed)
    settings = TcpSettings(congestion=congestion, sample_ns=1_000_000)
    begin_ns = SECOND
    end_ns = begin_ns + seconds * SECOND
    flow = BulkFlow(fabric, "h1", "h2", start_ns=begin_ns, stop_ns=end_ns, settings=settings)
    fabric.run_until(end_ns)
    mss = flow.connection.sender.mss_bytes
    windows = [
        Window(
            sample.window_bytes / mss,
            None if sample.threshold_bytes is None else sample.threshold_bytes / mss,
            sample.delivered_bytes / mss,
            sample.rtt_ns or 0,
        )
        for sample in flow.statistics.samples
    ]
    return Run(windows, flow.goodput_bps(begin_ns, end_ns), end_ns - begin_ns)


@pytest.fixture
def settings(tmp_path: Path) -> KernelSettings:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text(encoding="ascii").split()
    missing = [congestion for congestion in FACTORS if congestion not in available]
    if missing:
        pytest.skip(f"this kernel has no {', '.join(missing)}")
    return KernelSettings(run_root=tmp_path / "run")


@pytest.mark.timeout(600)
def test_windows_grow_and_shrink_as_the_kernel_s(settings: KernelSettings) -> None:
    topology = path("0%")
    with KernelFabric(topology, settings) as fabric:
        fabric.wait_ready(60)
        install_paths(fabric)
        theirs = {congestion: in_kernel(fabric, congestion, 12) for congestion in FACTORS}
    ours = {congestion: in_virtual_time(topology, congestion, 12) for congestion in FACTORS}
    for congestion in FACTORS:
        for name, run in (("kernel", theirs[congestion]), ("ours", ours[congestion])):
            begun = run.slow_start()
            print(f"{congestion} {name}: {run.goodput_bps / 1e6:.2f} Mbit/s, {run.reductions()}")
            assert max(window.cwnd for window in begun) >= 20, f"{name}: {begun}"
            assert all(abs(window.cwnd - 10 - window.acked) <= 2 for window in begun), f"{name}: {begun}"
            left = run.reductions()
            assert left, name
            assert all(abs(share - FACTORS[congestion]) <= 0.06 for share in left), f"{name}: {left}"
        assert ours[congestion].goodput_bps == pytest.approx(theirs[congestion].goodput_bps, rel=0.1)


@pytest.mark.timeout(900)
def test_goodput_under_loss_is_that_of_the_kernel(settings: KernelSettings) -> None:
    topology, seconds, times = path("1%"), 60, 3
    theirs: dict[Congestion, list[float]] = {congestion: [] for congestion in FACTORS}
    with KernelFabric(topology, settings) as fabric:
        fabric.wait_ready(60)
        install_paths(fabric)
        for _ in range(times):
            for congestion in FACTORS:
                theirs[congestion].append(in_kernel(fabric, congestion, seconds).segments_a_round_trip)
    for congestion in FACTORS:
        ours = [in_virtual_time(topology, congestion, seconds, seed).segments_a_round_trip for seed in range(times)]
        for name, run in (("ours", ours), ("kernel", theirs[congestion])):
            print(f"{congestion} {name}: segments a round trip", *(f"{segments:.1f}" for segments in run))
        assert fmean(ours) == pytest.approx(fmean(theirs[congestion]), rel=0.1)


@pytest.mark.timeout(600)
def test_slow_start_ends_where_the_kernel_s_does(settings: KernelSettings) -> None:
    """Nothing is lost; without HyStart it would end at more than a thousand segments.

    The path holds 23 frames: not near a power of two of the initial window, where a millisecond decides over a round.
    """
    topology = path("0%", queue_frames=1000, delay_ms=14)
    with KernelFabric(topology, settings) as fabric:
        fabric.wait_ready(60)
        install_paths(fabric)
        theirs = [in_kernel(fabric, Congestion.CUBIC, 3).slow_start_end for _ in range(5)]
    ours = in_virtual_time(topology, Congestion.CUBIC, 3).slow_start_end
    print(f"slow start ends at {ours:.0f} segments, the kernel's at", *(f"{segments:.0f}" for segments in theirs))
    assert ours == pytest.approx(median(theirs), rel=1 / 3)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_burst_whose_end_is_lost_takes_as_long_as_the_kernel_s(settings: KernelSettings, lost: int) -> None:
    topology = path("0%")
    with KernelFabric(topology, settings) as fabric:
        fabric.wait_ready(60)
        install_paths(fabric)
        theirs = [tail_in_kernel(fabric, lost) for _ in range(5)]
    ours = tail_in_virtual_time(topology, lost, TcpSettings())
    without = tail_in_virtual_time(topology, lost, TcpSettings(rack=False, tail_loss_probes=False))
    print(f"{lost} lost: {ours / MS:.0f} ms, without RACK-TLP {without / MS:.0f}, the kernel", end=" ")
    print(*(f"{lasted_ns / MS:.0f}" for lasted_ns in theirs))
    assert ours == pytest.approx(min(theirs), abs=50 * MS)
