"""Replay of a block trace on a real pool, in compressed time: requests are submitted when they come, in their order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from controller.cluster.workloads.files import block_requests
from controller.learning.environment.values import Workload
from controller.learning.inputs.blocks import BlockSettings, workload_of
from controller.memory.errors import MemoryPoolError
from controller.memory.pool.pool import MemoryPool
from controller.memory.pool.values import Request, Result
from dataplane.clock import NS_PER_S

_WRITES_AT_A_TIME: Final = 8


@dataclass(frozen=True, slots=True)
class Timed:
    """A request, and when it comes."""

    at_ns: int
    request: Request


@dataclass(frozen=True, slots=True)
class Played:
    """Figures of a replay; times in ns. `late_ns` is the most by which a request was submitted late."""

    requests: int
    failed: int
    mean_wait_ns: float
    mean_latency_ns: float
    mean_response_ns: float
    p99_response_ns: float
    evicted_bytes: int
    moved_bytes: int
    remote_bytes: int
    late_ns: int
    span_ns: int
    first_error: str = ""


def trace(path: Path, settings: BlockSettings) -> tuple[Timed, ...]:
    """Return a block trace's requests; raise WorkloadError with file and line, MemoryPoolError if none is left."""
    end = settings.first + settings.requests if settings.requests else None
    requests = list(islice(block_requests(path), settings.first, end))
    if not requests:
        raise MemoryPoolError(f"{path}: no request from number {settings.first} on")
    return tuple(_timed(workload_of(requests, settings)))


def _timed(workload: Workload) -> Iterator[Timed]:
    for task in range(len(workload)):
        start, end = workload.access_start[task : task + 2].tolist()
        keys, written = workload.access_object[start:end].tolist(), workload.access_is_write[start:end].tolist()
        yield Timed(
            int(workload.submitted_ns[task]),
            Request(
                reads=tuple(key for key, is_write in zip(keys, written, strict=True) if not is_write),
                writes=tuple(key for key, is_write in zip(keys, written, strict=True) if is_write),
                float_operations=int(workload.float_operations[task]),
                int_operations=int(workload.int_operations[task]),
            ),
        )


def load_blocks(pool: MemoryPool, requests: Sequence[Timed]) -> int:
    """Write every block that requests read and the pool does not have, to its home; return how many these are."""
    content = bytes(pool.block_bytes)
    wanted = dict.fromkeys(key for timed in requests for key in timed.request.reads)
    missing = [key for key in wanted if (block := pool.catalogue.blocks.get(key)) is None or not block.version]
    with ThreadPoolExecutor(_WRITES_AT_A_TIME) as workers:
        for _ in workers.map(lambda key: pool.write(key, content), missing):
            pass
    return len(missing)


def replay(
    pool: MemoryPool,
    requests: Sequence[Timed],
    *,
    until: Callable[[], bool] = lambda: False,
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> Played:
    """Submit requests at their times and return the figures; the first is submitted at once.

    Raise MemoryPoolError if none ran.
    """
    begin_ns, first_ns, late_ns = clock_ns(), requests[0].at_ns, 0
    open_: set[Future[Result]] = set()
    results: list[Result] = []
    for timed in requests:
        due_ns = begin_ns + timed.at_ns - first_ns
        if until():
            break
        while (left_ns := due_ns - clock_ns()) > 0:
            time.sleep(left_ns / NS_PER_S)
        late_ns = max(late_ns, clock_ns() - due_ns)
        try:
            open_.add(pool.submit(timed.request))
        except MemoryPoolError as error:
            results.append(Result("", error=str(error)))
        if len(open_) >= pool.settings.waiting // 2:
            done, open_ = wait(open_, return_when=FIRST_COMPLETED)
            results += [each.result() for each in done]
    results += [each.result() for each in open_]
    return figures(results, late_ns, clock_ns() - begin_ns)


def figures(results: Sequence[Result], late_ns: int, span_ns: int) -> Played:
    """Return the figures of results; raise MemoryPoolError if none ran."""
    ran = [result for result in results if not result.error]
    errors = [result.error for result in results if result.error]
    if not ran:
        raise MemoryPoolError(f"no request ran: {errors[0] if errors else 'there was none'}")
    responses = np.array([result.response_ns for result in ran], np.float64)
    return Played(
        requests=len(ran),
        failed=len(errors),
        mean_wait_ns=float(np.mean([result.wait_ns for result in ran])),
        mean_latency_ns=float(np.mean([result.latency_ns for result in ran])),
        mean_response_ns=float(responses.mean()),
        p99_response_ns=float(np.percentile(responses, 99)),
        evicted_bytes=sum(result.evicted_bytes for result in ran),
        moved_bytes=sum(result.moved_bytes for result in ran),
        remote_bytes=sum(result.remote_bytes for result in ran),
        late_ns=late_ns,
        span_ns=span_ns,
        first_error=errors[0] if errors else "",
    )
