"""A fabric's reports at a steady rate over UDP, in a process of its own: one report a datagram.

Settings come as one line of JSON on standard input, orders after them, a line each: `{"rate": 2000}`,
`{"congested": [["leaf1", "spine2"]]}`, `{"routes": [[17, ["leaf1", "spine2", "leaf5"]]]}`,
`{"bad": "unknown", "times": 2}`, `{"ask": 3}`. It answers in lines: `{"ready": true}`; `{"congested_ns": ...}`, the
monotonic time when the first report of a packet over a congested link went out after an order; and
`{"asked": 3, "at_s": ..., "sent": ..., "sent_bad": ...}`. It ends with its input.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import socket
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[3]))  # tests import each other by their full names

from dataplane.nic.layouts import InputOutputVector, MessageHeader
from dataplane.topology.file import load_topology
from dataplane.topology.values import LinkKey
from tests.benchmarks.chaining.flows import Flows, Mix, make_flows
from tests.benchmarks.chaining.reports import PORTS_AT, Congestion, Reports

BLOCK_S, SLICES = 0.005, 5
"""Reports are generated 5 ms ahead, and sent every millisecond."""
LARGEST_BLOCK = 8192
_BEHIND_S = 0.1
"""Delay on a busy machine beyond which the sender skips its backlog, which would only come as a burst."""
_UNKNOWN_NODE = 0xFFFE
_PORTS = 60_000
_NS = 1_000_000_000
_libc = ctypes.CDLL(None, use_errno=True)


class Bad(StrEnum):
    """Reports that no fabric should send."""

    NONE = "none"
    UNKNOWN = "unknown"
    """As many more, or several `times` as many, in the name of an unknown switch."""
    WRONG_SOURCE = "wrong source"
    """... from an address that no switch and no relay has, in the names of real switches."""
    SINGLE = "single"
    """... of flows that have one packet each."""


@dataclass(frozen=True, slots=True)
class SenderSettings:
    """Reports to send, and their destination."""

    topology: str
    flows: int
    mix: str
    seed: int
    udp_port: int
    rate: float


class Orders:
    """Lines of a descriptor as they come. A text file would read ahead, and select(2) does not see its buffer."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._rest = descriptor, b""
        self.ended = False

    def first(self) -> bytes:
        """Return the first line, once it has come."""
        while b"\n" not in self._rest and not self.ended:
            self._receive()
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def read(self) -> list[bytes]:
        """Return the whole lines that have come since; `ended` once there are no more."""
        while not self.ended and select.select([self._descriptor], [], [], 0)[0]:
            self._receive()
        *lines, self._rest = self._rest.split(b"\n")
        return lines

    def _receive(self) -> None:
        more = os.read(self._descriptor, 1 << 16)
        self._rest, self.ended = self._rest + more, not more


class Outlet:
    """Sends rows of memory as datagrams to a port of loopback, many a system call (sendmmsg(2))."""

    def __init__(self, rows: NDArray[np.uint8], udp_port: int, source: str = "127.0.0.1") -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((source, 0))
        self._socket.connect(("127.0.0.1", udp_port))
        count, size = rows.shape
        self._pieces = np.zeros(count, np.dtype(InputOutputVector))
        self._pieces["base"] = np.uint64(rows.ctypes.data) + np.arange(count, dtype=np.uint64) * np.uint64(size)
        self._pieces["nbytes"] = size
        self._headers = np.zeros(count, np.dtype(MessageHeader))
        self._headers["vector"] = np.uint64(self._pieces.ctypes.data) + np.arange(count, dtype=np.uint64) * np.uint64(
            16
        )
        self._headers["vector_count"] = 1

    def send(self, begin: int, end: int) -> int:
        """Send some of the rows; return how many the kernel took."""
        at, taken = begin, 0
        while at < end:
            address = self._headers.ctypes.data + at * self._headers.itemsize
            sent = _libc.sendmmsg(self._socket.fileno(), ctypes.c_void_p(address), end - at, 0)
            if sent < 0:
                # ECONNREFUSED: an earlier datagram met no socket, which Linux says instead of sending this one.
                at += 1
            else:
                at, taken = at + sent, taken + sent
        return taken


