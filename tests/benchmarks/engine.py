"""The packet engine by itself: what loss costs in virtual time, and processor time a block, by sockets and by rings.

Loss: workers on links of 1 Gbit/s and 20 us around one switch, the second of two all-reduces of 4,096 blocks; shares
are of the rate that the links have. The same wherever it is run.

Processor time: one worker on a veth cable to a process that turns each contribution into its result, nothing else; the
second of two all-reduces, the least of some rounds. Needs root.

Distribution: 4 MB from a main server to four workers over cables of 50 Mbit/s around one switch, against four TCP
connections at once. Needs root.

    sudo .venv/bin/python tests/benchmarks/engine.py           # --rounds N, --no-devices
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from dataplane.allreduce.engine import Engine, EngineSettings, Rings
from dataplane.allreduce.kernels.layouts import EngineState
from dataplane.allreduce.transports import UdpTransport
from dataplane.fabric.kernel import namespaces
from dataplane.native import (
    Array,
    array_at,
    as_u32,
    as_u64,
    i32,
    kernel,
    kernel_library,
    load_be32,
    store_be32,
    u8,
    view,
)
from dataplane.nic import PortKind
from dataplane.nic.layouts import InputOutputVector
from dataplane.nic.ports.kernels.messages import header_at
from dataplane.nic.ports.kernels.system import recvmmsg, sendmmsg
from dataplane.wire.aggregation import UDP_PORT
from tests.benchmarks.distributing.unicasts import distribute_factor
from tests.dataplane.allreduce.cabling import cabled
from tests.dataplane.allreduce.simulating import Network, Simulation

CASES = [(workers, window, loss) for workers, window in ((4, 64), (8, 256)) for loss in (0.0, 0.01, 0.05)]
KINDS = (None, PortKind.PACKET_V2, PortKind.PACKET_V3, PortKind.XDP)
BLOCKS, JOB, WINDOW = 4096, 1, 256
WORKER, SWITCH = "10.78.0.1", "10.78.0.2"
BURST, WAIT_FOR_ONE = 32, 0x10000
_RESULT = 2 << 24


def shares() -> dict[tuple[int, int, float], tuple[float, float]]:
    """Return the share of the least time, and repetitions for each contribution, by workers, window and loss."""
    outcomes = {}
    for workers, window, loss in CASES:
        simulation = Simulation(workers, window, Network(loss=loss))
        simulation.all_reduce(BLOCKS)
        run = simulation.all_reduce(BLOCKS)
        simulation.close()
        outcomes[workers, window, loss] = run.share, run.more
    return outcomes


@kernel
def reflect(fd: i32, received: Array[u8]) -> None:
    """Turn contributions into results until the socket fails."""
    while True:
        got: i32 = recvmmsg(fd, received, BURST, WAIT_FOR_ONE, array_at(u8, 0))
        if got <= 0:
            return
        for at in range(as_u64(as_u32(got))):
            packet = array_at(u8, view(InputOutputVector, header_at(received, as_u32(at)).vector).base)
            store_be32(packet, 0, (load_be32(packet, 0) & 0xF0FFFFFF) | _RESULT)
        sendmmsg(fd, received, as_u32(got), 0)


@contextmanager
def cable() -> Iterator[str]:
    """Return the worker's namespace, with a reflector at the other end of its cable."""
    run = kernel_library(reflect).bind(reflect)
    with ExitStack() as stack:
        names = stack.enter_context(cabled("mr-engine", {WORKER: 0x020000007800, SWITCH: 0x020000007801}))
        process = os.fork()
        if not process:
            serving = namespaces.call(names[SWITCH], lambda: UdpTransport((SWITCH, UDP_PORT)))
            state = EngineState()
            serving.attach(state)
            with socket.socket(fileno=os.dup(state.fd)) as opened:
                while True:
                    opened.setblocking(True)
                    opened.connect(opened.recvfrom(2048, socket.MSG_PEEK)[1])
                    run(state.fd, state.rx_vector)
        stack.callback(os.waitpid, process, 0)
        stack.callback(os.kill, process, signal.SIGKILL)
        yield names[WORKER]


def processor_us(kind: PortKind | None, rounds: int) -> tuple[float, float]:
    """Return processor time a block in us, of the worker's thread, and blocks a second."""
    rings = None if kind is None else Rings(kind)
    settings = EngineSettings(SWITCH, JOB, WINDOW, 1, 1, local=(WORKER, 0), rings=rings)
    values = np.random.default_rng(1).normal(size=256 * BLOCKS).astype(np.float32)
    target = np.zeros_like(values)
    best = rate = 0.0
    with cable() as namespace, namespaces.call(namespace, lambda: Engine(settings)) as engine:
        for _ in range(rounds + 1):
            began, cpu = time.perf_counter(), time.thread_time()
            engine.all_reduce(values, target)
            took, spent = time.perf_counter() - began, time.thread_time() - cpu
            best, rate = min(best or spent, spent), max(rate, BLOCKS / took)
    return best * 1e6 / BLOCKS, rate


def main() -> int:
    """Print tables, and JSON on the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-devices", action="store_true", help="virtual time alone")
    options = parser.parse_args()
    result = shares()
    table = Table("workers", "window", "loss", "share of the rate", "sent again")
    for (workers, window, loss), (share, more) in result.items():
        table.add_row(f"{workers}", f"{window}", f"{loss:.0%}", f"{share:.2f}", f"{more:.1%}")
    console = Console(width=100)
    console.print(table)
    figures: dict[str, float | None] = {
        "share_without_loss": round(result[4, 64, 0.0][0], 3),
        "share_with_1_percent": round(result[4, 64, 0.01][0], 3),
        "share_with_5_percent": round(result[4, 64, 0.05][0], 3),
    }
    table = Table("packets by", "us a block", "blocks/s")
    for kind in KINDS:
        name = "sockets" if kind is None else kind.name.lower()
        figures[f"us_by_{name}"] = None
        if not options.no_devices:
            spent, rate = processor_us(kind, options.rounds)
            figures[f"us_by_{name}"] = round(spent, 2)
            table.add_row(name, f"{spent:.2f}", f"{rate:,.0f}")
    console.print(table)
    figures["distribute_factor"] = None
    if not options.no_devices:
        factor, unicasts_s, ours_s = distribute_factor(options.rounds)
        figures["distribute_factor"] = round(factor, 2)
        console.print(f"distribution: unicasts {unicasts_s:.2f} s, by the switch {ours_s:.2f} s")
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
