"""Block requests as tasks of the pool: each computes on the extents that it touches, on the node chosen for it."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Final

from controller.cluster.workloads.files import block_requests
from controller.cluster.workloads.values import BlockRequest
from controller.learning.environment.values import MOST_TIME_NS, Task, Workload
from controller.learning.errors import LearningError
from controller.learning.inputs.systems import PoolSystem
from controller.learning.inputs.values import PoolInput
from dataplane.clock import NS_PER_S
from dataplane.config import Strict

_SECTOR_BYTES: Final = 512
_MOST_EXTENTS: Final = 4096


class BlockSettings(Strict, frozen=True):
    """Conversion of a trace into a workload.

    Stamps are whole seconds: the requests of a second are spread evenly over it, in their order, and then time runs
    `time_compression` times as fast. Data is stored and moved in extents of `extent_bytes`; a write replaces the
    extents that it touches. Each byte of a request costs `operations_per_byte` int operations, such as a checksum's.
    `requests` are taken from number `first` on; 0 takes all that follow.
    """

    time_compression: int = 100
    extent_bytes: int = 65536
    operations_per_byte: int = 8
    first: int = 0
    requests: int = 0
    system: PoolSystem = PoolSystem()

    def __post_init__(self) -> None:
        for name, least in (("time_compression", 1), ("extent_bytes", _SECTOR_BYTES), ("operations_per_byte", 0)):
            if getattr(self, name) < least:
                raise LearningError(f"{name} is {getattr(self, name)}, less than {least}", at=name)
        if min(self.first, self.requests) < 0:
            raise LearningError(f"first is {self.first} and requests is {self.requests}: less than 0", at="first")


def block_input(path: Path, settings: BlockSettings | None = None, skipped: Counter[str] | None = None) -> PoolInput:
    """Return a block trace as an input; raise WorkloadError with file and line, LearningError for a missing part.

    Entries that are not read as requests are counted in `skipped` by reason.
    """
    settings = settings or BlockSettings()
    end = settings.first + settings.requests if settings.requests else None
    requests = list(islice(block_requests(path, skipped), settings.first, end))
    if not requests:
        raise LearningError(f"{path}: no request from number {settings.first} on")
    return PoolInput(path.name, settings.system.made(), workload_of(requests, settings))


def workload_of(requests: list[BlockRequest], settings: BlockSettings) -> Workload:
    """Return requests in the order of time as tasks; objects are numbered in the order of their first use."""
    numbers: dict[int, int] = {}
    tasks = []
    times_ns = spread_ns([request.time_ns for request in requests])
    for number, (request, time_ns) in enumerate(zip(requests, times_ns, strict=True), settings.first):
        _check(number, request, settings)
        begin = request.block * _SECTOR_BYTES
        extents = range(begin // settings.extent_bytes, (begin + request.nbytes - 1) // settings.extent_bytes + 1)
        used = tuple(numbers.setdefault(extent, len(numbers)) for extent in extents)
        tasks.append(
            Task(
                time_ns // settings.time_compression,
                reads=() if request.is_write else used,
                writes=used if request.is_write else (),
                int_operations=request.nbytes * settings.operations_per_byte,
            )
        )
    return Workload.of(tasks, [settings.extent_bytes] * len(numbers))


def _check(number: int, request: BlockRequest, settings: BlockSettings) -> None:
    if request.nbytes > _MOST_EXTENTS * settings.extent_bytes or request.time_ns > MOST_TIME_NS:
        raise LearningError(
            f"request {number}: {request.nbytes} bytes after {request.time_ns} ns are more than {_MOST_EXTENTS} extents"
            f" of {settings.extent_bytes} bytes, or later than {MOST_TIME_NS} ns"
        )


def spread_ns(stamps_ns: list[int]) -> list[int]:
    """Return times of whole seconds, in order, as times from the first one: those of a second evenly over it."""
    counts, times_ns = Counter(stamps_ns), []
    position, before = 0, -1
    for stamp_ns in stamps_ns:
        position, before = (position + 1 if stamp_ns == before else 0), stamp_ns
        times_ns.append(stamp_ns - stamps_ns[0] + position * NS_PER_S // counts[stamp_ns])
    return times_ns
