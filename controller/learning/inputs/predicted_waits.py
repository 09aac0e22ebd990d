"""Predict the remaining waits of jobs if the shortest job that fits always goes first, by estimates."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

Job = tuple[int, int]
"""Estimated run time of a job, in ns, and its processors."""


def predicted_waits_ns(
    free: int,
    running: Iterable[tuple[int, int]],
    waiting: Sequence[Job],
    reserved: Job | None = None,
    coming: Sequence[tuple[int, Job]] = (),
) -> int:
    """Return the sum of times until each job starts, from now or from its arrival.

    `running` has the remaining run times, and processors. The reserved job starts as soon as it can, and until then
    only jobs that do not delay it. `coming` has jobs yet to come, by the time until they do, the first one first.
    """
    ends = list(running)
    heapify(ends)
    left = sorted(waiting, key=_length)
    now_ns = total_ns = come = 0
    while left or reserved is not None or come < len(coming):
        if reserved is not None and reserved[1] <= free:
            free -= reserved[1]
            heappush(ends, (now_ns + reserved[0], reserved[1]))
            total_ns += now_ns
            reserved = None
        shadow_ns, spare = _shadow(free, ends, reserved[1]) if reserved is not None else (0, 0)
        kept = []
        for job in left:
            estimate_ns, needed = job
            if needed > free:
                kept.append(job)
            elif reserved is None or now_ns + estimate_ns <= shadow_ns or needed <= spare:
                if reserved is not None and now_ns + estimate_ns > shadow_ns:
                    spare -= needed
                free -= needed
                total_ns += now_ns
                heappush(ends, (now_ns + estimate_ns, needed))
            else:
                kept.append(job)
        left = kept
        moments = [*(end_ns for end_ns, _ in ends[:1]), *(ns for ns, _ in coming[come : come + 1])]
        now_ns = min(moments, default=now_ns)
        while ends and ends[0][0] == now_ns:
            free += heappop(ends)[1]
        while come < len(coming) and coming[come][0] == now_ns:
            insort(left, coming[come][1], key=_length)
            total_ns -= now_ns
            come += 1
    return total_ns


def _length(job: Job) -> int:
    """Return the estimate; among equals the oldest job goes first, as in the rules."""
    return job[0]


def _shadow(free: int, ends: Sequence[tuple[int, int]], needed: int) -> tuple[int, int]:
    """Return when this many processors are free, and how many more are free then."""
    for end_ns, processors in sorted(ends):
        free += processors
        if free >= needed:
            return end_ns, free - needed
    raise AssertionError("running jobs hold what is not free")
