"""Reception of OTLP metrics over gRPC (`opentelemetry.proto.collector.metrics.v1.MetricsService`)."""

from __future__ import annotations

import asyncio
from typing import Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    DESCRIPTOR,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from collectors.collector import Collector
from collectors.counters import Count
from collectors.errors import CollectorError
from collectors.exporters.links import ExportedLinks
from collectors.exporters.otlp import HOST_NAME, OtlpDevices, texts
from collectors.exporters.settings import OtlpSettings
from collectors.values import LoadSource
from dataplane.clock import Clock
from dataplane.rpc.access.permissions import Permission
from dataplane.rpc.server import RpcServer
from dataplane.rpc.service import Service
from dataplane.topology.values import Endpoint, Topology

_SHOWN: Final = 80
"""Characters shown of a name that an exporter gave."""


class OtlpReceiver:
    """Receives until cancelled; raises CollectorError for devices that do not fit, or an address that is taken.

    Construct it inside a running event loop.
    """

    def __init__(self, collector: Collector, topology: Topology, settings: OtlpSettings, clock: Clock) -> None:
        self._devices = OtlpDevices(topology, settings)
        self._links = ExportedLinks(topology, LoadSource.OTLP, settings.stale_after_ns)
        self._ports = {end for link in topology.directed_links.values() for end in (link.tail, link.head)}
        self._counters, self._clock = collector.counters, clock
        self._server = RpcServer(
            settings.address,
            [Service(DESCRIPTOR.services_by_name["MetricsService"], {"Export": self._export}, _NEEDS)],
            purpose="cannot receive OTLP",
            error=CollectorError,
            limits=settings.limits,
            tls=settings.tls,
        )
        self.address = self._server.address
        collector.complete_by(self._links.complete)

    def __str__(self) -> str:
        return f"OTLP at {self.address}"

    async def run(self) -> None:
        """Serve until cancelled."""
        await self._server.start()
        try:
            await asyncio.Event().wait()
        finally:
            await self._server.stop()

    def close(self) -> None:
        """Release nothing: the server ends with `run`."""

    async def _export(self, request: ExportMetricsServiceRequest) -> ExportMetricsServiceResponse:
        """Take a request; metrics of unknown devices are refused in the answer, as OTLP has it, and counted."""
        self._counters[Count.OTLP_REQUESTS] += 1
        answer, now_ns = ExportMetricsServiceResponse(), self._clock.now_ns()
        for exported in request.resource_metrics:
            metrics = [metric for scope in exported.scope_metrics for metric in scope.metrics]
            device = self._devices.device_of(exported)
            if device is None:
                self._counters[Count.OTLP_UNKNOWN] += 1
                host = texts(exported.resource.attributes).get(HOST_NAME, "")[:_SHOWN]
                answer.partial_success.rejected_data_points += sum(map(_points, metrics))
                answer.partial_success.error_message = f"no device has these attributes ({HOST_NAME} {host!r})"
                continue
            self._counters[Count.OTLP_SKIPPED] += device.take(metrics)
            for port, counters in device.take_readings():
                end = Endpoint(device.switch, port)
                if end not in self._ports:
                    self._counters[Count.OTLP_NO_LINK] += 1
                elif not self._links.take(end, counters, now_ns):
                    self._counters[Count.OTLP_RESTARTS] += 1
        return answer


_NEEDS: Final = {"Export": Permission.CHANGE}


def _points(metric: Metric) -> int:
    kind = metric.WhichOneof("data")
    return 0 if kind is None else len(getattr(metric, kind).data_points)
