"""UnitPool: equal sub-units of compute that several holders share."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from controller.api.resources.base import Count, Kind, Line, Name, Priority, Resource, Seconds, TimeNs
from controller.api.resources.hardware import Load
from dataplane.config import Strict
from dataplane.topology.values import DeviceKind


class Claim(Strict, frozen=True):
    """What a holder must have at least and may have at most."""

    holder: Name
    least: Count = 0
    most: Count | None = None
    priority: Priority = 0
    weight: Annotated[float, Meta(gt=0, le=1e9)] = 1.0


class UnitPoolSpec(Strict, frozen=True):
    """How many units there are, of what, and who may hold them."""

    units: Annotated[int, Meta(ge=0, le=1_000_000)]
    device_kind: DeviceKind = DeviceKind.GPU
    model: Line = ""
    node: Name | None = None
    claims: Annotated[tuple[Claim, ...], Meta(max_length=1024)] = ()
    hold_s: Seconds = 0.0
    """A unit that has moved stays for so long."""


class UnitHolding(Strict, frozen=True):
    """Units that a holder has."""

    holder: Name
    units: Annotated[int, Meta(ge=1, le=1_000_000)]
    since_ns: TimeNs = 0
    """When it last changed, by the server's clock."""


class HolderStatus(Strict, frozen=True):
    """What a holder reports of its units: occupancy of the bus and load of the cores, 0 to 1."""

    holder: Name
    wants: int = 0
    """More units than now; fewer where it is below 0."""
    bus: Annotated[float, Meta(ge=0, le=1)] | None = None
    load: Load | None = None
    reported_ns: TimeNs | None = None


class UnitPoolStatus(Strict, frozen=True):
    """What is reported."""

    holders: Annotated[tuple[HolderStatus, ...], Meta(max_length=1024)] = ()
    shadow_price: float | None = None
    reason: Line = ""


class UnitPool(Resource, frozen=True):
    """Equal sub-units; `shares` say who has how many, and are written by their own subresource alone."""

    spec: UnitPoolSpec
    status: UnitPoolStatus = UnitPoolStatus()
    shares: Annotated[tuple[UnitHolding, ...], Meta(max_length=1024)] = ()
    shares_version: Count = 0
    kind: Literal["UnitPool"] = "UnitPool"


UNIT_POOL = Kind(
    "UnitPool",
    "unitpools",
    UnitPool,
    fields={"node": lambda pool: pool.spec.node},
    owned=("shares", "shares_version"),
)
