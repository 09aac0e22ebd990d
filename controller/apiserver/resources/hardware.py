"""Hardware of a node and its shares: schemas for the values of controller/cluster/hardware."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from controller.apiserver.resources.base import Count, LabelName, LabelValue, Line, Seconds
from controller.cluster.hardware import requests, values
from controller.common.errors import ControllerError
from dataplane.config import Strict
from dataplane.topology.values import BusKind, DeviceKind, MediumKind, NumberFormat

Thousandths = Annotated[int, Meta(ge=0, le=requests.WHOLE)]
DeviceNumber = Annotated[int, Meta(ge=0, le=4095)]


class MemoryMedium(Strict, frozen=True):
    """Memory of one kind."""

    kind: MediumKind
    capacity_bytes: Count
    read_latency_ns: Count | None = None
    write_latency_ns: Count | None = None
    bytes_per_s: Count | None = None


class Bus(Strict, frozen=True):
    """A device's link to its host's memory, and its rate in one direction."""

    kind: BusKind
    bytes_per_s: Count | None = None


class PeakRate(Strict, frozen=True):
    """Peak operations per second in one number format."""

    format: NumberFormat
    ops_per_s: Count


class Device(Strict, frozen=True):
    """A device; `number` counts from 0 within its node."""

    number: DeviceNumber
    kind: DeviceKind
    model: Line = ""
    memory_bytes: Count | None = None
    bus: Bus | None = None
    rates: Annotated[tuple[PeakRate, ...], Meta(max_length=64)] = ()
    gone: bool = False
    """It does not answer any more: nothing new is placed on it, and its pods go elsewhere."""


class Hardware(Strict, frozen=True):
    """All of a node's hardware: cores in thousandths, memory, devices to allocate, and the processor models."""

    cpu_milli: Count = 0
    memory: Annotated[tuple[MemoryMedium, ...], Meta(max_length=64)] = ()
    devices: Annotated[tuple[Device, ...], Meta(max_length=256)] = ()
    processors: Annotated[tuple[Device, ...], Meta(max_length=256)] = ()

    def __post_init__(self) -> None:
        _checked(self.node, "node", {})

    @classmethod
    def of(cls, node: values.Node) -> Self:
        """Convert a scheduler's node."""
        return msgspec.convert(node, cls, from_attributes=True)

    def node(self, name: str, labels: dict[LabelName, LabelValue]) -> values.Node:
        """Convert to a scheduler's node."""
        return _node_of(self, name, tuple(labels.items()))


class DeviceNeed(Strict, frozen=True):
    """Requested devices: whole ones, or thousandths of one; memory is per device.

    They are of a kind, or all of one kind in `any_of`.
    """

    kind: DeviceKind | None = None
    count: Annotated[int, Meta(ge=1, le=256)] = 1
    thousandths: Annotated[int, Meta(ge=1, le=requests.WHOLE)] = requests.WHOLE
    models: Annotated[tuple[Line, ...], Meta(max_length=64)] = ()
    """Acceptable models; empty: all."""
    memory_bytes: Count = 0
    any_of: Annotated[tuple[DeviceKind, ...], Meta(max_length=len(DeviceKind))] = ()
    """Acceptable kinds, instead of `kind`."""

    def __post_init__(self) -> None:
        _checked(lambda: self.value)

    @property
    def value(self) -> requests.DeviceRequest:
        """The scheduler's form of the request."""
        models, any_of = frozenset(self.models), frozenset(self.any_of)
        return requests.DeviceRequest(self.kind, self.count, self.thousandths, models, self.memory_bytes, any_of)

    @property
    def kinds(self) -> tuple[DeviceKind, ...]:
        """Acceptable kinds."""
        return self.any_of if self.kind is None else (self.kind,)


class Request(Strict, frozen=True):
    """Resources held from start to end."""

    cpu_milli: Count = 0
    memory_bytes: Count = 0
    devices: Annotated[tuple[DeviceNeed, ...], Meta(max_length=32)] = ()

    def __post_init__(self) -> None:
        _checked(lambda: self.value)

    @property
    def value(self) -> requests.Request:
        """The scheduler's form of the request."""
        return _request_of(self)

    @classmethod
    def of(cls, request: requests.Request) -> Self:
        """Convert a scheduler's request."""
        needs = tuple(
            DeviceNeed(
                kind=need.kind,
                count=need.count,
                thousandths=need.thousandths,
                models=tuple(sorted(need.models)),
                memory_bytes=need.memory_bytes,
                any_of=() if need.kind is not None else need.kinds,
            )
            for need in request.devices
        )
        return cls(cpu_milli=request.cpu_milli, memory_bytes=request.memory_bytes, devices=needs)


def check_kinds(unit: Request) -> None:
    """Raise ValueError for a unit whose devices may be of several kinds: they are what it has."""
    if unit.value.is_open:
        raise ValueError("devices: those of a unit are of one `kind`, not of `any_of` several")


class DeviceShare(Strict, frozen=True):
    """Share of one device: thousandths and memory."""

    number: DeviceNumber
    thousandths: Thousandths = requests.WHOLE
    memory_bytes: Count = 0


class DeviceLimit(Strict, frozen=True):
    """Enforcement of a pod's share of a device on its node; `reason` is why it is only admitted, null if enforced."""

    number: DeviceNumber
    reason: Line | None = None

    def __str__(self) -> str:
        """Describe it in a line."""
        return "enforced by MPS" if self.reason is None else f"admitted, not enforced: {self.reason}"


DeviceLimits = Annotated[tuple[DeviceLimit, ...], Meta(max_length=256)]
DeviceShares = Annotated[tuple[DeviceShare, ...], Meta(max_length=256)]


def shares_of(cpu_milli: int, memory_bytes: int, devices: tuple[DeviceShare, ...]) -> values.Shares:
    """Convert shares to the scheduler's form; raise HardwareError for invalid ones."""
    parts = (values.DeviceShare(share.number, share.thousandths, share.memory_bytes) for share in devices)
    return values.Shares(cpu_milli, memory_bytes, tuple(parts))


def device_shares(shares: values.Shares) -> tuple[DeviceShare, ...]:
    """Return the devices of shares that a scheduler has chosen."""
    return tuple(
        DeviceShare(number=share.number, thousandths=share.thousandths, memory_bytes=share.memory_bytes)
        for share in shares.devices
    )


class Load(Strict, frozen=True):
    """Utilisation when last sampled; shares are 0 to 1."""

    busy: Annotated[float, Meta(ge=0, le=1)] | None = None
    memory_free_bytes: Count | None = None
    power_w: Seconds | None = None


@lru_cache(maxsize=16_384)
def _node_of(hardware: Hardware, name: str, labels: tuple[tuple[LabelName, LabelValue], ...]) -> values.Node:
    """Convert hardware to a scheduler's node; cached, as nodes repeat it with each heartbeat."""
    raw: dict[str, Any] = msgspec.to_builtins(hardware)
    return msgspec.convert({**raw, "name": name, "labels": dict(labels)}, values.Node)


@lru_cache(maxsize=4096)
def _request_of(request: Request) -> requests.Request:
    """Convert to a scheduler's request; cached, as many pods request the same."""
    return requests.Request(request.cpu_milli, request.memory_bytes, tuple(need.value for need in request.devices))


def _checked(make: Any, *arguments: Any) -> None:  # noqa: ANN401 - whatever makes a value
    """Turn a value's error into a schema violation."""
    try:
        make(*arguments)
    except ControllerError as error:
        raise ValueError(str(error)) from None
