"""Workers of an all-reduce in a process of their own, which take what their node's manager grants.

`python -m tests.controller.workloads.nodes.nic.granted_worker AGGREGATOR RINGS XDP` adds up with two workers whose
manager's socket is RINGS, then with one at XDP, and writes their log and the sums.
"""

from __future__ import annotations

import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np

from dataplane.allreduce.engine import Engine, EngineSettings, Granted
from dataplane.nic.managed.link import SOCKET_VARIABLE
from dataplane.wire.aggregation import UDP_PORT


def main(aggregator: str, rings: str, xdp: str) -> None:
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    logging.getLogger("millrace.allreduce").setLevel(logging.INFO)
    add_up(aggregator, rings, workers=2, port=UDP_PORT)
    add_up(aggregator, xdp, workers=1, port=UDP_PORT + 1)


def add_up(aggregator: str, manager: str, *, workers: int, port: int) -> None:
    os.environ[SOCKET_VARIABLE] = manager
    settings = EngineSettings(aggregator, 7, 16, 2, 1, port=port, rings=Granted("resnet"), patience_s=60.0)
    values = [np.arange(number, number + 5000, dtype=np.float32) for number in range(workers)]
    targets = [np.zeros_like(mine) for mine in values]
    with ExitStack() as stack:
        engines = [stack.enter_context(Engine(settings)) for _ in range(workers)]
        with ThreadPoolExecutor(workers) as threads:
            list(threads.map(Engine.all_reduce, engines, values, targets))
            print("sums", all(np.allclose(target, sum(values), rtol=1e-6) for target in targets), flush=True)
            sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
