"""Predicted against measured time of reduction rounds whose flows share links, with and without other traffic.

Switches are bridges, hosts network namespaces; TBF shapes every link in both directions to its rate in the topology.
Each round's transfers are TCP connections that begin together, and a round begins when the one before has ended. Other
traffic is UDP at a constant rate, which the cost map has as a load. Predicted is `network.timing.timed`, with the share
of a frame that is TCP's payload. TCP uses CUBIC, or the machine's own congestion control if its kernel lacks that; the
output says which.

    sudo .venv/bin/python -m tests.benchmarks.accelerating.contention
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import socket
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyroute2 import IPRoute
from rich.console import Console
from rich.table import Table

from collectors.values import Snapshot
from controller.acceleration.model import Works, times
from controller.acceleration.network.timing import timed, tree_over
from controller.acceleration.network.trees import Aggregators, ReductionTree, Transfer
from controller.acceleration.values import Growth, Machines, Network, Work
from controller.cluster.cost_map import CostMap, Load
from dataplane.fabric.kernel import namespaces
from dataplane.fabric.kernel.manifest import held_namespaces
from dataplane.topology.file import loads
from dataplane.topology.values import Link, Topology

GOODPUT: Final = 1448 / 1514
"""TCP's payload in a frame of 1,500 bytes with time stamps, as TBF counts it, with the Ethernet header."""
_FRAME: Final = 1514
_DATAGRAM: Final = 1472
_BURST_BYTES: Final = 16 << 10
_PATIENCE_S: Final = 120.0
_PORT: Final = 7711
_MBIT: Final = 1e6


@dataclass(frozen=True, slots=True)
class Case:
    """A reduction over a fabric of racks: hosts a rack, rates of a host's link and of the racks' cables (Mbit/s)."""

    racks: int
    hosts: int
    access: int
    cable: int
    fan_in: int
    aggregators: Aggregators
    load: Load | None
    megabytes: float = 2.0

    @property
    def topology(self) -> Topology:
        """The racks' switches are joined by one more switch."""
        switches = [f"s{rack}" for rack in range(self.racks + 1)]
        hosts = [
            f"{{name: h{number + 1}, switch: s{number // self.hosts + 1}}}" for number in range(self.racks * self.hosts)
        ]
        cables = [f"{{a: s0, b: {name}, rate: {self.cable} Mbit/s, delay: 10 us}}" for name in switches[1:]]
        return loads(
            f"millrace: 1\nname: racks\ndefaults: {{access: {{rate: {self.access} Mbit/s, delay: 10 us}}}}\n"
            f"switches: [{', '.join(f'{{name: {name}}}' for name in switches)}]\n"
            f"hosts: [{', '.join(hosts)}]\nlinks: [{', '.join(cables)}]\n"
        )


CASES: Final = (
    Case(2, 4, 60, 60, 8, Aggregators.MEMBER, None),
    Case(2, 4, 60, 20, 4, Aggregators.MEMBER, None),
    Case(2, 4, 60, 20, 4, Aggregators.APART, None),
    Case(2, 4, 60, 20, 8, Aggregators.MEMBER, None),
    Case(2, 4, 60, 20, 8, Aggregators.MEMBER, Load("h8", "h2", 12_000_000)),
    Case(3, 3, 40, 30, 3, Aggregators.APART, Load("h4", "h7", 15_000_000)),
    Case(3, 3, 40, 30, 9, Aggregators.MEMBER, Load("h9", "h2", 20_000_000)),
)


@dataclass(frozen=True, slots=True)
class Trial:
    """Total time of a case's rounds: predicted from their paths, predicted from the sum over one rate, and measured."""

    case: Case
    predicted_s: float
    sum_s: float
    measured_s: float

    @property
    def error(self) -> float:
        """Relative error of the prediction, as a share of the measured time."""
        return abs(self.predicted_s - self.measured_s) / self.measured_s

    @property
    def error_of_sum(self) -> float:
        """Relative error of the estimate "all data over one rate"."""
        return abs(self.sum_s - self.measured_s) / self.measured_s


@contextmanager
def fabric_of(topology: Topology) -> Iterator[dict[str, str]]:
    """Build a topology of bridges and shaped cables; yield its hosts' namespaces."""
    prefix = f"mr-share-{secrets.token_hex(3)}"
    names = {host.name: f"{prefix}-{host.name}" for host in topology.hosts}
    with held_namespaces(prefix, *names.values()):
        namespaces.call(prefix, lambda: _make_bridges(topology))
        for number, link in enumerate(topology.links):
            _make_cable(topology, prefix, names, number, link)
        yield names


