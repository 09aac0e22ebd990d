"""A plant of real parts: a worker that needs so much CPU time for each byte, and a feeder that sends all it can.

`python fed_worker.py work ADDRESS PORT SECONDS_PER_MEGABYTE` prints "ready" and serves one feeder;
`python fed_worker.py feed ADDRESS PORT` sends until it is killed.
"""

from __future__ import annotations

import socket
import sys
import time

CHUNK_BYTES = 4 << 10
BUFFER_BYTES = 16 << 10
"""Small, so that no second's worth of data lies between feeder and worker."""


def work(address: str, port: int, cpu_s_per_megabyte: float) -> None:
    """Receive, and compute for as long as each byte takes; on this thread's own CPU time."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        listener.bind((address, port))
        listener.listen(1)
        print("ready", flush=True)
        connection, _ = listener.accept()
    due_s = time.thread_time()
    with connection:
        while data := connection.recv(CHUNK_BYTES):
            due_s = max(due_s, time.thread_time() - 0.01) + len(data) / 1e6 * cpu_s_per_megabyte
            while time.thread_time() < due_s:
                pass


def feed(address: str, port: int) -> None:
    """Send as fast as link and worker take it."""
    data = bytes(CHUNK_BYTES)
    with socket.create_connection((address, port), timeout=10) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        connection.settimeout(60)
        while True:
            connection.sendall(data)


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    else:
        feed(sys.argv[2], int(sys.argv[3]))
