"""A daemon's load as metrics; labels are names of its own threads, queues and drop reasons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dataplane.clock import NS_PER_S
from dataplane.load.values import DaemonLoad

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def load_families(daemon: str, load: DaemonLoad) -> Iterator[Metric]:
    """Yield `millrace_DAEMON_...` gauges of the last second."""
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - daemons without metrics do not load it

    def gauge(name: str, text: str, value: float) -> Metric:
        return GaugeMetricFamily(f"millrace_{daemon}_{name}", text, value=value)

    yield gauge("cores", "Processor time over the last second, in cores.", load.cores)
    yield gauge("processor_wait_ratio", "Share of time ready to run without a processor.", load.waiting)
    yield gauge("loop_lag_seconds", "Longest delay of a timer of the event loop.", load.loop_lag_ns / NS_PER_S)
    yield gauge("overloaded", "1 while at least one cause of overload lasts.", float(bool(load.overloads)))
    causes = GaugeMetricFamily(
        f"millrace_{daemon}_overload_seconds",
        "Time that a cause of overload has lasted, with a remedy.",
        labels=["cause", "advice"],
    )
    for overload in load.overloads:
        causes.add_metric([overload.name, overload.advice], overload.for_ns / NS_PER_S)
    yield causes
    threads = GaugeMetricFamily(f"millrace_{daemon}_thread_cores", "Processor time by thread.", labels=["thread"])
    for thread in load.threads:
        threads.add_metric([thread.name], thread.share)
    yield threads
    queues = GaugeMetricFamily(f"millrace_{daemon}_queue_length", "Items waiting.", labels=["queue"])
    oldest = GaugeMetricFamily(f"millrace_{daemon}_queue_oldest_seconds", "Age of the oldest item.", labels=["queue"])
    for queue in load.queues:
        queues.add_metric([queue.name], queue.length)
        if queue.oldest_ns is not None:
            oldest.add_metric([queue.name], queue.oldest_ns / NS_PER_S)
    yield queues
    yield oldest
    drops = GaugeMetricFamily(f"millrace_{daemon}_drops_per_second", "Items dropped recently.", labels=["reason"])
    for drop in load.drops:
        drops.add_metric([drop.reason], drop.per_s)
    yield drops
