"""Our TCP in virtual time beside that of this machine's kernel, over one topology file.

The kernel's runs between namespaces, through two switches that hold rate, delay and queue, and over links that lose
frames; its windows are read from TCP_INFO. Timing on a busy machine is rough, and the kernel has more than what ours
has (timers of RACK, tail loss probes, HyStart in CUBIC), so the tolerances are:

- slow start: the window is the initial one and a segment for each that was acknowledged, to two segments, in both;
- what a loss leaves of the window in congestion avoidance: 0.5 and 0.7 to 0.06, in both;
- data acknowledged in a round trip, where a hundredth of the frames is lost each way: within a third of the kernel's;
  by round trips, as those in the kernel grow with all else that the machine does.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from controller.p4runtime.in_process import InProcessSession
from controller.p4runtime.session import fabric_program, load_schema
from controller.virtual import VirtualController
from dataplane.fabric.kernel import KernelFabric, KernelSettings
from dataplane.fabric.virtual import VirtualFabric
from dataplane.fabric.virtual.bulk import BulkFlow
from dataplane.fabric.virtual.tcp import Congestion, TcpSettings
from dataplane.topology.file import loads
from dataplane.topology.values import Topology
from tests.dataplane.fabric.kernel.paths import install_paths

pytestmark = [pytest.mark.root, pytest.mark.slow]
SECOND: Final = 1_000_000_000
FACTORS: Final = {Congestion.RENO: 0.5, Congestion.CUBIC: 0.7}
UNLIMITED: Final = 0x7FFFFFFF
_NUMBERS: Final = struct.Struct("=8x21I")
"""struct tcp_info, from tcpi_rto to tcpi_reordering."""
_MSS, _RTT, _SSTHRESH, _CWND, _BYTES_ACKED = 2, 15, 17, 18, 120
_OPEN = 0


def path(loss: str) -> Topology:
    return loads(f"""
millrace: 1
name: path
defaults: {{access: {{rate: 1 Gbit/s, delay: 0 ns, queue_frames: 1000}}}}
switches: [{{name: s1}}, {{name: s2}}]
hosts: [{{name: h1, switch: s1}}, {{name: h2, switch: s2}}]
links: [{{a: s1, b: s2, rate: 10 Mbit/s, delay: 20 ms, queue_frames: 20, loss: {loss}}}]
""")


@dataclass(frozen=True, slots=True)
class Window:
    """A sender's windows in segments, ssthresh None while there is none, and what was acknowledged."""

    cwnd: float
    ssthresh: float | None
    acked: float
    rtt_ns: int
    is_open: bool = True


@dataclass(slots=True)
class Run:
    """What one of the two did."""

    windows: list[Window] = field(default_factory=list)
    goodput_bps: float = 0.0
    lasted_ns: float = 0.0

    def reductions(self) -> list[float]:
        """Return what losses in congestion avoidance left of the window."""
        found = []
        for before, after in pairwise(self.windows):
            if before.ssthresh is None or after.ssthresh is None or before.cwnd <= 12:
                continue
            if after.ssthresh != before.ssthresh and after.ssthresh < before.cwnd:
                found.append(after.ssthresh / before.cwnd)
        return found

    @property
    def rtt_ns(self) -> float:
        return sum(window.rtt_ns for window in self.windows) / len(self.windows)

    @property
    def segments_a_round_trip(self) -> float:
        first, last = self.windows[0], self.windows[-1]
        return (last.acked - first.acked) * self.rtt_ns / self.lasted_ns

    def slow_start(self) -> list[Window]:
        return [window for window in self.windows if window.ssthresh is None and window.is_open]


def in_kernel(fabric: KernelFabric, congestion: Congestion, seconds: float) -> Run:
    """Send as much as goes from h1 to h2 with the kernel's TCP; sample its windows each few milliseconds."""
    run, arrived = Run(), [0]

    def make() -> socket.socket:
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)

    with fabric.call_in("h2", make) as server, fabric.call_in("h1", make) as client:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("0.0.0.0", 5001))
        server.listen()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        client.connect((str(fabric.topology.host["h2"].ipv4), 5001))
        taken, _ = server.accept()

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
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        taken.shutdown(socket.SHUT_RD)
        client.close()
        receiver.join()
        taken.close()
    return run


def _window(info: bytes) -> Window:
    numbers = _NUMBERS.unpack_from(info)
    (acked,) = struct.unpack_from("=Q", info, _BYTES_ACKED)
    ssthresh = None if numbers[_SSTHRESH] >= UNLIMITED else float(numbers[_SSTHRESH])
    return Window(numbers[_CWND], ssthresh, acked / numbers[_MSS], numbers[_RTT] * 1000, info[1] == _OPEN)


def in_virtual_time(topology: Topology, congestion: Congestion, seconds: int) -> Run:
    """The same with ours, through the same program."""
    fabric = VirtualFabric(topology, seed=1)
    schema = load_schema(*fabric_program())
    sessions = {
        node.name: InProcessSession(node.name, node.node_id, fabric.p4runtime(node.name), schema)
        for node in topology.switches
    }
    VirtualController(topology, sessions, fabric.clock, fabric.call_at, watches=()).start()
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
    known = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text(encoding="ascii").split()
    missing = [congestion for congestion in Congestion if congestion not in known]
    if missing:
        pytest.skip(f"this kernel has no {', '.join(missing)}")
    return KernelSettings(run_root=tmp_path / "run")


@pytest.mark.timeout(600)
def test_windows_grow_and_shrink_as_the_kernel_s(settings: KernelSettings) -> None:
    topology = path("0%")
    with KernelFabric(topology, settings) as fabric:
        fabric.wait_ready(60)
        install_paths(fabric)
        theirs = {congestion: in_kernel(fabric, congestion, 12) for congestion in Congestion}
    ours = {congestion: in_virtual_time(topology, congestion, 12) for congestion in Congestion}
    for congestion in Congestion:
        for name, run in (("kernel", theirs[congestion]), ("ours", ours[congestion])):
            begun = run.slow_start()
            print(f"{congestion} {name}: {run.goodput_bps / 1e6:.2f} Mbit/s, {run.reductions()}")
            assert max(window.cwnd for window in begun) >= 20, f"{name}: {begun}"
            assert all(abs(window.cwnd - 10 - window.acked) <= 2 for window in begun), f"{name}: {begun}"
            left = run.reductions()
            assert left, name
            assert all(abs(share - FACTORS[congestion]) <= 0.06 for share in left), f"{name}: {left}"
        assert ours[congestion].goodput_bps == pytest.approx(theirs[congestion].goodput_bps, rel=0.1)


@pytest.mark.timeout(600)
def test_goodput_under_loss_is_that_of_the_kernel(settings: KernelSettings) -> None:
    topology = path("1%")
    with KernelFabric(topology, settings) as fabric:
        fabric.wait_ready(60)
        install_paths(fabric)
        theirs = {congestion: in_kernel(fabric, congestion, 25) for congestion in Congestion}
    for congestion in Congestion:
        ours, kernel = in_virtual_time(topology, congestion, 25), theirs[congestion]
        for name, run in (("ours", ours), ("kernel", kernel)):
            print(f"{congestion} {name}: {run.goodput_bps / 1e6:.2f} Mbit/s, {run.rtt_ns / 1e6:.0f} ms,", end=" ")
            print(f"{run.segments_a_round_trip:.1f} segments a round trip")
        assert ours.segments_a_round_trip == pytest.approx(kernel.segments_a_round_trip, rel=1 / 3)
