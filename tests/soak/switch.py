"""Minutes of random valid and mangled traffic while tables change, against a switch process; then all has to add up.

The switch runs tests/dataplane/programs/forwarding.p4 compiled. Meanwhile P4Runtime inserts, changes and deletes
routes, members and groups, reads entries with their counters, and now and then commits the program again. Checked: the
process lives, refuses nothing, uses no more memory than after its warm-up, and its counters add up: frames in are
frames out, named drops and frames that wait; what the hosts sent is what came in or was dropped by name.

Usage: python tests/soak/switch.py [--minutes N] [--seed N]
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

from finsy.proto import p4r

from dataplane.fabric.kernel import namespaces
from dataplane.nic import NicPort, RingSettings, open_port
from tests.benchmarks.traffic import forwarding
from tests.benchmarks.traffic.cables import Cables, cables
from tests.benchmarks.traffic.targets import COMPILED, Running, running
from tests.p4runtime_client import Client, Names, lpm, pipeline_config

WARM_UP_SHARE = 0.25
GROWTH_KIB = 24 * 1024
"""What the process may grow after its warm-up: allocators settle late, a leak of a byte a packet does not fit."""
BURST_FRAMES, POOL_FRAMES = 128, 4_096
MOST_ROUTES, MEMBERS = 100, 4
RECOMMIT_S, WRITE_S, READ_S, PAUSE_S = 7.0, 0.02, 1.0, 0.002
SETTLE_S = 2.5


@dataclass(slots=True)
class Report:
    """What came of a soak; `problems` is empty when all was well."""

    seconds: float = 0.0
    sent: int = 0
    came_out: int = 0
    writes: int = 0
    commits: int = 0
    rss_warm_kib: int = 0
    rss_most_kib: int = 0
    drops: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Routes:
    """Random changes to the forwarding program's entries, none of which the switch has a reason to refuse."""

    def __init__(self, client: Client, rng: random.Random) -> None:
        self._client, self._rng = client, rng
        config = pipeline_config(forwarding.PROGRAM, forwarding.P4INFO)
        self._names = Names(config.p4info)
        self._profile = self._names.profile_id("Inbound.ecmp")
        self._present: set[tuple[int, int]] = set()
        self.reset()

    def reset(self) -> None:
        """Commit the program, which empties all tables, and write the routes that the frames follow."""
        forwarding.install(self._client)
        self._present = {(forwarding.network(number), 24) for number in range(forwarding.ROUTES)}

    def change(self) -> int:
        """Write a batch of random changes; return how many."""
        updates = [self._change_route() for _ in range(self._rng.randrange(1, 8))]
        updates += [self._change_member(), self._change_group()]
        self._client.write(updates)
        return len(updates)

    def read(self) -> int:
        """Read all routes with their counters; return how many."""
        entry = p4r.TableEntry(table_id=self._names.table_entry("Inbound.routes", [], None).table_entry.table_id)
        entry.counter_data.SetInParent()
        return len(self._client.read(p4r.Entity(table_entry=entry)))

    @property
    def present(self) -> int:
        """Return how many routes there have to be."""
        return len(self._present)

    def _change_route(self) -> p4r.Update:
        length = self._rng.choice((24, 26, 32))
        address = forwarding.network(self._rng.randrange(forwarding.ROUTES)) + self._rng.randrange(4)
        route = (address >> (32 - length) << (32 - length), length)
        to_group = self._rng.random() < 0.7
        action = p4r.TableAction(action_profile_group_id=1) if to_group else self._to_member()
        kind = p4r.Update.MODIFY if self._rng.random() < 0.3 else p4r.Update.DELETE
        if route not in self._present:
            kind = p4r.Update.INSERT
            if len(self._present) >= MOST_ROUTES + 20:
                route, kind = self._rng.choice(sorted(self._present)), p4r.Update.DELETE
        if kind != p4r.Update.MODIFY:
            self._present ^= {route}
        entity = self._names.table_entry("Inbound.routes", [lpm(1, *route)], action)
        return p4r.Update(type=kind, entity=entity)

    def _to_member(self) -> p4r.TableAction:
        return p4r.TableAction(action_profile_member_id=self._rng.randrange(1, MEMBERS + 1))

    def _change_member(self) -> p4r.Update:
        call = ("Inbound.forward", self._rng.choice((1, 2, 2, 2, 9)))
        if self._rng.random() < 0.2:
            call = ("Inbound.drop", self._rng.randrange(6))
        member = p4r.ActionProfileMember(
            action_profile_id=self._profile,
            member_id=self._rng.randrange(1, MEMBERS + 1),
            action=self._names.action(*call),
        )
        return p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(action_profile_member=member))

    def _change_group(self) -> p4r.Update:
        group = p4r.ActionProfileGroup(action_profile_id=self._profile, group_id=1, max_size=16)
        for member in self._rng.sample(range(1, MEMBERS + 1), self._rng.randrange(MEMBERS + 1)):
            group.members.add(member_id=member, weight=self._rng.randrange(1, 4))
        return p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(action_profile_group=group))


