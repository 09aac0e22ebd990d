"""A collector's metrics: the figures of its snapshot under bounded labels, and over HTTP while it works."""

from __future__ import annotations

import asyncio
import socket
import urllib.request
from collections.abc import Callable
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from collectors.collector import Collector
from collectors.errors import CollectorError
from collectors.events.rules import Rule, RuleSettings
from collectors.events.service import EventService
from collectors.metrics.families import OTHER_NODE, Reading, StateCollector
from collectors.metrics.service import MetricsService
from collectors.metrics.settings import MetricsSettings
from collectors.values import ClockState, CollectorStatus, Event, LossSource, Phase, ReporterState, Snapshot
from dataplane.clock import VirtualClock
from dataplane.nic import Nic, NicSettings, NicStatistics, memory_pair, open_nic
from tests.collectors.history.samples import FLOW, LINK, job, link, path
from tests.collectors.reports import Reporter, build_topology, long_way
from tests.dataplane.nic.test_metrics import Labels, samples
from tests.waiting import finish_within

FULL = replace(
    link(),
    loss=0.01,
    loss_source=LossSource.DROP_REPORTS,
    delay_ewma_ns=7500,
    delay_uncertainty_ns=40,
    buffer_occupancy_frames=3.5,
)


def reading() -> Reading:
    """Return a reading in which every metric has a value."""
    reporters = {
        (node, hw): ReporterState(node, hw, 10, 2, 3, 4, 1) for node, hw in ((11, 0), (11, 1), (98, 0), (99, 0))
    }
    paths = {FLOW: path(), replace(FLOW, src_port=1): replace(path(), delay_ns=40_000, rate_bps=None)}
    clocks = {12: ClockState(12, 11, -5000, 70, 90), 99: ClockState(99, 11, 1, 1, 1)}
    event = Event(0, "slow", LINK, "delay_p99_ns", 5.0, 4.0, Phase.RAISED)
    return Reading(
        Snapshot(
            0,
            {LINK: FULL},
            paths,
            reporters,
            clocks,
            {state.key: state for state in (job(), job(number=4, note=False))},
        ),
        CollectorStatus(0, {"reports": 50, "malformed": 1}, None),
        (event, event),
        ("slow", "lossy"),
    )


def scraped(read: Callable[[], Reading]) -> dict[str, dict[Labels, float]]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StateCollector(build_topology(), read))
    return samples(generate_latest(registry).decode())


def label(**values: str) -> Labels:
    return frozenset(values.items())


def test_jobs_and_whom_they_wait_for() -> None:
    samples = scraped(reading)
    told, other = {"reduction": "3", "name": "resnet", "node": "s2"}, {"reduction": "4", "name": "", "node": "s2"}
    figures = {
        "items_per_second": 25,
        "items_total": 400,
        "items_reported_total": 100,
        "repeated_total": 2,
        "cells_used": 5,
        "age_seconds": 700e-9,
    }
    for name, value in figures.items():
        assert samples[f"millrace_job_{name}"] == pytest.approx({label(**job): value for job in (told, other)}), name
    assert samples["millrace_job_cells"] == {label(**told): 16}
    assert samples["millrace_job_epoch"] == {label(**told): 2}
    waits = {"mean": 3.25e-6, "p50": 3e-6, "p99": 8e-6, "max": 9e-6}
    assert samples["millrace_job_wait_seconds"] == pytest.approx(
        {label(**job, statistic=statistic): wait for job in (told, other) for statistic, wait in waits.items()}
    )
    assert samples["millrace_job_last_total"][label(**told, child="h2")] == 30
    assert samples["millrace_job_wait_caused_seconds"][label(**told, child="h1")] == pytest.approx(250e-9)


