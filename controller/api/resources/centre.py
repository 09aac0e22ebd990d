"""Centre: a compute centre, which divides what it has into units and runs tasks on them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from controller.api.resources.base import Count, Kind, Line, Name, Names, Resource, Seconds, TimeNs
from controller.api.resources.hardware import Load, Request
from dataplane.config import Strict


class CentreSpec(Strict, frozen=True):
    """What users want of it."""

    description: Line = ""
    unschedulable: bool = False
    lease_s: Seconds = 60.0
    """A centre that is silent for so long gets no task."""


class UnitType(Strict, frozen=True):
    """Units of one sort: the smallest slice of a centre that a task gets."""

    name: Name
    count: Count
    free: Count | None = None
    operators: Names = ()
    """Probe kernels' identifiers that these units can run."""
    unit: Request = Request()
    """What one of them has."""


class CentreStatus(Strict, frozen=True):
    """What its agent reports: the resource configuration, and which hosts of the topology it is."""

    ready: bool = False
    reason: Line = ""
    heartbeat_ns: TimeNs | None = None
    """When it reported last, by the server's clock."""
    engine: Name | None = None
    hosts: Names = ()
    units: Annotated[tuple[UnitType, ...], Meta(max_length=256)] = ()
    load: Load | None = None
    asks_for_probe: bool = False


class Centre(Resource, frozen=True):
    """A compute centre."""

    spec: CentreSpec = CentreSpec()
    status: CentreStatus = CentreStatus()
    kind: Literal["Centre"] = "Centre"


CENTRE = Kind("Centre", "centres", Centre, fields={"ready": lambda centre: str(centre.status.ready).lower()})
