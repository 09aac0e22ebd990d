"""One long TCP transfer between namespaces while a cable occasionally loses everything for a moment."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.payloads.kernel import TOPOLOGY, Bed
from tests.payloads.lines import CLIENT, FAR
from tests.payloads.talk import STALL_S

_PORT = 6100
_LOST_S, _WHOLE_S = 0.003, 0.05
_CABLE = ("leaf1", "spine1")


def transfer(bed: Bed, data: bytes) -> bytes:
    """Return the data that arrives at the far host; raise TimeoutError if the transfer stalls."""
    address = (str(TOPOLOGY.host[FAR].ipv4), _PORT)
    with (
        bed.fabric.call_in(FAR, lambda: socket.create_server(address)) as listener,
        ThreadPoolExecutor(2) as threads,
    ):
        listener.settimeout(STALL_S)
        arriving = threads.submit(_receive, listener)
        client = bed.fabric.call_in(CLIENT, lambda: socket.create_connection(address, STALL_S))
        sending = threads.submit(_send, client, data)
        while not arriving.done():
            bed.fabric.lose(*_CABLE, lost=True)
            time.sleep(_LOST_S)
            bed.fabric.lose(*_CABLE, lost=False)
            time.sleep(_WHOLE_S)
        sending.result()
        return arriving.result()


def sack_recoveries(bed: Bed) -> int:
    """Return how often the client's TCP has recovered by selective acknowledgments."""

    def read() -> int:
        lines = Path("/proc/thread-self/net/netstat").read_text(encoding="ascii").splitlines()
        names, values = (line.split() for line in lines if line.startswith("TcpExt:"))
        return int(values[names.index("TCPSackRecovery")])

    return bed.fabric.call_in(CLIENT, read)


def _send(client: socket.socket, data: bytes) -> None:
    with client:
        client.sendall(data)


def _receive(listener: socket.socket) -> bytes:
    connection, _ = listener.accept()
    data = bytearray()
    with connection:
        connection.settimeout(STALL_S)
        while chunk := connection.recv(1 << 16):
            data += chunk
    return bytes(data)