def soak(seconds: float, seed: int) -> Report:
    """Run for so long; needs root."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="soak") as folder, cables() as net:
        stats_file = Path(folder) / "stats"
        source, sink = _open(net, net.source), _open(net, net.sink)
        try:
            with running(COMPILED, net, ("--stats-file", str(stats_file))) as switch:
                report = _run(switch, source, sink, seconds, rng, stats_file)
        finally:
            source.close()
            sink.close()
    return report


def _run(switch: Running, source: NicPort, sink: NicPort, seconds: float, rng: random.Random, stats: Path) -> Report:
    report = Report()
    control = frozenset(json.loads(stats.read_text())["drops"])
    routes, frames = Routes(switch.client, rng), _frames(rng)
    began = time.monotonic()
    due = {"write": began, "read": began, "commit": began + RECOMMIT_S}
    while (now := time.monotonic()) < began + seconds:
        first = rng.randrange(POOL_FRAMES - BURST_FRAMES)
        source.send(frames[first : first + BURST_FRAMES])
        report.came_out += _take_all(sink)
        _take_all(source)
        if now >= due["write"]:
            report.writes, due["write"] = report.writes + routes.change(), now + WRITE_S
        if now >= due["read"]:
            due["read"] = now + READ_S
            _watch(switch.pid, report, warm=now > began + WARM_UP_SHARE * seconds)
            if (found := routes.read()) != routes.present:
                report.problems.append(f"{found} routes where {routes.present} were written")
        if now >= due["commit"]:
            routes.reset()
            report.commits, due["commit"] = report.commits + 1, now + RECOMMIT_S
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
    """Compare what the switch counted with itself and with what the hosts counted."""
    ports = stats["ports"].values()
    report.drops = {name: number for name, number in stats["drops"].items() if name not in control and number}
    for port in ports:
        for name, number in port["drops"].items():
            report.drops[name] = report.drops.get(name, 0) + number
    received, queued = sum(port["rx_frames"] for port in ports), sum(port["queued_frames"] for port in ports)
    accounted = sum(port["tx_frames"] for port in ports) + sum(report.drops.values()) + queued
    if received != accounted:
        report.problems.append(f"{received} frames came in, {accounted} went out, were dropped by name or wait")
    report.sent = source.read_counters().tx_frames
    first, second = stats["devices"]["1"], stats["devices"]["2"]
    seen = first["rx_frames"] + sum(number for name, number in first["drops"].items() if name.startswith("rx"))
    seen += first["drops"].get("socket_full", 0)
    if report.sent != seen:
        report.problems.append(f"{report.sent} frames were sent to port 1, {seen} were received or dropped by name")
    reading = sink.read_counters()
    if second["tx_frames"] != reading.rx_frames + sum(reading.drops.values()):
        report.problems.append(f"port 2 sent {second['tx_frames']} frames, {reading.rx_frames} came, {reading.drops}")
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
    found = 0
    while batch := port.receive(512):
        found += len(batch)
    return found


def _frames(rng: random.Random) -> Sequence[bytes]:
    """Return frames: half of them whole, the others with changed bytes, cut short, made longer, or noise."""
    whole = forwarding.make_frames()
    found = []
    for _ in range(POOL_FRAMES):
        frame = bytearray(rng.choice(whole))
        kind = rng.randrange(8)
        if kind == 0:
            for _ in range(rng.randrange(1, 12)):
                frame[rng.randrange(len(frame))] = rng.randrange(256)
        elif kind == 1:
            del frame[rng.randrange(14, len(frame)) :]
        elif kind == 2:
            frame += rng.randbytes(rng.randrange(1_300))
        elif kind == 3:
            frame = bytearray(rng.randbytes(rng.randrange(14, 1_500)))
        found.append(bytes(frame))
    return found


def main(argv: list[str]) -> int:
    """Print the report and, last, one line of JSON; return 1 if something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    if os.geteuid() != 0:
        parser.error("needs root")
    report = soak(60 * options.minutes, options.seed)
    for problem in report.problems:
        print(problem)
    print(json.dumps(asdict(report)))
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