class Sender:
    """Keeps to a rate, and follows orders."""

    def __init__(self, flows: Flows, settings: SenderSettings, answers: IO[str]) -> None:
        self._flows, self._answers = flows, answers
        self._reports = Reports(flows, np.random.default_rng(settings.seed), LARGEST_BLOCK)
        self._outlet = Outlet(self._reports.rows, settings.udp_port)
        self._foreign = Outlet(self._reports.rows, settings.udp_port, "127.0.0.99")
        self._congestion = Congestion.of(flows)
        self._rate, self._bad, self._times = settings.rate, Bad.NONE, 1
        self._sent = self._sent_bad = self._single = 0
        self._first_hit_told = True

    def run(self, orders: Orders) -> None:
        """Send until there are no more orders."""
        self.answer(ready=True)
        due = time.monotonic()
        while self._obey(orders):
            now = time.monotonic()
            if now - due > _BEHIND_S:
                due = now
            count = min(round(self._rate * (due + BLOCK_S)) - round(self._rate * due), LARGEST_BLOCK)
            self._send_block(due, count)
            due += BLOCK_S

    def answer(self, **values: object) -> None:
        """Write a line."""
        self._answers.write(json.dumps(values) + "\n")
        self._answers.flush()

    def _send_block(self, due: float, count: int) -> None:
        begins_ns = time.time_ns() - time.monotonic_ns() + int(due * _NS)
        hit = self._reports.fill(count, begins_ns, int(BLOCK_S * _NS) // max(count, 1), self._congestion)
        first_hit = int(hit.argmax()) if hit.any() else count
        for number in range(SLICES):
            begin, end = count * number // SLICES, count * (number + 1) // SLICES
            time.sleep(max(due + number * BLOCK_S / SLICES - time.monotonic(), 0))
            if begin <= first_hit < end and not self._first_hit_told:
                self._first_hit_told = True
                self.answer(congested_ns=time.monotonic_ns())
            self._sent += self._outlet.send(begin, end)
        for _ in range(self._times if self._bad is not Bad.NONE else 0):
            self._send_bad(count)

    def _send_bad(self, count: int) -> None:
        """Send the block again as malformed reports."""
        rows = self._reports.rows[:count]
        if self._bad is Bad.WRONG_SOURCE:
            self._sent_bad += self._foreign.send(0, count)
            return
        if self._bad is Bad.UNKNOWN:
            rows[:, 4:8] = np.frombuffer(_UNKNOWN_NODE.to_bytes(4, "big"), np.uint8)
        else:
            ports = self._single + np.arange(count)
            both = np.stack([1024 + ports % _PORTS, 6000 + ports // _PORTS], axis=1).astype(">u2")
            rows[:, PORTS_AT : PORTS_AT + 4] = both.view(np.uint8).reshape(count, 4)
            rows[:, PORTS_AT + 6 : PORTS_AT + 8] = 0  # no checksum of UDP
            self._reports.renumber(count)
            self._single += count
        self._sent_bad += self._outlet.send(0, count)

    def _obey(self, orders: Orders) -> bool:
        """Execute the waiting orders; return whether there may be more."""
        for line in orders.read():
            self._follow(json.loads(line))
        return not orders.ended

    def _follow(self, order: dict[str, Any]) -> None:
        self._rate = float(order.get("rate", self._rate))
        self._bad, self._times = Bad(order.get("bad", self._bad)), order.get("times", self._times)
        if "congested" in order:
            links = tuple(LinkKey(*link) for link in order["congested"])
            self._congestion, self._first_hit_told = Congestion.of(self._flows, links), not links
        for flow, path in order.get("routes", ()):
            self._flows.reroute(flow, tuple(path))
            self._reports.reroute(flow)
        if "ask" in order:
            self.answer(asked=order["ask"], at_s=time.monotonic(), sent=self._sent, sent_bad=self._sent_bad)


def line_of(settings: SenderSettings) -> str:
    """Return settings as the first line of a sender's input."""
    return json.dumps(asdict(settings)) + "\n"


def main() -> None:
    """Send as standard input says."""
    orders = Orders(sys.stdin.fileno())
    settings = SenderSettings(**json.loads(orders.first()))
    flows = make_flows(load_topology(settings.topology), settings.flows, Mix(settings.mix), settings.seed)
    sender = Sender(flows, settings, sys.stdout)
    # It stands for other machines, whose reports do not wait for a processor of this one.
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    sender.run(orders)


if __name__ == "__main__":
    main()