def _make_bridges(topology: Topology) -> None:
    with IPRoute() as netlink:
        for switch in topology.switches:
            netlink.link("add", ifname=switch.name, kind="bridge", br_stp_state=0)
            netlink.link("set", ifname=switch.name, state="up")


def _make_cable(topology: Topology, prefix: str, names: dict[str, str], number: int, link: Link) -> None:
    """Make a cable's two ends, put them into bridges or a host, and shape both."""
    ends = [(end.node, f"p{number}{side}") for side, end in (("a", link.a), ("b", link.b))]
    namespaces.call(prefix, partial(_make_pair, ends[0][1], ends[1][1]))
    for node, device in ends:
        if node in topology.switch:
            namespaces.call(prefix, partial(_plug, device, node))
        else:
            with namespaces.open_namespace(names[node]) as there:
                namespaces.call(prefix, partial(_move, device, there.fileno()))
            namespaces.call(names[node], partial(_address, device, str(topology.host[node].ipv4)))
        namespaces.call(names.get(node, prefix), partial(_shape, device, link))


def _make_pair(name: str, other: str) -> None:
    with IPRoute() as netlink:
        netlink.link("add", ifname=name, kind="veth", peer={"ifname": other})


def _move(device: str, namespace: int) -> None:
    with IPRoute() as netlink:
        netlink.link("set", index=netlink.link_lookup(ifname=device)[0], net_ns_fd=namespace)


def _plug(device: str, bridge: str) -> None:
    with IPRoute() as netlink:
        index = netlink.link_lookup(ifname=device)[0]
        netlink.link("set", index=index, master=netlink.link_lookup(ifname=bridge)[0], state="up")


def _address(device: str, address: str) -> None:
    with IPRoute() as netlink:
        index = netlink.link_lookup(ifname=device)[0]
        netlink.addr("add", index=index, address=address, prefixlen=8)
        netlink.link("set", index=index, state="up")


def _shape(device: str, link: Link) -> None:
    with IPRoute() as netlink:
        index = netlink.link_lookup(ifname=device)[0]
        queue_bytes = max(link.queue_frames * _FRAME, _BURST_BYTES)
        netlink.tc("add", "tbf", index, 0x10000, rate=link.rate_bps // 8, burst=_BURST_BYTES, limit=queue_bytes)


def run_round(
    topology: Topology, names: dict[str, str], transfers: Sequence[Transfer], nbytes: int, congestion: str
) -> float:
    """Return how long transfers of so much take that begin together, until the last has arrived (s)."""
    listeners = {
        dst: namespaces.call(names[dst], partial(_listen, str(topology.host[dst].ipv4), congestion))
        for dst in {transfer.dst for transfer in transfers}
    }
    senders = [namespaces.call(names[transfer.src], partial(_tcp_socket, congestion)) for transfer in transfers]
    with ThreadPoolExecutor(2 * len(transfers)) as pool:
        received = [pool.submit(_receive, listeners[transfer.dst], nbytes) for transfer in transfers]
        began_s = time.monotonic()
        sent = [
            pool.submit(_send, sender, str(topology.host[transfer.dst].ipv4), nbytes)
            for sender, transfer in zip(senders, transfers, strict=True)
        ]
        took_s = max(future.result() for future in received) - began_s
        for future in sent:
            future.result()
    for listener in listeners.values():
        listener.close()
    return took_s


def _tcp_socket(congestion: str) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
    opened.settimeout(_PATIENCE_S)
    return opened


def _listen(address: str, congestion: str) -> socket.socket:
    listener = _tcp_socket(congestion)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, _PORT))
    listener.listen(64)
    return listener


def _receive(listener: socket.socket, nbytes: int) -> float:
    """Return when all of one connection had arrived."""
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(_PATIENCE_S)
        left = nbytes
        while left:
            length = len(connection.recv(1 << 16))
            if not length:
                raise ConnectionError(f"{left} bytes of {nbytes} are missing")
            left -= length
    return time.monotonic()


def _send(sender: socket.socket, address: str, nbytes: int) -> None:
    with sender:
        sender.connect((address, _PORT))
        sender.sendall(bytes(nbytes))


