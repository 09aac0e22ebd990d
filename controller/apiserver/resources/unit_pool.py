"""UnitPool: equal sub-units of compute that several holders share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from msgspec import Meta

from controller.apiserver.resources.base import Count, Kind, Line, Name, Priority, Resource, Seconds, TimeNs
from controller.apiserver.resources.hardware import DeviceNumber, DeviceShares
from dataplane.config import Strict
from dataplane.topology.values import DeviceKind

MOST_HOLDERS: Final = 1024
Share01 = Annotated[float, Meta(ge=0, le=1)]
Signed = Annotated[float, Meta(ge=-1e9, le=1e9)]


class Claim(Strict, frozen=True):
    """What a holder must have at least and may have at most."""

    holder: Name
    least: Count = 0
    most: Count | None = None
    priority: Priority = 0
    weight: Annotated[float, Meta(gt=0, le=1e9)] = 1.0


class ControlForm(StrEnum):
    """Which terms of the controller count."""

    P = "P"
    PI = "PI"
    PD = "PD"
    PID = "PID"


class ControlScheme(StrEnum):
    """Where the controller's gains come from."""

    FIXED = "fixed"
    EXPERT = "expert"
    FUZZY = "fuzzy"


class ControlRule(StrEnum):
    """How an output becomes units."""

    TABLE = "table"
    """By the interval table: a few units a step."""
    PLATFORM = "platform"
    """At once to n' = n P_d / P_p, which brings the error to 0 where both loads scale with the units."""


class PoolControl(Strict, frozen=True):
    """How the units are found that a holder wants, where it does not say so itself, from its bus and load."""

    form: ControlForm = ControlForm.P
    kp: Annotated[float, Meta(ge=0, le=1e3)] = 1.0
    ki: Annotated[float, Meta(ge=0, le=1e3)] = 0.0
    kd: Annotated[float, Meta(ge=0, le=1e3)] = 0.0
    scheme: ControlScheme = ControlScheme.FIXED
    """fixed: these gains; expert: around them by ranges of the error; fuzzy: those, adapted to each report."""
    rule: ControlRule = ControlRule.TABLE
    dead_band: Share01 = 0.1
    """Within it nothing is asked for."""
    asks_from_load: Share01 = 0.0
    """More is asked for only where the cores are at least so busy; 0: whatever their load."""
    frees_to_load: Share01 = 0.0
    """Where cores idle, units are freed until those left are so busy, though nobody asks for them; 0: only as the error
    says. Below `asks_from_load`, lest what is freed is asked for again."""
    settle_s: Seconds = 0.0
    """A report counts that is so much younger than the last change of its holder's units: until then it shows both."""

    def __post_init__(self) -> None:
        if self.frees_to_load and self.frees_to_load >= self.asks_from_load:
            raise ValueError("frees_to_load is not below asks_from_load: what is freed would be asked for again")


class UnitPoolSpec(Strict, frozen=True):
    """How many units there are, of what, and who may hold them.

    A pool of a `node` is of its devices: units that are held are shares of that node, beside its pods' shares.
    """

    units: Annotated[int, Meta(ge=0, le=1_000_000)]
    device_kind: DeviceKind = DeviceKind.GPU
    model: Line = ""
    node: Name | None = None
    devices: Annotated[tuple[DeviceNumber, ...], Meta(max_length=256)] = ()
    """Those of the node that units are of; without any all of its kind and model."""
    unit_thousandths: Annotated[int, Meta(ge=1, le=1000)] = 1000
    """How much of a device of the node each unit is."""
    claims: Annotated[tuple[Claim, ...], Meta(max_length=MOST_HOLDERS)] = ()
    hold_s: Seconds = 0.0
    """A unit that has moved stays for so long."""
    lease_s: Seconds = 0.0
    """A holder that is silent for so long has stopped using its units. Units leave one that is not once it says so.

    0: holders do not report, and units move as soon as it is written.
    """
    paused: bool = False
    """Nothing is moved."""
    control: PoolControl = PoolControl()

    def __post_init__(self) -> None:
        names = [claim.holder for claim in self.claims]
        twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
        if twice is not None:
            raise ValueError(f"claims: holder {twice} is there twice")
        wrong = next((claim for claim in self.claims if claim.most is not None and claim.most < claim.least), None)
        if wrong is not None:
            raise ValueError(f"claims: holder {wrong.holder}: at least {wrong.least}, and at most {wrong.most}")
        if self.node is None and (self.devices or self.unit_thousandths != 1000):
            raise ValueError("devices and unit_thousandths are of a node: name one")


class UnitHolding(Strict, frozen=True):
    """Units that a holder has; `devices`, of a node, are the server's to say."""

    holder: Name
    units: Annotated[int, Meta(ge=1, le=1_000_000)]
    since_ns: TimeNs = 0
    """When it last changed, by the server's clock."""
    grown_ns: TimeNs = 0
    """When it last became more."""
    leaving: Count = 0
    """So many of them are asked back: they are the holder's until it says that it uses no more than the rest."""
    devices: DeviceShares = ()
    """Where the units are."""


class HolderStatus(Strict, frozen=True):
    """What a holder reports of its units: occupancy of the bus and load of the cores, 0 to 1."""

    holder: Name
    wants: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] | None = None
    """More units than now; fewer where it is below 0. None: that is to be found from bus and load."""
    holds: Count | None = None
    """A promise: it uses no more units than so many, until it promises another number."""
    bus: Share01 | None = None
    load: Share01 | None = None
    precision: Annotated[str, Meta(max_length=32)] = ""
    """Where its own levers stand."""
    frequency_mhz: Seconds | None = None
    reported_ns: TimeNs | None = None
    """By the server's clock."""


class HolderControl(Strict, frozen=True):
    """What was made of a holder's report; changes of precision and frequency are advice for its own levers."""

    holder: Name
    error: Signed | None = None
    output: Signed | None = None
    wants: int = 0
    precision_steps: int = 0
    frequency_mhz: Signed = 0.0
    price: Annotated[float, Meta(ge=0)] = 0.0
    """What one more unit is worth to it; 0 where it wants none."""
    reason: Line = ""


class UnitPoolStatus(Strict, frozen=True):
    """What is reported: `holders` by themselves, each by its own report; the rest by who shares the units out."""

    holders: Annotated[tuple[HolderStatus, ...], Meta(max_length=MOST_HOLDERS)] = ()
    control: Annotated[tuple[HolderControl, ...], Meta(max_length=MOST_HOLDERS)] = ()
    shadow_price: Annotated[float, Meta(ge=0)] | None = None
    """What one more unit in the pool would be worth."""
    reason: Line = ""


class UnitPool(Resource, frozen=True):
    """Equal sub-units; `shares` say who has how many, and are written by their own subresource alone."""

    spec: UnitPoolSpec
    status: UnitPoolStatus = UnitPoolStatus()
    shares: Annotated[tuple[UnitHolding, ...], Meta(max_length=MOST_HOLDERS)] = ()
    shares_version: Count = 0
    kind: Literal["UnitPool"] = "UnitPool"

    @property
    def held(self) -> int:
        """How many units somebody has."""
        return sum(share.units for share in self.shares)

    @property
    def holders(self) -> tuple[str, ...]:
        """Who may hold units, or does."""
        return tuple(dict.fromkeys([claim.holder for claim in self.spec.claims] + [one.holder for one in self.shares]))


UNIT_POOL = Kind(
    "UnitPool",
    "unitpools",
    UnitPool,
    fields={"node": lambda pool: pool.spec.node, "holder": lambda pool: pool.holders},
    owned=("shares", "shares_version"),
)
