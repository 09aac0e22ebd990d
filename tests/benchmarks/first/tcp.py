"""TCP through switches, the figure that users of bmv2 quote: iperf3 between two hosts, through one and through three.

Hosts in namespaces, veth, MTU 1500, offloads off. In each switch's place, in turn: the kernel's own bridge, ours in
three modes, ours with TCP segments joined on the hosts' ports whoever reads there (`--join-segments on`) and never
(`off`), and bmv2 with its log off. The program, tests/benchmarks/programs/router.p4, does what basic.p4 of p4lang's
tutorials does, with a route each way. Everything shares the machine's processors.

- iperf_share_bridge, iperf_ratio_bmv2: ours as it starts without options (`auto`) over the bridge and over bmv2, one
  switch; medians of the rounds' ratios. With `_on` and `_off`: the same with segments always and never joined.

    sudo .venv/bin/python -m tests.benchmarks.first.tcp [--quick] [--rounds N] [--seconds S]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from finsy.proto import p4r
from rich.console import Console
from rich.table import Table

from dataplane.topology.values import HostNode
from tests.benchmarks.first.tcp_path import CLIENT, FAR, NEAR, SERVER, TcpPath, bridged, iperf_bps, tcp_path
from tests.benchmarks.traffic.targets import BMV2, COMPILED, is_available, running
from tests.p4runtime_client import Client, Names, insert, lpm, pipeline_config

BRIDGE, DEFAULT, JOINED = "kernel bridge", "millrace, kernel rings", "millrace, segments joined"
APART = "millrace, segments apart"
OPTIONS: Final = {
    DEFAULT: (),
    APART: ("--join-segments", "off"),
    "millrace, throughput": ("--io", "throughput"),
    "millrace, AF_XDP": ("--io", "xdp"),
    JOINED: (),
}
LENGTHS: Final = (1, 3)
ROUNDS, SECONDS = 5, 3
QUICK_SIDES, QUICK_SECONDS = (BRIDGE, DEFAULT, JOINED), 1
NAMES: Final = tuple(
    f"iperf_{figure}{mode}" for mode in ("", "_on", "_off") for figure in ("ratio_bmv2", "share_bridge")
)
_PROGRAM = Path(__file__).parents[1] / "programs" / "router.json"

ByLength = Mapping[str, list[float]]
"""Bits a second of each round, by side."""


def route_hosts(client: Client) -> None:
    """Commit the program and write its two routes."""
    config = pipeline_config(_PROGRAM, _PROGRAM.with_suffix(".p4info.txtpb"))
    client.commit_config(config)
    names = Names(config.p4info)

    def route(host: HostNode, port: int) -> p4r.Update:
        action = p4r.TableAction(action=names.action("Inbound.forward", host.mac, port))
        return insert(names.table_entry("Inbound.routes", [lpm(1, int(host.ipv4), 32)], action))

    client.write([route(CLIENT, NEAR), route(SERVER, FAR)])


@contextmanager
def switched(path: TcpPath, side: str) -> Iterator[None]:
    """Have a side in each place of the path while the `with` block lasts."""
    with ExitStack() as stack:
        if side == BRIDGE:
            stack.enter_context(bridged(path))
        for hop in path.places if side != BRIDGE else ():
            options = list(OPTIONS.get(side, ()))
            if side == JOINED:
                hosts = {NEAR: path.places[0], FAR: path.places[-1]}
                options += [word for port in hosts if hosts[port] == hop for word in ("--join-segments", str(port))]
            target = BMV2 if side == BMV2 else COMPILED
            route_hosts(stack.enter_context(running(target, hop, options)).client)
        yield


def rates(length: int, sides: tuple[str, ...], rounds: int, seconds: int) -> ByLength:
    """Return the goodput of each side through this many switches, the sides in turn in each round."""
    by_side: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, figures in by_side.items():
            with tcp_path(length) as path, switched(path, side):
                figures.append(iperf_bps(path, seconds))
    return by_side


def sides_here() -> tuple[str, ...]:
    """Return all sides that can be measured here."""
    return (BRIDGE, *OPTIONS, *([BMV2] if is_available(BMV2) else []))


def measure(*, quick: bool, rounds: int = ROUNDS, seconds: int = SECONDS) -> dict[str, float | None]:
    """Return `NAMES` with their figures, None without iperf3, and print the table."""
    if shutil.which("iperf3") is None:
        sys.stderr.write("iperf3 is not on the PATH\n")
        return dict.fromkeys(NAMES)
    sides, lengths = (QUICK_SIDES, LENGTHS[:1]) if quick else (sides_here(), LENGTHS)
    rounds, seconds = (1, QUICK_SECONDS) if quick else (rounds, seconds)
    by_length = {length: rates(length, sides, rounds, seconds) for length in lengths}
    table = Table("Gbit/s", *(f"{length} in a row" for length in lengths), "over the bridge")
    for side in sides:
        cells = [f"{median(by_length[length][side]) / 1e9:.2f}" for length in lengths]
        shares = [f"{_ratio(by_length[length], side, BRIDGE):.2f}" for length in lengths]
        table.add_row(side, *cells, ", ".join(shares))
    Console().print(table)
    Console().print(f"{rounds} rounds of {seconds} s; {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    return summary(by_length[1])


def summary(by_length: ByLength) -> dict[str, float | None]:
    """Return the figures of one switch; None where the other side was not measured."""
    return {
        f"iperf_{figure}{mode}": _ratio(by_length, side, other)
        for side, mode in ((DEFAULT, ""), (JOINED, "_on"), (APART, "_off"))
        for figure, other in (("ratio_bmv2", BMV2), ("share_bridge", BRIDGE))
    }


def _ratio(by_length: ByLength, side: str, other: str) -> float | None:
    """Return the median of the rounds' ratios."""
    if not {side, other} <= by_length.keys():
        return None
    return round(median(ours / theirs for ours, theirs in zip(by_length[side], by_length[other], strict=True)), 2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round of one switch")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    asked = parser.parse_args()
    sys.stdout.write(f"{json.dumps(measure(quick=asked.quick, rounds=asked.rounds, seconds=asked.seconds))}\n")
