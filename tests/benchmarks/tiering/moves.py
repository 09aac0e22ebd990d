"""Reads from another host, and moves into fast memory, over the fabric."""

from __future__ import annotations

import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

from controller.memory.connections import client_context
from controller.memory.pool.deciding import Decider, rule_of
from controller.memory.pool.hosts import RemoteHost
from controller.memory.pool.pool import MemoryPool
from tests.benchmarks.tiering.world import BLOCK_BYTES, MIB, World, world

_AT_A_TIME = 4


def measure(*, quick: bool) -> dict[str, float | None]:
    """Return the median read and the rate of moves."""
    blocks = 64 if quick else 1024
    with world(fast_bytes=blocks * BLOCK_BYTES) as made:
        return made.fabric.call_in("h1", lambda: _measured(made, blocks))


def _measured(made: World, blocks: int) -> dict[str, float | None]:
    content = random.Random(0).randbytes(BLOCK_BYTES)
    with MemoryPool(made.settings, Decider(rule_of("lru"))) as pool:
        # Homes are taken in turn: every third block has its home at h2.
        keys = range(3 * blocks)
        for key in keys:
            pool.write(key, content)
        there = [key for key in keys if pool.catalogue.blocks[key].home.host == 1]
        assert made.settings.tls is not None
        host = made.settings.hosts[1]
        with RemoteHost(host.name, host.address, client_context(made.settings.tls), "pool", 5.0) as far:
            took_us = []
            for key in there[:512]:
                begin_ns = time.perf_counter_ns()
                far.read(1, key)
                took_us.append((time.perf_counter_ns() - begin_ns) / 1e3)
        begin_ns = time.perf_counter_ns()
        with ThreadPoolExecutor(_AT_A_TIME) as workers:
            list(workers.map(lambda key: pool.move(key, 0), there))
        took_s = (time.perf_counter_ns() - begin_ns) / 1e9
        assert all(pool.read(key) == content for key in there)
    rate = len(there) * BLOCK_BYTES / 1e6 / took_s
    print(
        f"remote read of {BLOCK_BYTES} bytes: median {statistics.median(took_us):.0f} us, least {min(took_us):.0f} us"
    )
    print(f"{len(there)} blocks ({len(there) * BLOCK_BYTES / MIB:.0f} MiB) moved in {took_s:.2f} s: {rate:.0f} MB/s")
    return {"remote_read_us": statistics.median(took_us), "mover_mb_per_s": rate}
