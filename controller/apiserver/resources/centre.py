"""Centre: a compute centre, which divides its resources into units and runs tasks on them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from controller.apiserver.resources.base import Count, Line, Lines, Name, Names, Resource, Seconds, TimeNs
from controller.apiserver.resources.hardware import Load, Request, check_kinds
from controller.apiserver.resources.kind import Kind, Own, Rights, Verb, check_no_holders
from controller.apiserver.resources.reported import ReportedStrategy
from dataplane.config import Strict
from dataplane.rpc.access import Role


class CentreSpec(Strict, frozen=True):
    """Desired state, set by users."""

    description: Line = ""
    unschedulable: bool = False
    lease_s: Seconds = 60.0
    """A centre that is silent for this long gets no tasks."""


class UnitType(Strict, frozen=True):
    """Units of one type: the smallest slice of a centre that a task can get."""

    name: Name
    count: Count
    free: Count | None = None
    """Units not taken by work from outside, according to the engine; None: all. Units of our tasks are in `shares`."""
    operators: Names = ()
    """Identifiers of probe kernels that these units can run."""
    unit: Request = Request()
    """Resources of one unit."""

    def __post_init__(self) -> None:
        check_kinds(self.unit)

    @property
    def for_tasks(self) -> int:
        """Units available to our tasks, including those that they hold."""
        return self.count if self.free is None else min(self.count, self.free)


class TimeCorrection(Strict, frozen=True):
    """Factor of the expected times of a kind of operator, learned from SQL tasks that ran here."""

    operator: Name
    factor: Annotated[float, Meta(gt=0, le=1e6)]


class TypeCorrection(Strict, frozen=True):
    """Factor of the expected times of tasks of a type, besides those of their operators."""

    task_type: Name
    factor: Annotated[float, Meta(gt=0, le=1e6)]


class CentreStatus(Strict, frozen=True):
    """Report of its agent: the resource configuration, and the centre's hosts in the topology."""

    ready: bool = False
    reason: Line = ""
    heartbeat_ns: TimeNs | None = None
    """Time of the last report, by the server's clock."""
    engine: Name | None = None
    hosts: Names = ()
    units: Annotated[tuple[UnitType, ...], Meta(max_length=256)] = ()
    load: Load | None = None
    asks_for_probe: bool = False
    """It has gained or lost resources: measurements made there may no longer hold."""
    notes: Lines = ()
    """Resources that are in no unit, limits that are not enforced, kernels that do not run and why."""
    corrections: Annotated[tuple[TimeCorrection, ...], Meta(max_length=64)] = ()
    """Factors on the calibration that a scheduler decides with."""
    type_corrections: Annotated[tuple[TypeCorrection, ...], Meta(max_length=64)] = ()
    """Factors of the types of SQL tasks that ran last."""
    corrections_version: Count = 0
    """Number of tasks that they were learned from."""
    agent: Line = ""
    """Identity of the reporting agent's state folder. Reports by other agents are refused during its lease."""
    signed_off: bool = False
    """The agent has left nothing here: another one need not wait for its lease to expire."""


class UnitShare(Strict, frozen=True):
    """A task's share of a centre, from its dispatch to its completion."""

    task: Name
    uid: Line
    epoch: Count
    unit: Name | None = None
    """Unit type; None until the centre has picked one."""
    units: Count = 0


class Centre(Resource, frozen=True):
    """A compute centre. Only dispatches, picks and completions write `shares`; each increments the version."""

    spec: CentreSpec = CentreSpec()
    status: CentreStatus = CentreStatus()
    shares: Annotated[tuple[UnitShare, ...], Meta(max_length=4096)] = ()
    shares_version: Count = 0
    kind: Literal["Centre"] = "Centre"

    def free_of(self, unit: UnitType) -> int:
        """Return how many units of a type are free for our tasks."""
        return max(unit.for_tasks - sum(share.units for share in self.shares if share.unit == unit.name), 0)


class CentreStrategy(ReportedStrategy[Centre]):
    """Centres: reported by their agent, and there as long as tasks hold units."""

    def may_delete(self, current: Centre) -> None:
        """Refuse a centre whose units are held."""
        check_no_holders("Centre", current.metadata.name, [share.task for share in current.shares])


CENTRE = Kind(
    "Centre",
    "centres",
    Centre,
    fields={"ready": lambda centre: str(centre.status.ready).lower()},
    initial=("shares", "shares_version"),
    columns={
        "ready": lambda centre: "yes" if centre.status.ready else centre.status.reason or "no",
        "engine": lambda centre: centre.status.engine,
        "hosts": lambda centre: len(centre.status.hosts),
        "units": lambda centre: " ".join(f"{unit.count} {unit.name}" for unit in centre.status.units),
    },
    rights=Rights(own={Role.CENTRE: Own("name", frozenset({Verb.READ, Verb.CREATE, Verb.STATUS}))}),
    strategy=CentreStrategy("agent", "an agent"),
)
