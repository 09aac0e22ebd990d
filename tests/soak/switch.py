"""Minutes of random valid and mangled traffic while tables change, against a switch process; then counters must add up.

The switch runs two programs in turn, compiled: forwarding.p4, while P4Runtime inserts, changes and deletes routes,
members and groups and reads entries with their counters; and copies.p4, which clones, multicasts, resubmits,
recirculates and truncates, while sessions and groups change. Checked: the process lives, refuses nothing, uses no more
memory than after its warm-up, and its counters add up: frames in and copies made are frames out, named drops and frames
that wait; what the hosts sent is what came in or was dropped by name, and what the ports sent is what came.

Usage: python tests/soak/switch.py [--minutes N] [--seed N] [--threads N] [--io ring|ring3|xdp]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from dataplane.fabric.kernel import namespaces
from dataplane.nic import NicPort, RingSettings, open_port
from tests.benchmarks.traffic.cables import Cables, cables
from tests.benchmarks.traffic.targets import COMPILED, Running, running
from tests.soak.loads import POOL_FRAMES, Copies, Load, Routes

WARM_UP_SHARE = 0.25
GROWTH_KIB = 24 * 1024
"""Memory growth allowed after warm-up: allocators settle late, but a leak of a byte per packet exceeds it."""
BURST_FRAMES = 128
RECOMMIT_S, WRITE_S, READ_S, PAUSE_S = 7.0, 0.02, 1.0, 0.002
SETTLE_S = 2.5


@dataclass(slots=True)
class Report:
    """Result of a soak; `problems` is empty on success."""

    seconds: float = 0.0
    sent: int = 0
    came_out: int = 0
    copies: int = 0
    writes: int = 0
    commits: int = 0
    rss_warm_kib: int = 0
    rss_most_kib: int = 0
    drops: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def soak(seconds: float, seed: int, options: Sequence[str] = ()) -> Report:
    """Run for this long, with more options for the switch; needs root."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="soak") as folder, cables() as net:
        stats_file = Path(folder) / "stats"
        source, sink = _open(net, net.source), _open(net, net.sink)
        try:
            with running(COMPILED, net, ("--stats-file", str(stats_file), *options)) as switch:
                report = _run(switch, source, sink, seconds, rng, stats_file)
        finally:
            source.close()
            sink.close()
    return report


def _run(switch: Running, source: NicPort, sink: NicPort, seconds: float, rng: random.Random, stats: Path) -> Report:
    report = Report()
    control = frozenset(json.loads(stats.read_text())["drops"])
    loads: Sequence[Load] = (Routes(switch.client, rng), Copies(switch.client, rng))
    load = loads[0]
    load.reset()
    began = time.monotonic()
    due = {"write": began, "read": began, "commit": began + RECOMMIT_S}
    while (now := time.monotonic()) < began + seconds or report.commits < len(loads):
        first = rng.randrange(POOL_FRAMES - BURST_FRAMES)
        source.send(load.frames[first : first + BURST_FRAMES])
        report.came_out += _take_all(sink)
        _take_all(source)
        if now >= due["write"]:
            report.writes, due["write"] = report.writes + load.change(), now + WRITE_S
        if now >= due["read"]:
            due["read"] = now + READ_S
            _watch(switch.pid, report, warm=now > began + WARM_UP_SHARE * seconds)
            if (problem := load.read()) is not None:
                report.problems.append(problem)
        if now >= due["commit"]:
            report.commits += 1
            load = loads[report.commits % len(loads)]
            load.reset()
            due["commit"] = time.monotonic() + RECOMMIT_S  # a program may have to be compiled first
        time.sleep(PAUSE_S)
    report.seconds = round(time.monotonic() - began, 1)
    settled = time.monotonic() + SETTLE_S
    while time.monotonic() < settled:
        report.came_out += _take_all(sink)
        _take_all(source)
        time.sleep(0.01)
    _check(json.loads(stats.read_text()), control, source, sink, report)
    return report


def _check(stats: Mapping[str, Any], control: frozenset[str], source: NicPort, sink: NicPort, report: Report) -> None:
    """Check the switch's counters among themselves and against the hosts'."""
    ports = stats["ports"].values()
    report.drops = {name: number for name, number in stats["drops"].items() if name not in control and number}
    for port in ports:
        for name, number in port["drops"].items():
            report.drops[name] = report.drops.get(name, 0) + number
    received, queued = sum(port["rx_frames"] for port in ports), sum(port["queued_frames"] for port in ports)
    accounted = sum(port["tx_frames"] for port in ports) + sum(report.drops.values()) + queued
    report.copies = stats["copies"]
    if received + report.copies != accounted:
        came = f"{received} frames came in and {report.copies} copies were made"
        report.problems.append(f"{came}, {accounted} went out, were dropped by name or wait")
    report.sent = source.read_counters().tx_frames
    first, second = stats["devices"]["1"], stats["devices"]["2"]
    seen = first["rx_frames"] + sum(number for name, number in first["drops"].items() if name.startswith("rx"))
    seen += first["drops"].get("socket_full", 0)
    if report.sent != seen:
        report.problems.append(f"{report.sent} frames were sent to port 1, {seen} were received or dropped by name")
    for number, port, host in ((1, first, source), (2, second, sink)):
        reading = host.read_counters()
        if port["tx_frames"] != reading.rx_frames + sum(reading.drops.values()):
            came = f"{reading.rx_frames} came, {reading.drops}"
            report.problems.append(f"port {number} sent {port['tx_frames']} frames, {came}")
    if report.rss_most_kib > report.rss_warm_kib + GROWTH_KIB:
        report.problems.append(f"memory grew from {report.rss_warm_kib} KiB to {report.rss_most_kib} KiB")


def _watch(pid: int, report: Report, *, warm: bool) -> None:
    """Note the process's memory; raises FileNotFoundError if it is gone."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    rss_kib = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    if not warm:
        report.rss_warm_kib = max(report.rss_warm_kib, rss_kib)
    report.rss_most_kib = max(report.rss_most_kib, rss_kib)


def _open(net: Cables, device: str) -> NicPort:
    settings = RingSettings(rx_frames=16_384, tx_frames=1_024, frame_bytes=2_048)
    return namespaces.call(net.hosts, lambda: open_port(device, settings=settings))


def _take_all(port: NicPort) -> int:
    count = 0
    while batch := port.receive(512):
        count += len(batch)
    return count


def main(argv: list[str]) -> int:
    """Print the report and, last, one line of JSON; return 1 if something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--io", default="ring")
    options = parser.parse_args(argv)
    if os.geteuid() != 0:
        parser.error("needs root")
    report = soak(60 * options.minutes, options.seed, ("--threads", str(options.threads), "--io", options.io))
    for problem in report.problems:
        print(problem)
    print(json.dumps(asdict(report)))
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
