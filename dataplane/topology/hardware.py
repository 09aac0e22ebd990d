"""A host's hardware in a topology file: cores, memory and devices; converted to values and back.

Sizes, latencies and rates are text with a unit (`dataplane.topology.units`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dataplane.config import Strict
from dataplane.errors import ConfigError
from dataplane.topology.units import (
    MAX_SIZE_BYTES,
    format_bytes_per_s,
    format_delay,
    format_ops_per_s,
    format_size,
    parse_bytes_per_s,
    parse_delay_ns,
    parse_ops_per_s,
    parse_size_bytes,
)
from dataplane.topology.values import (
    Bus,
    BusKind,
    Device,
    DeviceKind,
    MediumKind,
    MemoryMedium,
    NumberFormat,
    PeakRate,
)

MAX_COUNT = 1 << 16
"""More devices of a kind, or cores, in one host are assumed to be a typo."""

Fail = Callable[[str, str], ConfigError]


class MediumSpec(Strict, frozen=True):
    """Memory of one kind; `capacity` as in '256 GiB', latencies as in '90 ns', `bandwidth` as in '200 GB/s'."""

    kind: MediumKind
    capacity: str
    read_latency: str | None = None
    write_latency: str | None = None
    bandwidth: str | None = None


class BusSpec(Strict, frozen=True):
    """Attachment of a device; `rate` is per direction, as in '25 GB/s'."""

    kind: BusKind
    rate: str | None = None


class RatesSpec(Strict, frozen=True):
    """Peak operations per second by number format, as in '19.5 Top/s'; one key per `NumberFormat`."""

    int4: str | None = None
    int8: str | None = None
    int16: str | None = None
    int32: str | None = None
    int64: str | None = None
    fp8: str | None = None
    fp16: str | None = None
    bf16: str | None = None
    tf32: str | None = None
    fp32: str | None = None
    fp64: str | None = None


class DeviceSpec(Strict, frozen=True):
    """`count` identical devices of a host; `memory` each as in '40 GiB', or `memory_bytes`; peak `rates` by format."""

    kind: DeviceKind
    count: int = 1
    model: str = ""
    memory: str | None = None
    memory_bytes: int | None = None
    bus: BusSpec | None = None
    rates: RatesSpec = RatesSpec()


class HardwareReader:
    """Converts specs to values; `fail` makes the error for a problem and its path."""

    def __init__(self, fail: Fail) -> None:
        self._fail = fail

    def cores(self, cores: int | None, path: str) -> int | None:
        """Return a valid number of cores."""
        if cores is not None:
            self._in_range(cores, 1, MAX_COUNT, path)
        return cores

    def medium(self, spec: MediumSpec, path: str) -> MemoryMedium:
        """Return a memory medium."""
        return MemoryMedium(
            spec.kind,
            self._quantity(parse_size_bytes, spec.capacity, f"{path}.capacity"),
            self._optional(parse_delay_ns, spec.read_latency, f"{path}.read_latency"),
            self._optional(parse_delay_ns, spec.write_latency, f"{path}.write_latency"),
            self._optional(parse_bytes_per_s, spec.bandwidth, f"{path}.bandwidth"),
        )

    def device(self, spec: DeviceSpec, path: str) -> Device:
        """Return identical devices."""
        self._in_range(spec.count, 1, MAX_COUNT, f"{path}.count")
        return Device(
            spec.kind,
            spec.count,
            spec.model,
            self._device_memory(spec, path),
            None if spec.bus is None else self._bus(spec.bus, f"{path}.bus"),
            tuple(
                PeakRate(number_format, self._quantity(parse_ops_per_s, text, f"{path}.rates.{number_format}"))
                for number_format in NumberFormat
                if (text := getattr(spec.rates, number_format.value)) is not None
            ),
        )

    def _bus(self, spec: BusSpec, path: str) -> Bus:
        return Bus(spec.kind, self._optional(parse_bytes_per_s, spec.rate, f"{path}.rate"))

    def _device_memory(self, spec: DeviceSpec, path: str) -> int | None:
        if spec.memory is not None and spec.memory_bytes is not None:
            raise self._fail("memory is given too: use one of the two", f"{path}.memory_bytes")
        if spec.memory_bytes is not None:
            self._in_range(spec.memory_bytes, 1, MAX_SIZE_BYTES, f"{path}.memory_bytes")
            return spec.memory_bytes
        return self._optional(parse_size_bytes, spec.memory, f"{path}.memory")

    def _optional(self, parse: Callable[[str], int], text: str | None, path: str) -> int | None:
        return None if text is None else self._quantity(parse, text, path)

    def _quantity(self, parse: Callable[[str], int], text: str, path: str) -> int:
        try:
            return parse(text)
        except ValueError as error:
            raise self._fail(str(error), path) from error

    def _in_range(self, value: int, least: int, most: int, path: str) -> None:
        if not least <= value <= most:
            raise self._fail(f"{value} is not between {least} and {most}", path)


def hardware_document(cores: int | None, memory: Iterable[MemoryMedium], devices: Iterable[Device]) -> dict[str, Any]:
    """Return a host's hardware as an entry of a topology file, without unknown parts."""
    return _without_none(
        cores=cores,
        memory=[medium_document(medium) for medium in memory] or None,
        devices=[device_document(device) for device in devices] or None,
    )


def medium_document(medium: MemoryMedium) -> dict[str, Any]:
    """Return a medium as in a topology file."""
    return _without_none(
        kind=medium.kind.value,
        capacity=format_size(medium.capacity_bytes),
        read_latency=_text(format_delay, medium.read_latency_ns),
        write_latency=_text(format_delay, medium.write_latency_ns),
        bandwidth=_text(format_bytes_per_s, medium.bytes_per_s),
    )


def device_document(device: Device) -> dict[str, Any]:
    """Return identical devices as in a topology file."""
    bus = device.bus
    return _without_none(
        kind=device.kind.value,
        count=device.count,
        model=device.model or None,
        memory=_text(format_size, device.memory_bytes),
        bus=None
        if bus is None
        else _without_none(kind=bus.kind.value, rate=_text(format_bytes_per_s, bus.bytes_per_s)),
        rates={rate.format.value: format_ops_per_s(rate.ops_per_s) for rate in device.rates} or None,
    )


def _text(write: Callable[[int], str], value: int | None) -> str | None:
    return None if value is None else write(value)


def _without_none(**entries: Any) -> dict[str, Any]:  # noqa: ANN401 - a YAML document is any mapping
    return {key: value for key, value in entries.items() if value is not None}