@contextmanager
def other_traffic(topology: Topology, names: dict[str, str], load: Load | None) -> Iterator[None]:
    """Send datagrams from one host to another at a constant rate on the wire, for as long as the block runs."""
    if load is None:
        yield
        return
    address, stop = (str(topology.host[load.dst].ipv4), _PORT), threading.Event()
    sink = namespaces.call(names[load.dst], lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    source = namespaces.call(names[load.src], lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with sink, source:
        sink.bind(address)
        thread = threading.Thread(target=_pace, args=(source, address, load.rate_bps, stop))
        thread.start()
        try:
            time.sleep(1)
            yield
        finally:
            stop.set()
            thread.join()


def _pace(source: socket.socket, address: tuple[str, int], rate_bps: int, stop: threading.Event) -> None:
    began_s, sent = time.monotonic(), 0
    while not stop.is_set():
        due = int((time.monotonic() - began_s) * rate_bps / 8 / _FRAME)
        for _ in range(due - sent):
            source.sendto(bytes(_DATAGRAM), address)
        sent = max(sent, due)
        stop.wait(0.002)


def trial(case: Case, rounds: int, congestion: str) -> Trial:
    """Return a case's prediction, and the median of what all rounds of its tree took together."""
    topology = case.topology
    costs = CostMap.of(topology, Snapshot(0, {}, {}, {}))
    costs = costs if case.load is None else costs.with_loads([case.load])
    tree = tree_over(costs, [host.name for host in topology.hosts], case.fan_in, case.aggregators)
    planned, output_gb = timed(costs, tree, efficiency=GOODPUT), case.megabytes / 1e3
    work = Works.of([Work("output", Growth.LINEAR, 0.0, 10 * output_gb, output_gb)])
    by_sum = times(work, Machines(Network(planned.rate_gbit_per_s), len(tree.hosts), case.fan_in))
    with fabric_of(topology) as names, other_traffic(topology, names, case.load):
        took_s = [_run(topology, names, tree, int(case.megabytes * 1e6), congestion) for _ in range(rounds)]
    return Trial(case, planned.transfer_s(output_gb), float(by_sum.transfer_s[0]), statistics.median(took_s))


def _run(topology: Topology, names: dict[str, str], tree: ReductionTree, nbytes: int, congestion: str) -> float:
    return sum(run_round(topology, names, transfers, nbytes, congestion) for transfers in tree.transfers)


def usable_congestion(wanted: str | None) -> str:
    """Return the wanted congestion control, by default CUBIC or else the machine's own; raise OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as opened:
        own = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode("ascii")
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, (wanted or "cubic").encode())
        except OSError:
            if wanted is not None:
                raise
            return own
    return wanted or "cubic"


def measure(*, quick: bool = False, congestion: str | None = None) -> dict[str, float | None]:
    """Return the mean error of predictions over all cases, and the greatest; None without root."""
    if os.geteuid() != 0:
        return dict.fromkeys(("rounds_mean_error", "rounds_max_error", "sum_mean_error"))
    congestion = usable_congestion(congestion)
    print(f"TCP congestion control: {congestion}", file=sys.stderr)
    trials = [trial(case, 1 if quick else 3, congestion) for case in CASES]
    Console(stderr=True, width=120).print(_table(trials))
    errors = [trial.error for trial in trials]
    return {
        "rounds_mean_error": round(statistics.fmean(errors), 4),
        "rounds_max_error": round(max(errors), 4),
        "sum_mean_error": round(statistics.fmean(trial.error_of_sum for trial in trials), 4),
    }


def _table(trials: Sequence[Trial]) -> Table:
    columns = (
        "racks",
        "hosts",
        "Mbit/s",
        "cable",
        "k",
        "aggregator",
        "other Mbit/s",
        "predicted s",
        "sum s",
        "measured s",
    )
    table = Table(*columns, "error %")
    for trial in trials:
        case = trial.case
        table.add_row(
            *(str(value) for value in (case.racks, case.racks * case.hosts, case.access, case.cable, case.fan_in)),
            str(case.aggregators),
            "" if case.load is None else f"{case.load.rate_bps / _MBIT:g}",
            f"{trial.predicted_s:.2f}",
            f"{trial.sum_s:.2f}",
            f"{trial.measured_s:.2f}",
            f"{100 * trial.error:.1f}",
        )
    return table


def main() -> None:
    """Print the table on stderr, and the figures as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="each case once")
    parser.add_argument("--congestion", help="TCP's congestion control; default: cubic, else the machine's")
    options = parser.parse_args()
    try:
        figures = measure(quick=options.quick, congestion=options.congestion)
    except OSError as error:
        sys.exit(f"TCP congestion control {options.congestion}: {error.strerror}")
    if figures["rounds_mean_error"] is None:
        sys.exit("network namespaces need root")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
