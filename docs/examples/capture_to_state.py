"""Telemetry reports from a capture file into the network's state: which link delayed whom, and by how much.

Any pcap or pcapng file with Telemetry Reports v2.0 in it will do, from our switches or from others; the topology file
says which switch has which node id, and what its ports lead to. The capture's own times are the collector's clock, so
an hour of it takes as long as reading it.

    python docs/examples/capture_to_state.py [CAPTURE TOPOLOGY]

Without arguments it makes a capture first: two racks, INT on every packet, one cable too narrow. It prints

    190 reports in 190 frames, 0 of them broken
    link leaf1->spine: p50 0.19 ms, p99 0.27 ms, 3% used, 0.0 frames wait
    link spine->leaf2: p50 14.48 ms, p99 26.61 ms, 81% used, 5.0 frames wait
    flow 10.0.1.1 to 10.0.2.1: leaf1-spine-leaf2, 14.79 ms
    flow 10.0.1.2 to 10.0.2.1: leaf1-spine-leaf2, 14.79 ms

`millrace telemetry replay` does the same at the command line, with history and events beside it
(docs/network/telemetry.md).
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from collectors.collector import Collector
from collectors.ingest.replay import Replay
from collectors.values import Snapshot
from controller.network.virtual import VirtualController
from dataplane.clock import VirtualClock
from dataplane.fabric.hosts import flow_between
from dataplane.fabric.virtual import VirtualFabric
from dataplane.nic.capture.pcap import PcapReader, PcapWriter
from dataplane.topology.file import load_topology, loads
from dataplane.topology.values import Topology

MS = 1_000_000
TOPOLOGY = """
millrace: 1
name: racks
collector: {host: c}
synchronised_clocks: true
defaults: {link: {rate: 100 Mbit/s, delay: 100 us}, access: {rate: 100 Mbit/s, delay: 1 us}}
switches: [{name: leaf1}, {name: leaf2}, {name: spine}]
hosts:
  - {name: h1, switch: leaf1}
  - {name: h2, switch: leaf1}
  - {name: h3, switch: leaf2}
  - {name: c, switch: leaf2}
links: [{a: leaf1, b: spine}, {a: spine, b: leaf2, rate: 4 Mbit/s}]
"""


def make_capture(file: Path, topology: Topology) -> None:
    """Write what a collector's host sees in half a second of two flows that share a narrow cable."""
    fabric = VirtualFabric(topology)
    VirtualController.over(fabric).start()
    with PcapWriter(file) as capture:
        fabric.host("c").on_frame(capture.write)
        for number, src in enumerate(("h1", "h2"), 1):
            fabric.start_flow(src, flow_between(topology, number, src, "h3", rate_bps=1_900_000, stop_ns=400 * MS))
        fabric.run_until(500 * MS)


def read_capture(file: Path, topology: Topology) -> Snapshot:
    """Return the network's state at the end of a capture."""
    clock = VirtualClock()
    collector = Collector(topology, clock)
    replay = Replay(collector, clock)
    with PcapReader(file) as captures:
        replay.run(captures)
    found = replay.result
    print(f"{found.reports} reports in {found.frames} frames, {found.broken} of them broken")
    return collector.snapshot()


def show(state: Snapshot, topology: Topology) -> None:
    """Print what the state says of links between switches that carried telemetry, and of flows."""
    for key, link in state.links.items():
        if link.samples and key.dst in topology.switch:
            delays = f"p50 {link.delay_p50_ns / MS:.2f} ms, p99 {link.delay_p99_ns / MS:.2f} ms"
            print(f"link {key}: {delays}, {link.utilisation:.0%} used, {link.queue_occupancy_frames:.1f} frames wait")
    for flow, path in state.paths.items():
        print(f"flow {flow.src} to {flow.dst}: {'-'.join(path.switches)}, {path.delay_ns / MS:.2f} ms")


def main(arguments: list[str]) -> None:
    """Read the capture that is named, or one of our own."""
    if arguments:
        capture, spec = arguments
        topology = load_topology(spec)
        show(read_capture(Path(capture), topology), topology)
        return
    topology = loads(TOPOLOGY)
    with TemporaryDirectory() as folder:
        file = Path(folder, "reports.pcap")
        make_capture(file, topology)
        show(read_capture(file, topology), topology)


if __name__ == "__main__":
    main(sys.argv[1:])
