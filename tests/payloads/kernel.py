"""The same question to a fabric in the kernel: real sockets in namespaces, the real daemon, requests and datagrams.

Each side sends what it gets back to where it came from, so that a payload crosses the fabric twice. TCP sends every
request in a segment of its own; one that is not answered in time is a stall, whatever the kernel would still try.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml

from controller.daemon_settings import DaemonSettings
from controller.tables.int_domain import DEFAULT_DOMAIN, IntDomain
from controller.tables.int_watch import Watch
from dataplane.fabric.kernel import KernelFabric
from dataplane.fabric.topology_file import dumps
from tests.payloads import shapes
from tests.payloads.chain import TOPOLOGY
from tests.payloads.oracle import headers_of

CLIENT, SERVER = "h1", "h4"
REQUEST_BYTES, DATAGRAM_BYTES = 400, 404
STALL_S = 30.0
"""Retransmissions have met the same fate seven times by then; a busy machine alone is not so late."""
LOST_S = 10.0
TCP_PORT, UDP_PORT = 6000, 6001
_READY_S = 120.0
_ROOT = Path(__file__).parents[2]


@dataclass(slots=True)
class KernelCounts:
    """What sockets saw; `lost` are datagrams that did not come back, `changed` what came back otherwise."""

    tcp_requests: int = 0
    tcp_stalls: int = 0
    tcp_changed: int = 0
    datagrams: int = 0
    lost: int = 0
    changed: int = 0


@contextmanager
def kernel_fabric(
    watches: tuple[Watch, ...] = (Watch(),), domain: IntDomain = DEFAULT_DOMAIN
) -> Iterator[KernelFabric]:
    """Yield a running fabric whose switches the daemon has filled; needs root."""
    with ExitStack() as stack:
        fabric = stack.enter_context(KernelFabric(TOPOLOGY))
        fabric.wait_ready(_READY_S)
        _start_controller(
            stack,
            fabric,
            DaemonSettings(
                topology=str(fabric.run_dir / "topology.yaml"),
                switches={node.name: fabric.p4runtime_address(node.name) for node in TOPOLOGY.switches},
                watches=watches,
                int_domain=domain,
            ),
        )
        assert TOPOLOGY.collector is not None
        # Somebody takes the reports: a host without a socket would answer each with an ICMP message.
        sink = fabric.call_in(TOPOLOGY.collector.host, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        stack.callback(sink.close)
        sink.bind(("0.0.0.0", TOPOLOGY.collector.udp_port))
        yield fabric


def _start_controller(stack: ExitStack, fabric: KernelFabric, settings: DaemonSettings) -> None:
    folder = fabric.run_dir
    (folder / "topology.yaml").write_text(dumps(TOPOLOGY), encoding="utf-8")
    (folder / "controller.yaml").write_text(yaml.safe_dump(msgspec.to_builtins(settings)), encoding="utf-8")
    log = folder / "controller.log"
    command = [sys.executable, "-m", "controller.cli", "controller", "-s", str(folder / "controller.yaml")]
    process = subprocess.Popen(
        command,
        stdout=stack.enter_context(log.open("wb")),
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
    )
    stack.callback(process.wait, 10)
    stack.callback(process.terminate)
    deadline = time.monotonic() + _READY_S
    while log.read_text(encoding="utf-8").count("right, after") < len(TOPOLOGY.switches):
        said = log.read_text(encoding="utf-8")[-1000:]
        assert process.poll() is None, f"the controller ended: {said}"
        assert time.monotonic() < deadline, f"the switches are not right: {said}"
        time.sleep(0.1)


class Talk:
    """A client and a server that echo, each in its namespace; `run` talks for a while and counts."""

    def __init__(self, fabric: KernelFabric, seed: int, domain: IntDomain = DEFAULT_DOMAIN) -> None:
        self._fabric, self._rng = fabric, random.Random(seed)
        self._headers = headers_of(domain)
        self._stop = threading.Event()
        self._server = str(TOPOLOGY.host[SERVER].ipv4)

    def run(self, seconds: float, *, requests_per_s: float, datagrams_per_s: float) -> KernelCounts:
        """Send requests and datagrams at such rates at most; return what became of them."""
        counts = KernelCounts()
        listener = self._fabric.call_in(SERVER, lambda: socket.create_server(("0.0.0.0", TCP_PORT)))
        echo = self._fabric.call_in(SERVER, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        echo.bind(("0.0.0.0", UDP_PORT))
        talks = (
            threading.Thread(target=self._answer_tcp, args=(listener,), daemon=True),
            threading.Thread(target=self._answer_udp, args=(echo,), daemon=True),
            threading.Thread(target=self._request, args=(counts, seconds, requests_per_s)),
            threading.Thread(target=self._send_datagrams, args=(counts, seconds, datagrams_per_s)),
        )
        for thread in talks:
            thread.start()
        for thread in talks[2:]:
            thread.join()
        self._stop.set()
        for thread in talks[:2]:
            thread.join(5)
        listener.close()
        echo.close()
        return counts

    # the server

    def _answer_tcp(self, listener: socket.socket) -> None:
        listener.settimeout(0.5)
        while not self._stop.is_set():
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                threading.Thread(target=self._answer_one, args=(connection,), daemon=True).start()

    def _answer_one(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := connection.recv(1 << 16):
                connection.sendall(data)

    def _answer_udp(self, echo: socket.socket) -> None:
        echo.settimeout(0.5)
        while not self._stop.is_set():
            with suppress(TimeoutError):
                data, peer = echo.recvfrom(1 << 16)
                echo.sendto(data, peer)

    # the client

    def _payload(self, size: int) -> bytes:
        """Return random bytes, every second time with a header or two somewhere."""
        data = bytearray(self._rng.randbytes(size))
        for _ in range(self._rng.choice((0, 0, 1, 2))):
            at = self._rng.choice(shapes.OFFSETS)
            header = self._rng.choice(self._headers)(self._rng, size - at)
            data[at : at + len(header)] = header
        return bytes(data[:size])

    def _connect(self) -> socket.socket:
        def open_one() -> socket.socket:
            connection = socket.create_connection((self._server, TCP_PORT), STALL_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection

        return self._fabric.call_in(CLIENT, open_one)

    def _request(self, counts: KernelCounts, seconds: float, rate: float) -> None:
        """Ask one request after the other; a connection that stalls is given up."""
        connection, end = self._connect(), time.monotonic() + seconds
        for _ in _pace(rate, end):
            request = self._payload(REQUEST_BYTES)
            counts.tcp_requests += 1
            try:
                connection.sendall(request)
                answer = b""
                while len(answer) < len(request):
                    answer += connection.recv(1 << 16) or _ended()
                counts.tcp_changed += answer != request
            except OSError:
                counts.tcp_stalls += 1
                connection.close()
                connection = self._connect()
        connection.close()

    def _open_datagrams(self) -> socket.socket:
        client = self._fabric.call_in(CLIENT, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        client.settimeout(LOST_S)
        client.connect((self._server, UDP_PORT))
        return client

    def _send_datagrams(self, counts: KernelCounts, seconds: float, rate: float) -> None:
        """Send datagrams and wait for each one's echo; what comes later than that goes to a port that is closed."""
        client = self._open_datagrams()
        for _ in _pace(rate, time.monotonic() + seconds):
            datagram = self._payload(DATAGRAM_BYTES)
            counts.datagrams += 1
            client.send(datagram)
            try:
                counts.changed += client.recv(1 << 16) != datagram
            except TimeoutError:
                counts.lost += 1
                client.close()
                client = self._open_datagrams()
        client.close()


def _pace(rate: float, end: float) -> Iterator[float]:
    """Yield at a rate until a time, without catching up."""
    while (now := time.monotonic()) < end:
        yield now
        time.sleep(max(0.0, now + 1 / rate - time.monotonic()))


def _ended() -> bytes:
    raise ConnectionError("the other side has closed")
