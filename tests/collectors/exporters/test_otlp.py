"""Interface counters over OTLP: from OpenTelemetry's own exporter, and as SONiC's countersyncd sends them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Gauge,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource as SdkResource

from collectors.collector import Collector
from collectors.counters import Count
from collectors.errors import CollectorError
from collectors.exporters.otlp import OtlpDevice, OtlpDevices
from collectors.exporters.otlp_service import OtlpReceiver
from collectors.exporters.settings import Counter, OtlpDeviceSettings, OtlpSettings
from collectors.values import LinkState, LoadSource
from dataplane.clock import MonotonicClock
from dataplane.topology.values import LinkKey
from tests.collectors.reports import build_topology
from tests.waiting import HANG_S, until

KEY = LinkKey("s1", "s2")
DEVICE = OtlpDeviceSettings("s1", {"Ethernet4": 2})


def _attributes(**values: str) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in values.items()]


def _statistic(statistic: int, *points: tuple[int, int], name: str = "Ethernet4", kind: str = "1") -> Metric:
    """Return one of countersyncd's gauges: points are times and values."""
    told = _attributes(object_name=name, sai_type_id=kind, sai_stat_id=str(statistic))
    found = [NumberDataPoint(attributes=told, time_unix_nano=time_ns, as_int=value) for time_ns, value in points]
    return Metric(name=f"sai_counter_type_{kind}_stat_{statistic}", gauge=Gauge(data_points=found))


def _counted(device: OtlpDevice) -> list[tuple[int, ...]]:
    return [
        (port, read.device_ns, read.in_octets, read.out_octets, read.out_packets, read.out_lost)
        for port, read in device.take_readings()
    ]


def test_statistics_of_sonic_are_counters_of_ports() -> None:
    device = OtlpDevice(DEVICE, {}, "")
    statistics = [
        _statistic(0, (5, 100), (6, 200)),
        _statistic(9, (5, 1000), (6, 3000)),
        _statistic(10, (6, 20)),
        _statistic(11, (6, 3)),
        _statistic(12, (6, 4)),
        _statistic(0, (9, 7), name="Ethernet8"),  # no port of the settings
        _statistic(0, (9, 7), kind="21"),  # a queue
    ]
    assert device.take(statistics) == 0
    assert _counted(device) == [(2, 6, 200, 3000, 23, 4)]
    assert _counted(device) == []


def test_what_was_sent_again_changes_nothing() -> None:
    device = OtlpDevice(DEVICE, {}, "")
    first, second = [_statistic(0, (5, 1)), _statistic(9, (5, 2))], [_statistic(0, (6, 3)), _statistic(9, (6, 4))]
    assert device.take([*second, *first]) == 2
    assert _counted(device) == [(2, 6, 3, 4, 0, 0)]
    assert device.take(second) == 0
    assert _counted(device) == []


@pytest.mark.parametrize(
    ("point", "value"),
    [
        (NumberDataPoint(as_int=-1), (1 << 64) - 1),
        (NumberDataPoint(as_double=1e6), 1_000_000),
        (NumberDataPoint(as_double=float("nan")), None),
        (NumberDataPoint(as_double=-2.0), None),
        (NumberDataPoint(), None),
    ],
)
def test_values_are_whole_counts_or_none(point: NumberDataPoint, value: int | None) -> None:
    metrics: dict[str, Counter] = {"rx": "in_octets", "tx": "out_octets"}
    device = OtlpDevice(DEVICE, metrics, "port")
    point.attributes.extend(_attributes(port="Ethernet4"))
    point.time_unix_nano = 1
    cumulative = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    both = [
        Metric(name=name, sum=Sum(data_points=[point], aggregation_temporality=cumulative, is_monotonic=True))
        for name in metrics
    ]
    assert device.take(both) == (2 if value is None else 0)
    assert _counted(device) == ([] if value is None else [(2, 1, value, value, 0, 0)])


