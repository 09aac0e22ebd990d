"""A binary heap of (time, task), smallest first: tasks of equal times in the order of their numbers."""

from __future__ import annotations

from controller.learning.environment.kernels.structures import Queue
from dataplane.native import i64, kernel


@kernel(inline=True)
def comes_before(time_ns: i64, task: i64, other_ns: i64, other: i64) -> bool:
    """Return whether an entry comes before another one."""
    return time_ns < other_ns or (time_ns == other_ns and task < other)


@kernel(inline=True)
def put(queue: Queue, time_ns: i64, task: i64) -> None:
    """Add a task; there is room for all tasks."""
    index: i64 = queue.size
    queue.size += 1
    while index > 0:
        above: i64 = (index - 1) // 2
        if comes_before(queue.time_ns[above], queue.task[above], time_ns, task):
            break
        queue.time_ns[index] = queue.time_ns[above]
        queue.task[index] = queue.task[above]
        index = above
    queue.time_ns[index] = time_ns
    queue.task[index] = task


@kernel(inline=True)
def drop_first(queue: Queue) -> None:
    """Remove the first entry; there must be one."""
    queue.size -= 1
    size: i64 = queue.size
    time_ns: i64 = queue.time_ns[size]
    task: i64 = queue.task[size]
    index: i64 = 0
    below: i64 = 1
    while below < size:
        beside: i64 = below + 1
        if beside < size and comes_before(
            queue.time_ns[beside], queue.task[beside], queue.time_ns[below], queue.task[below]
        ):
            below = beside
        if not comes_before(queue.time_ns[below], queue.task[below], time_ns, task):
            break
        queue.time_ns[index] = queue.time_ns[below]
        queue.task[index] = queue.task[below]
        index = below
        below = 2 * index + 1
    queue.time_ns[index] = time_ns
    queue.task[index] = task
