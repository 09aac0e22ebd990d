"""Memory to state: how many reports a core takes, against hops and flows, and what the plain reference takes."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from collectors.collector import Collector
from collectors.decode.payloads import Payloads
from collectors.settings import CollectorSettings, Core, StateSettings
from dataplane.clock import MonotonicClock
from tests.benchmarks.collecting.workload import Reports, reports, stage_topology

BATCH = 4096
POOL = 1 << 17
REFERENCE_REPORTS = 1500


@dataclass(frozen=True, slots=True)
class MemoryCase:
    """A path's hops, and how many flows there are."""

    hops: int
    flows: int


def collector(case: MemoryCase, core: Core) -> Collector:
    """Return a collector with room for the case's flows."""
    room = max(8192, 1 << (case.flows - 1).bit_length())
    settings = CollectorSettings(core=core, state=StateSettings(max_flows=room))
    return Collector(stage_topology(case.hops), MonotonicClock(), settings)


def native_rate(case: MemoryCase, passes: int) -> list[float]:
    """Return the reports a second of a core's time in each pass over the pool, after one to warm up."""
    pool = reports(case.hops, case.flows, max(POOL, case.flows))
    core = collector(case, Core.NATIVE)
    rates = [_pass_rate(core, pool) for _ in range(passes + 1)]
    taken, expected = core.counters["reports"], (passes + 1) * len(pool.rows)
    lost = sum(reporter.lost for reporter in core.snapshot().reporters.values()) if case.flows <= POOL else 0
    if taken != expected or core.counters["records"] != taken * case.hops or lost or core.counters["late samples"]:
        raise RuntimeError(f"{dict(core.counters)}, {lost} lost: not what was given")
    return rates[1:]


def _pass_rate(core: Collector, pool: Reports) -> float:
    data = pool.rows.reshape(-1)
    begun = time.thread_time()
    for first in range(0, len(pool.rows), BATCH):
        some = slice(first, first + BATCH)
        payloads = Payloads(data, pool.places[some], pool.lengths[some], addresses=pool.addresses[some])
        core.receive_many(payloads)
    rate = len(pool.rows) / (time.thread_time() - begun)
    pool.advance()
    return rate


def bytes_per_flow(flows: int) -> float:
    """Return the process's growth per flow with this many flows: cell and index together."""
    case = MemoryCase(4, flows)
    pool = reports(case.hops, flows, flows)
    core = collector(case, Core.NATIVE)
    few = reports(case.hops, 100, 4096)
    _pass_rate(core, few)
    before = _resident_bytes()
    _pass_rate(core, pool)
    return (_resident_bytes() - before) / flows


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def reference_rate(case: MemoryCase) -> float:
    """Return the reports a second of a core's time that the plain Python reference takes."""
    pool = reports(case.hops, case.flows, REFERENCE_REPORTS)
    payloads = [row[:length].tobytes() for row, length in zip(pool.rows, pool.lengths.tolist(), strict=True)]
    core = collector(case, Core.REFERENCE)
    begun = time.thread_time()
    for payload in payloads:
        core.receive(payload)
    return len(payloads) / (time.thread_time() - begun)