def test_differences_are_no_counts() -> None:
    device = OtlpDevice(DEVICE, {"rx": "in_octets", "tx": "out_octets"}, "port")
    point = NumberDataPoint(as_int=1, time_unix_nano=1, attributes=_attributes(port="Ethernet4"))
    delta = Sum(data_points=[point], aggregation_temporality=AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA)
    device.take([Metric(name="rx", sum=delta), Metric(name="tx", sum=delta)])
    assert _counted(device) == []


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (OtlpSettings((OtlpDeviceSettings("x", {}),)), r"otlp.devices\[0\]: there is no switch 'x' in "),
        (OtlpSettings((DEVICE, DEVICE)), r"otlp.devices\[1\]: s1 has a device already"),
        (
            OtlpSettings((OtlpDeviceSettings("s1", {}, {"a": "b"}), OtlpDeviceSettings("s2", {}, {"a": "b"}))),
            r"otlp.devices\[1\]: s2 has the attributes of s1",
        ),
        (OtlpSettings((DEVICE,), metrics={"in_octets": "rx"}), "in_octets and out_octets are needed"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(settings: OtlpSettings, problem: str) -> None:
    with pytest.raises(CollectorError, match=problem):
        OtlpDevices(build_topology(), settings)


@contextmanager
def _exporting(address: str, host: str, octets: list[int]) -> Iterator[PeriodicExportingMetricReader]:
    """Yield OpenTelemetry's own exporter of a device whose counters are the last of `octets`, when it is told to."""

    def observe(_: CallbackOptions) -> list[Observation]:
        return [Observation(octets[-1], {"interface": "Ethernet4"})]

    exporter = OTLPMetricExporter(endpoint=address, insecure=True, timeout=HANG_S)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    provider = MeterProvider([reader], SdkResource({"host.name": host}), shutdown_on_exit=False)
    meter = provider.get_meter("switch")
    for way in ("in", "out"):
        meter.create_observable_counter(f"switch.{way}", [observe])
    try:
        yield reader
    finally:
        provider.shutdown()


def test_links_get_the_load_that_an_exporter_tells(tmp_path: Path) -> None:
    settings = OtlpSettings(
        (DEVICE,), f"unix:{tmp_path}/otlp.sock", metrics={"in_octets": "switch.in", "out_octets": "switch.out"}
    )

    async def scenario() -> tuple[LinkState, int]:
        collector = Collector(build_topology(), MonotonicClock())
        receiver = OtlpReceiver(collector, build_topology(), settings, MonotonicClock())
        running = asyncio.create_task(receiver.run())
        octets = [0]

        def export() -> None:
            with (
                _exporting(receiver.address, "s1", octets) as known,
                _exporting(receiver.address, "s9", octets) as other,
            ):
                for _ in range(2):
                    known.force_flush(HANG_S * 1000)
                    octets.append(octets[-1] + 1000)
                other.force_flush(HANG_S * 1000)

        try:
            await asyncio.to_thread(export)
            await until(lambda: collector.snapshot().links[KEY].load_source is not None, "no counters came")
            return collector.snapshot().links[KEY], collector.counters[Count.OTLP_UNKNOWN]
        finally:
            running.cancel()
            await asyncio.wait([running], timeout=HANG_S)

    link, unknown = asyncio.run(scenario())
    assert (link.load_source, unknown > 0) == (LoadSource.OTLP, True)
    assert 0 < link.utilisation <= 1


def test_metrics_of_strangers_are_refused_in_the_answer(tmp_path: Path) -> None:
    async def scenario() -> tuple[int, str]:
        collector = Collector(build_topology(), MonotonicClock())
        settings = OtlpSettings((DEVICE,), f"unix:{tmp_path}/otlp.sock")
        receiver = OtlpReceiver(collector, build_topology(), settings, MonotonicClock())
        exported = ResourceMetrics(
            resource=Resource(attributes=_attributes(**{"host.name": "x" * 999})),
            scope_metrics=[ScopeMetrics(metrics=[_statistic(0, (1, 1), (2, 2))])],
        )
        answer = (await receiver._export(ExportMetricsServiceRequest(resource_metrics=[exported]))).partial_success
        return answer.rejected_data_points, answer.error_message

    rejected, message = asyncio.run(scenario())
    assert (rejected, len(message) < 200) == (2, True)
