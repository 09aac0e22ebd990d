"""Signs of an overloaded scheduler, with advice."""

from __future__ import annotations

import logging
from typing import Final

from controller.scheduling.serving.scheduler import Scheduler
from controller.scheduling.serving.tasks.scheduler import TaskScheduler
from dataplane.clock import NS_PER_S
from dataplane.load.monitor import Cause, LoadMonitor
from dataplane.load.values import QueueLoad

_SHARE_OUT: Final = "move some profiles to a second scheduler, or give this one a faster core: it decides on one"
_LONG_ROUND_NS: Final = 1_000_000_000
_LATE_NS: Final = 1_000_000_000
"""Maximum time that a pod ready to be decided should wait for its turn."""


def monitor_of(scheduler: Scheduler, tasks: TaskScheduler | None, log: logging.Logger) -> LoadMonitor:
    """Return a monitor of a scheduler's process; `tasks` is its task scheduler."""
    monitor = LoadMonitor(log, loop_advice=_SHARE_OUT)
    queue = scheduler.queue

    def undecided() -> QueueLoad:
        count, oldest_ns = scheduler.undecided()
        return QueueLoad("pods to decide about", count, None, oldest_ns)

    def slow_round() -> Cause | None:
        if tasks is None or tasks.last_round_ns < _LONG_ROUND_NS:
            return None
        text = f"a round over all tasks took {tasks.last_round_ns / NS_PER_S:.1f} s"
        return Cause(
            "task round", text, "delete tasks that have ended, or run tasks.profiles in a scheduler of their own"
        )

    monitor.watch_queue(
        lambda: QueueLoad("pods that wait", len(queue), queue.settings.most), "raise queue.most", full_from=1.0
    )
    monitor.watch_queue(undecided, _SHARE_OUT, oldest_ns=_LATE_NS)
    monitor.watch_counters(
        lambda: {"pods beyond the queue": queue.left_out},
        {"pods beyond the queue": "raise queue.most: these pods wait until the queue has room"},
    )
    monitor.watch(slow_round)
    return monitor