def test_a_links_figures_in_base_units() -> None:
    samples = scraped(reading)
    ends = {"src": "s1", "dst": "s2"}
    figures = {
        "rate_bps": 1e9,
        "available_bps": 75e7,
        "utilisation_ratio": 0.25,
        "queue_frames": 1.5,
        "buffer_frames": 3.5,
        "loss_ratio": 0.01,
        "samples": 10,
        "age_seconds": 1e-6,
        "delay_uncertainty_seconds": 40e-9,
    }
    for name, value in figures.items():
        assert samples[f"millrace_link_{name}"] == {label(**ends): pytest.approx(value)}, name
    delays = {"mean": 7e-6, "p50": 7e-6, "p99": 14e-6, "max": 21e-6, "ewma": 7.5e-6}
    assert samples["millrace_link_delay_seconds"] == {
        label(**ends, statistic=name): pytest.approx(value) for name, value in delays.items()
    }
    assert samples["millrace_link_delay_source"] == {label(**ends, source="stamps"): 1}


def test_what_is_unknown_is_absent() -> None:
    samples = scraped(lambda: Reading(Snapshot(0, {LINK: link()}, {}, {}), CollectorStatus(0, {}, None)))
    for name in ("loss_ratio", "buffer_frames", "delay_uncertainty_seconds"):
        assert f"millrace_link_{name}" not in samples
    assert "millrace_flows_delay_seconds" not in samples
    assert samples["millrace_flows"] == {label(): 0}


def test_flows_only_add_up() -> None:
    samples = scraped(reading)
    assert samples["millrace_flows"] == {label(): 2}
    assert samples["millrace_flows_rate_bps"] == {label(): 1000}
    assert samples["millrace_flows_delay_seconds"] == {
        label(statistic="mean"): pytest.approx(30e-6),
        label(statistic="max"): pytest.approx(40e-6),
    }


def test_nodes_that_the_topology_lacks_share_a_label() -> None:
    samples = scraped(reading)
    assert samples["millrace_reports_received_total"] == {label(node="s1"): 20, label(node=OTHER_NODE): 20}
    assert samples["millrace_reports_lost"] == {label(node="s1"): 4, label(node=OTHER_NODE): 4}
    assert samples["millrace_node_restarts_total"] == {label(node="s1"): 2, label(node=OTHER_NODE): 2}
    assert samples["millrace_clock_offset_seconds"] == {label(node="s2", group="s1"): pytest.approx(-5e-6)}


def test_rules_without_open_events_are_zero() -> None:
    assert scraped(reading)["millrace_events_open"] == {label(rule="slow"): 2, label(rule="lossy"): 0}


def test_counters_by_name() -> None:
    counts = scraped(reading)["millrace_collector_counts_total"]
    assert counts == {label(counter="reports"): 50, label(counter="malformed"): 1}


def new_service(settings: MetricsSettings, nic_statistics: Callable[[], NicStatistics] | None = None) -> MetricsService:
    collector = Collector(build_topology(), VirtualClock())
    collector.receive(Reporter().stacked(long_way()))
    rules = RuleSettings(rules=(Rule(name="slow", figure="delay_p99_ns", above=1.0),))
    events = EventService(collector, rules)
    events.step()
    return MetricsService(collector, build_topology(), events, settings, nic_statistics=nic_statistics)


def fetch(port: int) -> dict[str, dict[Labels, float]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return samples(answer.read().decode())


def test_metrics_are_served_until_cancelled() -> None:
    async def scenario(nic: Nic) -> None:
        service = new_service(MetricsSettings(port=0), nic.read_statistics)
        assert str(service) == f"metrics on TCP port {service.port}"
        serving = asyncio.create_task(service.run())
        samples = await asyncio.to_thread(fetch, service.port)
        assert samples["millrace_reports_received_total"] == {label(node="s3"): 1}
        assert samples["millrace_events_open"][label(rule="slow")] > 0
        assert samples["millrace_nic_received_packets_total"] == {label(interface="near", queue="0"): 1}
        assert "process_resident_memory_bytes" in samples
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", service.port)) != 0

    near, far = memory_pair(("near", "far"))
    with far, open_nic(near, NicSettings(threads=0)) as nic:
        far.send([bytes(60)])
        nic.step(1)
        asyncio.run(finish_within(scenario(nic), 20))


def test_a_tcp_port_in_use_is_one_line() -> None:
    async def scenario(port: int) -> None:
        with pytest.raises(CollectorError, match=rf"^metrics cannot be served at 127.0.0.1:{port}: Address already"):
            new_service(MetricsSettings(port=port))

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        asyncio.run(scenario(taken.getsockname()[1]))
