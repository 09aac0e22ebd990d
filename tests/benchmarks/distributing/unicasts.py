"""A value from a main server to four workers: by the switch's copies, and by as many TCP connections."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np

from dataplane.allreduce.engine import Engine, EngineSettings
from dataplane.allreduce.transfers import Bytes, distribute, receive
from tests.integration.allreduce_namespaces import AggregationFabric

RATE_BPS, WORKERS, BYTES, WINDOW = 50_000_000, 4, 4 << 20, 1024
_PORT, _CHUNK = 7000, 1 << 16


def distribute_factor(rounds: int) -> tuple[float, float, float]:
    """Return the time of the unicasts over ours, and both times in s: medians of rounds in turn; needs root."""
    data = np.random.default_rng(1).integers(0, 256, BYTES).astype(np.uint8)
    ours_s, theirs_s = [], []
    with AggregationFabric(WORKERS + 1, RATE_BPS) as fabric, ExitStack() as stack:
        *workers, server = fabric.hosts
        job = fabric.start_job(tuple(workers), window=WINDOW, server=server)
        settings = {host: fabric.engine_settings(job, host) for host in workers}
        own = str(fabric.topology.host[server].ipv4), fabric.port(server)
        settings[server] = replace(settings[workers[0]], local=own)

        def start(host: str, settings: EngineSettings) -> Engine:
            return stack.enter_context(fabric.fabric.call_in(host, lambda: Engine(settings)))

        engines = {host: start(host, mine) for host, mine in settings.items()}
        for number in range(rounds + 1):
            ours = _by_switch(engines.copy(), server, data)
            theirs = _by_unicast(fabric, workers, server, data)
            if number:  # the first one loads code
                ours_s.append(ours)
                theirs_s.append(theirs)
    factors = [theirs / ours for theirs, ours in zip(theirs_s, ours_s, strict=True)]
    return median(factors), median(theirs_s), median(ours_s)


def _by_switch(engines: dict[str, Engine], server: str, data: Bytes) -> float:
    main = engines.pop(server)
    with ThreadPoolExecutor(len(engines) + 1) as threads:
        began = time.perf_counter()
        sending = threads.submit(distribute, main, data)
        for got in threads.map(receive, engines.values()):
            assert np.array_equal(got, data)
        sending.result()
        return time.perf_counter() - began


def _by_unicast(fabric: AggregationFabric, workers: list[str], server: str, data: Bytes) -> float:
    with ExitStack() as stack, ThreadPoolExecutor(2 * len(workers)) as threads:
        pairs = []
        for host in workers:
            address = str(fabric.topology.host[host].ipv4), _PORT
            listener = stack.enter_context(fabric.fabric.call_in(host, partial(socket.create_server, address)))
            near = stack.enter_context(fabric.fabric.call_in(server, partial(socket.create_connection, address)))
            pairs.append((near, stack.enter_context(listener.accept()[0])))
        began = time.perf_counter()
        sending = [threads.submit(near.sendall, data.data) for near, _ in pairs]
        for got in [threads.submit(_receive, far) for _, far in pairs]:
            got.result()
        took = time.perf_counter() - began
        for each in sending:
            each.result()
        return took


def _receive(far: socket.socket) -> None:
    left, room = BYTES, bytearray(_CHUNK)
    while left:
        got = far.recv_into(room, min(left, _CHUNK))
        assert got
        left -= got
