"""Readers that start in the middle of a transfer: how many joined frames they see, and for how long.

iperf3 through one switch in its default mode, as in tests/benchmarks/first/tcp.py. Readers start at the receiving host,
one after the other: packet sockets that make the device promiscuous before they read, after they have begun to read,
and never (like `tcpdump -p`).

    sudo .venv/bin/python -m tests.benchmarks.first.readers [--readers N]
"""

from __future__ import annotations

import argparse
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table

from dataplane.fabric.kernel import namespaces
from dataplane.linux import PACKET_ADD_MEMBERSHIP, PACKET_MEMBERSHIP_PROMISCUOUS, SOL_PACKET
from tests.benchmarks.first.tcp import DEFAULT, switched
from tests.benchmarks.first.tcp_path import DEVICE, MTU, SERVER, TcpPath, tcp_path

_ETHERNET_BYTES, _ALL_PROTOCOLS = 14, 3
_START_S, _READ_S, _PAUSE_S, _LONGEST_S = 1.0, 0.3, 1.5, 3_600
"""After a pause the switch joins again: it looks a second after a reader has gone."""
KINDS: Final = ("promiscuous first", "promiscuous after", "not promiscuous")


@dataclass(frozen=True, slots=True)
class Seen:
    """Frames seen by a reader, those longer than the MTU, and the time of the last of these, in ms after its start."""

    frames: int
    joined: int
    last_ms: float


def read_frames(kind: str) -> Seen:
    """Read frames of the host's device for a while; in its namespace."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        member = struct.pack("=iHH8s", socket.if_nametoindex(DEVICE), PACKET_MEMBERSHIP_PROMISCUOUS, 0, b"")
        if kind == KINDS[0]:
            reader.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, member)
        begun = time.monotonic()
        reader.bind((DEVICE, _ALL_PROTOCOLS))
        if kind == KINDS[1]:
            reader.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, member)
        reader.settimeout(_READ_S)
        frames, joined, last_ms = 0, 0, 0.0
        while (now := time.monotonic()) < begun + _READ_S:
            try:
                length = len(reader.recv(1 << 17))
            except TimeoutError:
                break
            frames += 1
            if length > MTU + _ETHERNET_BYTES:
                joined, last_ms = joined + 1, 1e3 * (now - begun)
    return Seen(frames, joined, last_ms)


def measure(readers: int) -> dict[str, list[Seen]]:
    """Return what each reader saw, the kinds in turn."""
    seen: dict[str, list[Seen]] = {kind: [] for kind in KINDS}
    with tcp_path(1) as path, switched(path, DEFAULT), _transfer(path, _LONGEST_S):
        for _ in range(readers):
            for kind in KINDS:
                seen[kind].append(namespaces.call(path.server, lambda kind=kind: read_frames(kind)))  # type: ignore[misc]
                time.sleep(_PAUSE_S)
    return seen


@contextmanager
def _transfer(path: TcpPath, seconds: int) -> Iterator[None]:
    """Run iperf3 from client to server while the `with` block lasts, at most this long."""
    with namespaces.start(path.server, ["iperf3", "--server"], stdout=subprocess.DEVNULL) as server:
        time.sleep(_START_S)
        command = ["iperf3", "--client", str(SERVER.ipv4), "--time", str(seconds)]
        with namespaces.start(path.client, command, stdout=subprocess.DEVNULL) as client:
            try:
                time.sleep(_START_S)
                yield
            finally:
                client.kill()
                server.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readers", type=int, default=10, help="of each kind")
    found = measure(parser.parse_args().readers)
    table = Table("reader", "frames", "joined ones, median", "most", "last one after ms, median", "most", "none")
    for kind, seen in found.items():
        joined, last = [reader.joined for reader in seen], [reader.last_ms for reader in seen]
        cells = (median(reader.frames for reader in seen), median(joined), max(joined), median(last), max(last))
        table.add_row(kind, *(f"{cell:.1f}" for cell in cells), f"{joined.count(0)} of {len(joined)}")
    Console(file=sys.stdout).print(table)
