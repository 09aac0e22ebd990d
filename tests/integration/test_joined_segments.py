"""TCP between hosts' own stacks through a switch that joins segments: every byte arrives, in fewer packets."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable
from functools import partial

import pytest
from pyroute2 import IPRoute

from dataplane.fabric.kernel import namespaces
from tests.benchmarks.first.tcp import JOINED, switched
from tests.benchmarks.first.tcp_path import DEVICE, SERVER, TcpPath, tcp_path

PORT, PATIENCE_S = 5_000, 30
NBYTES = 8 << 20

pytestmark = [pytest.mark.root, pytest.mark.timeout(120)]


def packets(namespace: str, field: str) -> int:
    """Return a counter of a host's device."""

    def read() -> int:
        with IPRoute() as netlink:
            (link,) = netlink.link("get", ifname=DEVICE)
        return int(link.get_attr("IFLA_STATS64")[field])

    return namespaces.call(namespace, read)


def listen() -> socket.socket:
    return socket.create_server((str(SERVER.ipv4), PORT))


def call() -> socket.socket:
    return socket.create_connection((str(SERVER.ipv4), PORT), PATIENCE_S)


def read_all(connection: socket.socket, into: bytearray) -> None:
    while len(into) < NBYTES:
        into += connection.recv(1 << 16)


def exchanged(path: TcpPath, there: bytes, back: bytes) -> tuple[bytes, bytes]:
    """Return what the server and the client received, both sending at the same time."""
    with namespaces.call(path.server, listen) as server, namespaces.call(path.client, call) as client:
        server.settimeout(PATIENCE_S)
        with server.accept()[0] as other:
            other.settimeout(PATIENCE_S)
            got_there, got_back = bytearray(), bytearray()
            work: list[Callable[[], None]] = [
                partial(client.sendall, there),
                partial(other.sendall, back),
                partial(read_all, other, got_there),
                partial(read_all, client, got_back),
            ]
            threads = [threading.Thread(target=each) for each in work]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    return bytes(got_there), bytes(got_back)


def test_every_byte_arrives_in_fewer_packets() -> None:
    rng = random.Random(1)
    there, back = rng.randbytes(NBYTES), rng.randbytes(NBYTES)
    with tcp_path(1) as path, switched(path, JOINED):
        assert exchanged(path, there, back) == (there, back)
        assert packets(path.server, "rx_packets") < packets(path.client, "tx_packets")
        assert packets(path.client, "rx_packets") < packets(path.server, "tx_packets")
