"""Centre: a compute centre, which divides what it has into units and runs tasks on them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from controller.apiserver.resources.base import Count, Kind, Line, Lines, Name, Names, Resource, Seconds, TimeNs
from controller.apiserver.resources.hardware import Load, Request
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
    """Those that nobody but our tasks has taken, as the engine says; None: all. What our tasks hold is in `shares`."""
    operators: Names = ()
    """Probe kernels' identifiers that these units can run."""
    unit: Request = Request()
    """What one of them has."""

    @property
    def for_tasks(self) -> int:
        """How many there are for our tasks, those that these hold included."""
        return self.count if self.free is None else min(self.count, self.free)


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
    """It has gained or lost resources: what was measured there may hold no more."""
    notes: Lines = ()
    """What of it is in no unit, which limits do not hold there, which kernels do not run and why."""
    agent: Line = ""
    """Which agent reports: the identity of its state folder. Another one's reports are refused during its lease."""
    signed_off: bool = False
    """That agent has left nothing here: another one need not wait for the end of its lease."""


class UnitShare(Strict, frozen=True):
    """What a task holds of a centre, from its dispatch to its completion."""

    task: Name
    uid: Line
    epoch: Count
    unit: Name | None = None
    """The type; None until the centre has picked one."""
    units: Count = 0


class Centre(Resource, frozen=True):
    """A compute centre. `shares` are written by dispatches, picks and completions alone, a version each."""

    spec: CentreSpec = CentreSpec()
    status: CentreStatus = CentreStatus()
    shares: Annotated[tuple[UnitShare, ...], Meta(max_length=4096)] = ()
    shares_version: Count = 0
    kind: Literal["Centre"] = "Centre"

    def free_of(self, unit: UnitType) -> int:
        """Return how many units of a type are left, of those that its engine has for our tasks."""
        return max(unit.for_tasks - sum(share.units for share in self.shares if share.unit == unit.name), 0)


CENTRE = Kind(
    "Centre",
    "centres",
    Centre,
    fields={"ready": lambda centre: str(centre.status.ready).lower()},
    owned=("shares", "shares_version"),
)
