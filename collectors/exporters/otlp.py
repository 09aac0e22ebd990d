"""Interface counters as metrics of OTLP, from export requests to readings of ports; no server and no clock.

The names of metrics are SONiC's (countersyncd, which exports SAI's statistics of ports), unless the settings give those
of another exporter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Gauge,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    Sum,
)

from collectors.errors import CollectorError
from collectors.exporters.links import PortCounters
from collectors.exporters.settings import Counter, OtlpDeviceSettings, OtlpSettings
from dataplane.topology.values import Topology

HOST_NAME: Final = "host.name"
_OBJECT, _TYPE, _STATISTIC = "object_name", "sai_type_id", "sai_stat_id"
_PORT_TYPE: Final = "1"
"""SAI_OBJECT_TYPE_PORT."""
_SAI: Final[Mapping[str, Counter]] = {
    "0": "in_octets",
    "1": "in_unicast_packets",
    "2": "in_other_packets",
    "4": "in_errors",
    "9": "out_octets",
    "10": "out_unicast_packets",
    "11": "out_other_packets",
    "12": "out_discards",
    "13": "out_errors",
}
"""Statistics of ports (sai_port_stat_t) by number."""
_WANTED: Final[frozenset[Counter]] = frozenset({"in_octets", "out_octets"})
_COUNTS: Final = 1 << 64


@dataclass(slots=True)
class _Interface:
    """Newest value of each counter with its time, and the time of the last reading, all by the exporter's clock."""

    values: dict[Counter, tuple[int, int]] = field(default_factory=dict)
    read_ns: int = 0


class OtlpDevice:
    """Interfaces of one exporter, as its requests have them."""

    def __init__(self, settings: OtlpDeviceSettings, metrics: Mapping[str, Counter], interface_attribute: str) -> None:
        """`metrics` are counters by the exporter's names of them; empty for SONiC's."""
        self.switch = settings.switch
        self._ports, self._metrics, self._attribute = settings.interfaces, metrics, interface_attribute
        self._interfaces: dict[str, _Interface] = {}

    def take(self, metrics: Iterable[Metric]) -> int:
        """Take metrics; return how many points of known interfaces' counters were of no use."""
        skipped = 0
        for metric in metrics:
            points = _points(metric)
            named = self._metrics.get(metric.name)
            if self._metrics and named is None:
                continue
            for point in points.data_points if points is not None else ():
                place = self._place(point, named)
                if place is not None:
                    skipped += not self._note(*place, point)
        return skipped

    def _place(self, point: NumberDataPoint, named: Counter | None) -> tuple[str, Counter] | None:
        """Return the interface and the counter of a point, None if it is none of a port of the settings."""
        attributes = texts(point.attributes)
        if named is not None:
            name, counter = attributes.get(self._attribute), named
        elif attributes.get(_TYPE) == _PORT_TYPE and attributes.get(_STATISTIC) in _SAI:
            name, counter = attributes.get(_OBJECT), _SAI[attributes[_STATISTIC]]
        else:
            return None
        return (name, counter) if name in self._ports else None

    def _note(self, name: str, counter: Counter, point: NumberDataPoint) -> bool:
        value = _value(point)
        if value is None:
            return False
        interface = self._interfaces.setdefault(name, _Interface())
        time_ns, _ = interface.values.get(counter, (0, 0))
        if point.time_unix_nano < time_ns:
            return False  # a request that was sent again, or overtaken
        interface.values[counter] = point.time_unix_nano, value
        return True

    def take_readings(self) -> Iterator[tuple[int, PortCounters]]:
        """Yield the newest counters of each port whose octets, in and out, are newer than when last asked."""
        for name, interface in self._interfaces.items():
            values = interface.values
            if not values.keys() >= _WANTED:
                continue
            time_ns = min(values[counter][0] for counter in _WANTED)
            if time_ns > interface.read_ns:
                interface.read_ns = time_ns
                yield self._ports[name], _counters(values, time_ns)


def _counters(values: Mapping[Counter, tuple[int, int]], device_ns: int) -> PortCounters:
    def count(*names: Counter) -> int:
        return sum(values.get(name, (0, 0))[1] for name in names)

    return PortCounters(
        device_ns,
        count("in_octets"),
        count("in_unicast_packets", "in_other_packets"),
        count("in_errors"),
        count("out_octets"),
        count("out_unicast_packets", "out_other_packets"),
        count("out_discards", "out_errors"),
    )


def _points(metric: Metric) -> Gauge | Sum | None:
    """Return a metric's points if they are counts since the device began, None otherwise."""
    kind = metric.WhichOneof("data")
    if kind == "gauge":
        return metric.gauge
    if (
        kind == "sum"
        and metric.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    ):
        return metric.sum
    return None


def _value(point: NumberDataPoint) -> int | None:
    kind = point.WhichOneof("value")
    if kind == "as_int":
        return point.as_int % _COUNTS  # counters beyond 2^63 arrive as negative ones
    if kind == "as_double" and math.isfinite(point.as_double) and 0 <= point.as_double < _COUNTS:
        return int(point.as_double)
    return None


def texts(attributes: Iterable[KeyValue]) -> dict[str, str]:
    """Return attributes that are texts or whole numbers, as texts."""
    found = {}
    for attribute in attributes:
        kind = attribute.value.WhichOneof("value")
        if kind in {"string_value", "int_value"}:
            found[attribute.key] = str(getattr(attribute.value, kind))
    return found


class OtlpDevices:
    """The devices of a topology that export metrics; raises CollectorError, which names the key, unless they fit."""

    def __init__(self, topology: Topology, settings: OtlpSettings, key: str = "otlp.devices") -> None:
        metrics = {name: counter for counter, name in (settings.metrics or {}).items()}
        if metrics and not {"in_octets", "out_octets"} <= (settings.metrics or {}).keys():
            raise CollectorError("otlp.metrics: in_octets and out_octets are needed for a link's load")
        self._devices: list[tuple[Mapping[str, str], OtlpDevice]] = []
        seen: set[str] = set()
        for number, device in enumerate(settings.devices):
            if device.switch not in topology.switch:
                raise CollectorError(f"{key}[{number}]: there is no switch {device.switch!r} in {topology.name}")
            if device.switch in seen:
                raise CollectorError(f"{key}[{number}]: {device.switch} has a device already")
            seen.add(device.switch)
            wanted = device.attributes or {HOST_NAME: device.switch}
            other = next((known.switch for given, known in self._devices if given == wanted), None)
            if other is not None:
                raise CollectorError(f"{key}[{number}]: {device.switch} has the attributes of {other}")
            self._devices.append((wanted, OtlpDevice(device, metrics, settings.interface_attribute)))

    def device_of(self, exported: ResourceMetrics) -> OtlpDevice | None:
        """Return the device that a resource is, None for one of no device or of several."""
        attributes = texts(exported.resource.attributes)
        fitting = [device for wanted, device in self._devices if wanted.items() <= attributes.items()]
        return fitting[0] if len(fitting) == 1 else None
