"""What a node is made of, as far as schedulers ask."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from controller.api.resources.base import Count, Line, Name, Seconds, Thousandths
from dataplane.config import Strict
from dataplane.topology.values import DeviceKind


class MemoryMedium(Strict, frozen=True):
    """Memory of one kind: dram, scm or nvm."""

    kind: Name
    nbytes: Count
    read_latency_ns: Count | None = None
    bandwidth_bps: Count | None = None


class NodeDevice(Strict, frozen=True):
    """A device that can be shared in thousandths; `name` is unique on its node (`gpu0`)."""

    name: Name
    kind: DeviceKind
    model: Line = ""
    memory_bytes: Count | None = None
    bus_bps: Count | None = None
    """What its bus carries, bit/s."""
    numa: Annotated[int, Meta(ge=0, le=4095)] | None = None
    rates: Annotated[dict[Name, float], Meta(max_length=64)] = msgspec.field(default_factory=dict)
    """Operations a second, by precision or operator."""


class Hardware(Strict, frozen=True):
    """All that a node has; `cpu_milli` are thousandths of cores."""

    cpu_milli: Count = 0
    memory_bytes: Count = 0
    cpu_model: Line = ""
    media: Annotated[tuple[MemoryMedium, ...], Meta(max_length=64)] = ()
    devices: Annotated[tuple[NodeDevice, ...], Meta(max_length=256)] = ()

    def __post_init__(self) -> None:
        names = [device.name for device in self.devices]
        twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
        if twice is not None:
            raise ValueError(f"device {twice} is there twice")


class DeviceNeed(Strict, frozen=True):
    """Devices that are asked for: whole ones, or thousandths of one."""

    kind: DeviceKind
    count: Annotated[int, Meta(ge=1, le=256)] = 1
    thousandths: Thousandths = 1000
    models: Annotated[tuple[Line, ...], Meta(max_length=64)] = ()
    """Those that will do; all if there are none."""

    def __post_init__(self) -> None:
        if self.count > 1 and self.thousandths != 1000:
            raise ValueError("several devices are asked for as whole ones, 1000 thousandths each")


class Request(Strict, frozen=True):
    """What is held from start to end."""

    cpu_milli: Count = 0
    memory_bytes: Count = 0
    devices: Annotated[tuple[DeviceNeed, ...], Meta(max_length=32)] = ()


class DeviceShare(Strict, frozen=True):
    """Thousandths of one device of a node."""

    device: Name
    thousandths: Thousandths = 1000


DeviceShares = Annotated[tuple[DeviceShare, ...], Meta(max_length=256)]


class Load(Strict, frozen=True):
    """How busy something was when it was looked at; shares are 0 to 1."""

    busy: Annotated[float, Meta(ge=0, le=1)] | None = None
    memory_free_bytes: Count | None = None
    power_w: Seconds | None = None
