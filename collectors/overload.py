"""Causes of a collector's overload, and the settings that help."""

from __future__ import annotations

import logging
from typing import Final

from collectors.collector import Collector
from collectors.counters import Count
from collectors.ingest.receiver import ReportReceiver
from dataplane.load.monitor import LoadMonitor
from dataplane.load.values import QueueLoad

_FEWER: Final = "sample fewer packets (the watch rules' sample_every), or run a collector for each part of the fabric"
_LONGEST_WAIT_NS: Final = 250_000_000
"""A report read this late no longer shows the present state."""
SHED: Final = {
    Count.KERNEL_QUEUE_FULL: f"{_FEWER}; raise receiver.socket_buffer_bytes for bursts",
    Count.FLOWS_NOT_ADMITTED: "raise collector.state.max_flows: links are complete, these flows have no rate or path",
    Count.ROUTES_FULL: "raise collector.state.max_routes: these flows have no path",
    Count.RECORDS_WITHHELD: "raise collector.records_reports_per_s: subscribers get a sample of the records",
    Count.RECORDS_SHED: f"reports wait too long, and records are dropped before the state suffers; {_FEWER}",
    Count.DROPS_WITHHELD: "raise collector.other_reports_per_s: subscribers get a part of the drop records",
    Count.NOT_READ: "raise collector.other_reports_per_s: reports of forms that only Python reads are left out",
    Count.FEED_BATCHES_DROPPED: "a subscriber reads too slowly; raise feed.queue_records or queue_batches for bursts",
    Count.NOT_JUDGED: "raise events.max_subjects: some figures are judged by no rule",
    Count.REPORTERS_FORGOTTEN: "raise collector.sequence.max_reporters, or find the sender that uses other nodes' ids",
}
"""Counters of dropped work, and remedies."""


def monitor_of(collector: Collector, receiver: ReportReceiver, log: logging.Logger) -> LoadMonitor:
    """Return a monitor of a collector's process, which the collector's status then includes."""
    monitor = LoadMonitor(log, loop_advice=_FEWER)

    def socket_queue() -> QueueLoad:
        backlog = receiver.backlog
        return QueueLoad("socket bytes", backlog.nbytes, backlog.room_bytes or None, backlog.oldest_ns)

    monitor.watch_queue(socket_queue, SHED[Count.KERNEL_QUEUE_FULL], oldest_ns=_LONGEST_WAIT_NS)
    monitor.watch_counters(lambda: collector.status().counters, {str(name): advice for name, advice in SHED.items()})
    collector.report_load(lambda: monitor.load)
    return monitor
