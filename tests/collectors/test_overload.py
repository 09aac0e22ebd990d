"""Overload of a collector: every counter of lost or unread input is a cause with advice, in status and its message."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from collectors.collector import Collector
from collectors.counters import Count
from collectors.feed.snapshots import status_message, status_of
from collectors.ingest.receiver import ReceiverSettings, ReportReceiver
from collectors.overload import SHED, monitor_of
from collectors.settings import CollectorSettings
from dataplane.clock import MonotonicClock
from dataplane.load.monitor import BEGIN_AFTER
from tests.collectors.reports import build_topology

LOG = logging.getLogger("millrace.test_collector")


@pytest.fixture
def receiver() -> Iterator[tuple[Collector, ReportReceiver]]:
    collector = Collector(build_topology(), MonotonicClock(), CollectorSettings())
    listener = ReportReceiver(collector, ReceiverSettings(address="127.0.0.1", udp_port=0))
    yield collector, listener
    listener.close()


@pytest.mark.parametrize("count", SHED, ids=str)
def test_growing_count_of_lost_input_is_said(count: Count, receiver: tuple[Collector, ReportReceiver]) -> None:
    collector, source = receiver
    monitor = monitor_of(collector, source, LOG)
    for _ in range(BEGIN_AFTER):
        collector.counters[count] += 500
        monitor.sample(0)
    (overload,) = [each for each in collector.status().load.overloads if each.cause.startswith(f"{count}: ")]
    assert overload.advice == SHED[count]
    assert status_of(status_message(collector.status())).load == collector.status().load


def test_idle_collector_reports_its_socket_and_no_overload(receiver: tuple[Collector, ReportReceiver]) -> None:
    collector, source = receiver
    monitor = monitor_of(collector, source, LOG)
    for _ in range(BEGIN_AFTER):
        monitor.sample(0)
    load = collector.status().load
    assert [queue.name for queue in load.queues] == ["socket bytes"]
    # Between two samples a moment apart the test's own thread may use a whole core.
    assert not [overload for overload in load.overloads if not overload.cause.startswith("thread ")]
